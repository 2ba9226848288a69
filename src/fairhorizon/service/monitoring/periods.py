"""A stretch of time in steps, as counts by minute and by hour can tell it."""

import math
from dataclasses import dataclass

from fairhorizon.errors import FairHorizonError

MINUTE, HOUR, DAY = 60, 3600, 86_400
SHORTEST_STEP, LONGEST_STEP = MINUTE, 30 * DAY
MOST_STEPS = 2000
USUAL_STEPS = 100
LAST_MOMENT = 253_370_764_800  # the year 9999


class PeriodError(FairHorizonError):
    """A stretch of time that nothing can be told of."""


@dataclass(frozen=True)
class Period:
    """From a full minute to a full minute; steps are whole minutes, the last may be cut off."""

    begin: int  # seconds since 1970
    end: int
    step: int

    @classmethod
    def asked(
        cls, now: float, begin: float | None, end: float | None, step: float | None
    ) -> "Period":
        """Widened to full minutes, a step rounded up to them.

        Without an end it is now, without a begin a day before; without a step it has about a
        hundred.
        """
        until = now if end is None else end
        since = until - DAY if begin is None else begin
        if not 0 <= since < until <= LAST_MOMENT:
            raise PeriodError(
                "from and to: the time between them is empty, or beyond the calendar (give a "
                "`from` before `to`, both between 1970 and 9999)"
            )
        first, last = MINUTE * math.floor(since / MINUTE), MINUTE * math.ceil(until / MINUTE)
        length = last - first
        if step is None:
            step = min(max(length / USUAL_STEPS, SHORTEST_STEP), LONGEST_STEP)
        period = cls(first, last, MINUTE * math.ceil(step / MINUTE))
        if period.n_steps > MOST_STEPS:
            least = max(SHORTEST_STEP, MINUTE * math.ceil(length / MOST_STEPS / MINUTE))
            remedy = f"give a step of at least {least} seconds"
            if least > LONGEST_STEP:
                remedy = f"give a period of at most {MOST_STEPS * LONGEST_STEP // DAY} days"
            raise PeriodError(
                f"step: {period.n_steps:,} points, {MOST_STEPS:,} are the most ({remedy})"
            )
        return period

    @classmethod
    def last(cls, now: float, length: int, step: int) -> "Period":
        """The last `length` seconds, begun at a multiple of the step; the present step is in it."""
        end = step * (math.floor(now / step) + 1)
        return cls(end - length, end, step)

    @property
    def n_steps(self) -> int:
        return -(-(self.end - self.begin) // self.step)

    def time(self, step: int) -> int:
        """When a step begins."""
        return self.begin + step * self.step

    @property
    def minutes(self) -> tuple[int, int]:
        """The first minute since 1970, and the one after the last."""
        return self.begin // MINUTE, self.end // MINUTE

    @property
    def hours(self) -> tuple[int, int]:
        """The first full hour since 1970 that is touched, and the one after the last."""
        return self.begin // HOUR, -(-self.end // HOUR)
