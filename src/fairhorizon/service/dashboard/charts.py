"""Lines over time as SVG, drawn here: no script, no library, nothing loaded from elsewhere."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from fairhorizon.service.monitoring.counts import DAY, Period

WIDTH, HEIGHT = 460, 190
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 24  # the left one is wider where values are long texts
GAP = 6  # between the text of a value and the frame
FONT = 14  # the largest that texts are drawn in, on phones
MOST_TICKS = 5  # of values
TICK_WIDTH = 64  # of a time
MOST_ROWS = 24  # of the table of numbers
NICE = (1, 2, 2.5, 5, 10)
# How wide characters are in a wide font, in its size; digits and all others: the last.
NARROW_CHARACTERS, WIDE_CHARACTERS = dict.fromkeys("., ", 0.33), dict.fromkeys("%m+", 1.0)
CHARACTER = 0.65
TIME_STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200)


def percent(value: float) -> str:
    """As few digits as tell shares apart."""
    return f"{100 * value:.3g} %"


def plain(value: float) -> str:
    if abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def milliseconds(value: float) -> str:
    return f"{plain(value)} ms"


def text_width(text: str) -> float:
    """The width of a text in the largest font, or a little more."""
    widths = NARROW_CHARACTERS | WIDE_CHARACTERS
    return FONT * sum(widths.get(character, CHARACTER) for character in text)


def clock(time: float, *, with_day: bool = False) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%d %b %H:%M" if with_day else "%H:%M")


@dataclass(frozen=True)
class Curve:
    """Points of time and value; they are joined where steps follow each other."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    is_faint: bool = False


@dataclass(frozen=True)
class LineChart:
    """Some curves of one unit.

    period: from one side to the other; points are as many seconds apart as its steps.
    line: a value that a dashed line is drawn at, with its name.  write: a value as text.
    """

    title: str
    curves: Sequence[Curve]
    period: Period
    write: Callable[[float], str] = plain
    line: float | None = None
    line_name: str = ""
    width: int = WIDTH

    @property
    def box(self) -> str:
        return f"0 0 {self.width} {HEIGHT}"

    @property
    def frame(self) -> dict[str, int]:
        right, bottom = self.width - RIGHT, HEIGHT - BOTTOM
        return {"left": self.left, "right": right, "top": TOP, "bottom": bottom}

    @cached_property
    def left(self) -> int:
        """Where the frame begins: the texts of all values are left of it, and inside the box."""
        return max(LEFT, GAP + max(math.ceil(text_width(text)) for _, text in self.value_ticks))

    @property
    def is_empty(self) -> bool:
        return not any(curve.points for curve in self.curves)

    @cached_property
    def value_step(self) -> float:
        """Between two ticks of the values."""
        values = [value for curve in self.curves for _, value in curve.points]
        most = max([*values, self.line or 0.0], default=0.0)
        return _tick(most / MOST_TICKS) if most > 0 else 1.0

    @cached_property
    def top(self) -> float:
        """The largest value of the axis, a tick above all values."""
        values = [value for curve in self.curves for _, value in curve.points]
        most = max([*values, self.line or 0.0], default=0.0)
        # A value that is a tick but for rounding needs no further tick above it.
        return self.value_step * max(1, math.ceil(most / self.value_step - 1e-9))

    def x(self, time: float) -> float:
        inside = min(
            max((time - self.period.begin) / (self.period.end - self.period.begin), 0.0), 1.0
        )
        return round(self.left + inside * (self.width - self.left - RIGHT), 1)

    def y(self, value: float) -> float:
        inside = min(max(value / self.top, 0.0), 1.0)
        return round(HEIGHT - BOTTOM - inside * (HEIGHT - TOP - BOTTOM), 1)

    def polylines(self, curve: Curve) -> list[str]:
        """Stretches without a gap, each as the points of a polyline."""
        stretches: list[list[str]] = []
        before = -math.inf
        for time, value in curve.points:
            # Half a step of play for rounding: a missing step makes a gap of two.
            if time - before > 1.5 * self.period.step:
                stretches.append([])
            # In the middle of its step.
            stretches[-1].append(f"{self.x(time + self.period.step / 2)},{self.y(value)}")
            before = time
        # A single point twice: a line of no length with round ends is a dot.
        return [" ".join(points if len(points) > 1 else 2 * points) for points in stretches]

    @property
    def value_ticks(self) -> list[tuple[float, str]]:
        values = [n * self.value_step for n in range(round(self.top / self.value_step) + 1)]
        return [(self.y(value), self.write(value)) for value in values]

    @property
    def time_ticks(self) -> list[tuple[float, str]]:
        length, most = self.period.end - self.period.begin, self.width // TICK_WIDTH
        # Longer periods than the steps are for have a tick every so many days.
        days = math.ceil(length / DAY / most) * DAY
        step = next((one for one in TIME_STEPS if length / one <= most), days)
        first = math.ceil(self.period.begin / step) * step
        times = [first + n * step for n in range(int((self.period.end - first) // step) + 1)]
        form = "%d %b" if step >= DAY else "%H:%M"
        ticks = [(self.x(time), datetime.fromtimestamp(time, UTC).strftime(form)) for time in times]
        # A text is centred on its tick and has to stay inside.
        last = self.width - max((text_width(text) for _, text in ticks), default=0.0) / 2
        return [(x, text) for x, text in ticks if self.left + 8 <= x <= last]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The numbers as a table: times, and the value of each curve; of many times every nth."""
        by_time: dict[float, list[str]] = {}
        for place, curve in enumerate(self.curves):
            for time, value in curve.points:
                by_time.setdefault(time, [""] * len(self.curves))[place] = self.write(value)
        times = sorted(by_time, reverse=True)
        each = math.ceil(len(times) / MOST_ROWS) or 1
        return [(clock(time, with_day=True), by_time[time]) for time in times[::each]]


def _tick(least: float) -> float:
    """The smallest nice number (1, 2, 2.5 or 5 times a power of ten) that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(nice * power for nice in NICE if nice * power >= least * (1 - 1e-9))
