"""The windows in which a limit counts: since the beginning, by day, or by so many showings."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from fairhorizon.errors import ConfigError
from fairhorizon.service.budget.units import UNIT

ALWAYS, DAY = "always", "day"
COUNT = re.compile(r"(\d{1,12}) showings")


@dataclass(frozen=True)
class Window:
    """When a limit begins to count anew: never, every day (UTC), or after `showings`."""

    daily: bool = False
    showings: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Window":
        """`always`, `day` or `10000 showings`."""
        words = " ".join(text.strip().lower().split())
        if words == ALWAYS:
            return cls()
        if words == DAY:
            return cls(daily=True)
        counted = COUNT.fullmatch(words)
        if counted is None or not int(counted[1]):
            raise ConfigError(
                f"window {text!r}: when should it begin anew? (give always, day or 10000 showings)"
            )
        return cls(showings=int(counted[1]))

    def __str__(self) -> str:
        if self.showings is not None:
            return f"{self.showings} showings"
        return DAY if self.daily else ALWAYS

    def name(self, now: float, before: str | None, shown: int) -> str:
        """What the window of this moment is called.

        now: by the database's clock.  before: the name of the last one; None: there was none.
        shown: units counted in that one. A window of showings ends with the lists that fill it.
        """
        if self.daily:
            return datetime.fromtimestamp(now, UTC).date().isoformat()
        if self.showings is None:
            return ALWAYS
        if before is None:
            return "1"
        return str(int(before) + (shown >= self.showings * UNIT))
