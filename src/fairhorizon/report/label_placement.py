"""Where to write beside the points of a chart, so that texts lie neither on points nor on texts."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

Box = tuple[float, float, float, float]  # left, bottom, right, top

# of a panel in the units of a letter: its width is 6 pixels, its height 11
PANEL_WIDTH, PANEL_HEIGHT = 58.0, 34.0
POINT = 0.6  # half the width of a point


class Side(Enum):
    """Of a point, where its text stands."""

    ABOVE = "above"
    BELOW = "below"
    RIGHT = "right"
    LEFT = "left"
    NONE = "none"  # no room


# the properties of a text mark
SIDES: dict[Side, dict[str, Any]] = {
    Side.ABOVE: {"dy": -10},
    Side.BELOW: {"dy": 11},
    Side.RIGHT: {"dx": 7, "align": "left"},
    Side.LEFT: {"dx": -7, "align": "right"},
    Side.NONE: {"dy": -10},
}


def sides_of(points: Sequence[tuple[float | None, float | None, int]]) -> list[Side]:
    """The side of each point (x, y, letters) with room, taken one after the other."""
    placed = _in_letters(points)
    taken = [_around(x, y, POINT, POINT) for x, y in placed if x == x]
    sides = []
    for (x, y), (_, _, letters) in zip(placed, points, strict=True):
        for side in SIDES:
            box = _box(x, y, letters, side)
            if side is Side.NONE or not any(_overlap(box, other) for other in taken):
                break
        sides.append(side)
        if side is not Side.NONE:
            taken.append(box)
    return sides


def _in_letters(
    points: Sequence[tuple[float | None, float | None, int]],
) -> list[tuple[float, float]]:
    """Points on the panel; NaN where there is none."""
    known = [(x, y) for x, y, _ in points if x is not None and y is not None]
    if not known:
        return [(float("nan"), float("nan"))] * len(points)
    (left, bottom), (right, top) = (
        tuple(edge(values) for values in zip(*known, strict=True)) for edge in (min, max)
    )
    across, up = (right - left) or 1.0, (top - bottom) or 1.0
    return [
        (PANEL_WIDTH * (x - left) / across, PANEL_HEIGHT * (y - bottom) / up)
        if x is not None and y is not None
        else (float("nan"), float("nan"))
        for x, y, _ in points
    ]


def _box(x: float, y: float, letters: int, side: Side) -> Box:
    half = letters / 2
    right, up = {
        Side.RIGHT: (1.2 + half, 0.0),
        Side.LEFT: (-1.2 - half, 0.0),
        Side.BELOW: (0.0, -1.1),
    }.get(side, (0.0, 1.1))
    return _around(x + right, y + up, half, 0.45)


def _around(x: float, y: float, width: float, height: float) -> Box:
    return x - width, y - height, x + width, y + height


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
