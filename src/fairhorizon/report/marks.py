"""The marks that charts are made of, as parts of a specification in Vega-Lite.

What belongs to a method is in rows with its name as `series`: the page's script hides a series, or
highlights it in all panels of a chart, by the parameters `hidden` and `focus`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.report.styles import GREY, Style

Row = Mapping[str, Any]
Spec = dict[str, Any]  # of a chart, a layer, a mark or an encoding
MOST_POINTS = 300  # of a line: what a screen can show
MOST_ROWS = 1800  # of all lines of a panel: a page has to stay below 1.5 MB
MARKERS = 8  # on a line: enough to identify it, few enough to see it
FADED = 0.12  # opacity of what is not in focus

PARAMETERS = [{"name": "hidden", "value": []}, {"name": "focus", "value": ""}]
IS_SHOWN = "indexof(hidden, datum.series) < 0"
IN_FOCUS = "focus == '' || focus == datum.series"
IS_FOCUS = "focus == datum.series"


@dataclass(frozen=True)
class Axis:
    """What an axis is called, and where it begins and ends if that is fixed."""

    title: str
    domain: tuple[float, float] | None = None
    zero: bool = False
    whole: bool = False  # numbers without decimals
    format: str = ".2f"  # of a number in a tooltip
    labels: str | None = None  # format of the numbers at the axis
    is_titled: bool = True  # or else the title of the panel says it

    def of(self, name: str) -> Spec:
        """The encoding of a field along this axis."""
        axis: Spec = {"title": self.title if self.is_titled else None, "tickCount": 5}
        if self.whole:
            axis |= {"tickMinStep": 1, "format": "d"}
        if self.labels:
            axis["format"] = self.labels
        scale: Spec = {"zero": self.zero, "nice": not self.whole}
        if self.domain is not None:
            scale = {"domain": list(self.domain), "zero": False, "nice": False}
        return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}

    def tooltip(self, name: str) -> Spec:
        shown = "d" if self.whole else self.format
        return {"field": name, "type": "quantitative", "title": self.title, "format": shown}


def mark(kind: str, encoding: Spec, rows: Sequence[Row] | None = None, /, **style: Any) -> Spec:
    """A layer of marks, with its own rows or those of the layers it is in."""
    spec = {"mark": {"type": kind, **style}, "encoding": encoding}
    return spec if rows is None else {"data": {"values": list(rows)}, **spec}


def layered(layers: Sequence[Spec], rows: Sequence[Row], *, hides: bool = False) -> Spec:
    """Layers of the same rows; hides: those of the series that the reader hides."""
    transform = {"transform": [{"filter": IS_SHOWN}]} if hides else {}
    return {"data": {"values": list(rows)}, **transform, "layer": list(layers)}


def word(name: str, **more: Any) -> Spec:
    """The encoding of a field that holds names."""
    return {"field": name, "type": "nominal", **more}


def by_series(styles: Mapping[str, Style]) -> dict[str, Spec]:
    """Encodings that give each series its style; the legend is drawn apart, for all panels."""
    names, own = list(styles), list(styles.values())
    ranges: dict[str, list[Any]] = {
        "color": [style.colour for style in own],
        "shape": [style.shape for style in own],
        "strokeDash": [list(style.dashes) or [1, 0] for style in own],
    }
    return {
        channel: word("series", scale={"domain": names, "range": values}, legend=None)
        for channel, values in ranges.items()
    }


def if_(test: str, value: Any, otherwise: Any) -> Spec:
    return {"condition": {"test": test, "value": value}, "value": otherwise}


def in_focus(opacity: float = 1.0) -> Spec:
    return if_(IN_FOCUS, opacity, opacity * FADED)


def lines(
    rows: Sequence[Row],
    styles: Mapping[str, Spec],
    x: Axis,
    y: Axis,
    *,
    more: Sequence[Spec] = (),
) -> Spec:
    """Lines of rows (series, x, y, marked), a band between `low` and `high` if rows have them.

    Every point can be pointed at; those that are marked are drawn.
    """
    place, colour = {"x": x.of("x"), "y": y.of("y")}, {"color": styles["color"]}
    tooltip = [word("series", title=" "), x.tooltip("x"), y.tooltip("y"), *more]
    line = place | colour | {"strokeDash": styles["strokeDash"], "opacity": in_focus()}
    point = place | colour | {"shape": styles["shape"], "tooltip": tooltip}
    point["opacity"] = if_(f"datum.marked && ({IN_FOCUS})", 1, 0)
    layers = [mark("line", line), mark("point", point, filled=True, size=55)]
    if "low" in rows[0]:
        edges = {"x": x.of("x"), "y": y.of("low"), "y2": {"field": "high"}}
        layers.insert(0, mark("area", edges | colour | {"opacity": in_focus(0.18)}))
    return layered(layers, rows, hides=True)


def limit_layer(limit: float, x_end: float, label: str, x: Axis, y: Axis) -> Spec:
    """A dashed line across the panel, and its label right of it."""
    text = {"x": x.of("x"), "y": y.of("y"), "text": word("label")}
    layers = [
        mark("rule", {"y": y.of("y")}, strokeDash=[6, 3], strokeWidth=1.5),
        mark("text", text, align="left", baseline="middle", dx=4),
    ]
    return layered(layers, [{"x": x_end, "y": limit, "label": label}])


def shade_layer(begin: float, end: float, x: Axis) -> Spec:
    """A grey strip from top to bottom."""
    encoding = {"x": x.of("begin"), "x2": {"field": "end"}}
    return mark("rect", encoding, [{"begin": begin, "end": end}], color=GREY, opacity=0.14)


def thinned(size: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Which of `size` points to draw: at most `most`, evenly spread, the first and last too."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def points_each(series: int) -> int:
    """How many points each of so many lines may have."""
    return max(20, min(MOST_POINTS, MOST_ROWS // max(1, series)))


def is_marked(position: int, size: int, start: float) -> int:
    """1 where a point has a marker, or 0; `start` in [0, 1) shifts those of a line."""
    every = max(1, size // MARKERS)
    return int(position % every == int(start * every))
