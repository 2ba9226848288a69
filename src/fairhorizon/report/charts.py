"""Charts, each specified once in Vega-Lite: drawn by the browser on a page, and as a PNG.

Specifications are plain dictionaries. Altair would check them at every step, which made the page
of a long run take twice as long; the tests check them against its schema instead.

A chart is made of panels. On the page each panel is as wide as its column; in the PNG they lie
side by side. What belongs to a method is in rows with its name as `series`: the page's script
hides a series, or highlights it in all panels, by the parameters `hidden` and `focus`.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import vl_convert
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.report.looks import GREY, Look

Row = Mapping[str, Any]
Spec = dict[str, Any]  # of a chart, a layer, a mark or an encoding
VEGA_LITE = "6.4"  # what altair writes and vl-convert draws
MOST_POINTS = 300  # of a line: what a screen can show
MOST_ROWS = 2400  # of all lines of a panel: a page has to stay below 1.5 MB
MARKERS = 8  # on a line: enough to identify it, few enough to see it
WIDTH = 860  # pixels of a PNG, at twice the resolution
LEGEND_WIDTH = WIDTH - 80  # it begins where the first panel does, right of the axis
INK = "#1c2024"
FADED = 0.12  # opacity of what is not in focus

PARAMETERS = [{"name": "hidden", "value": []}, {"name": "focus", "value": ""}]
IS_SHOWN = "indexof(hidden, datum.series) < 0"
IN_FOCUS = "focus == '' || focus == datum.series"
IS_FOCUS = "focus == datum.series"

# for light paper; on the page the style file sets the colours of text, axes and rules
CONFIG: Spec = {
    "font": "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        **{"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12},
        **{"titleFontWeight": "normal", "gridColor": "#dfe3e8", "domain": False, "ticks": False},
        **{"labelPadding": 6, "labelOverlap": True, "titlePadding": 8},
    },
    "title": {
        **{"anchor": "start", "fontSize": 13, "subtitleFontSize": 12, "subtitleColor": "#5b6470"},
        **{"offset": 8, "color": INK},
    },
    "line": {"strokeWidth": 2, "strokeJoin": "round"},
    "text": {"color": INK, "fontSize": 11},
    "rule": {"color": INK},
}
ON_PAGE: Spec = {
    "background": "transparent",
    "autosize": {"type": "fit-x", "contains": "padding"},
}


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


@dataclass(frozen=True)
class Panel:
    """A part of a chart with its own axes."""

    spec: Mapping[str, Any]  # Vega-Lite, without a width
    title: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Chart:
    """Panels under one title, and one legend: the look of each series."""

    template: ClassVar[str] = "chart.html.j2"

    title: str
    panels: Sequence[Panel]
    looks: Mapping[str, Look] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of the legend, if not the names
    reading: str = ""  # how the marks are to be read
    columns: int = 2

    def label(self, series: str) -> str:
        return self.labels.get(series, series)

    def picture(self) -> Spec:
        """The panels side by side above the legend, for a PNG."""
        columns = min(self.columns, len(self.panels))
        width = (WIDTH - 80 * columns) // columns
        title = {"text": self.title, "subtitle": textwrap.wrap(self.reading, 130), "offset": 14}
        panels = {
            "columns": columns,
            "concat": [_pictured(panel, width) for panel in self.panels],
            "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
        }
        legend = [self._legend()] if self.looks else []
        return {
            "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE[0]}.json",
            "config": CONFIG | {"background": "white"},
            "padding": 14,
            "title": title | {"fontSize": 15},
            "params": PARAMETERS,
            "vconcat": [panels, *legend],
        }

    def _legend(self) -> Spec:
        """A swatch and a label for each series, in rows."""
        widest = max(len(self.label(series)) for series in self.looks)
        columns = max(1, LEGEND_WIDTH // (56 + 7 * widest))
        rows = []
        for number, series in enumerate(self.looks):
            x = LEGEND_WIDTH // columns * (number % columns)
            place = {"begin": x, "middle": x + 17, "end": x + 34, "text": x + 42}
            label = {"series": series, "label": self.label(series)}
            rows.append({**label, **place, "row": number // columns})
        looks = by_series(self.looks)
        across = {
            name: {"field": name, "type": "quantitative", "axis": None}
            | {"scale": {"domain": [0, LEGEND_WIDTH]}}
            for name in ("begin", "middle", "text")
        }
        colour, dash, shape = looks["color"], looks["strokeDash"], looks["shape"]
        swatch = {"x": across["begin"], "x2": {"field": "end"}, "color": colour, "strokeDash": dash}
        symbol = {"x": across["middle"], "color": colour, "shape": shape}
        layers = [
            mark("rule", swatch, strokeWidth=2),
            mark("point", symbol, filled=True, opacity=1, size=70),
            mark("text", {"x": across["text"], "text": word("label")}, align="left", fontSize=12),
        ]
        legend = layered(layers, rows) | {"encoding": {"y": {**word("row"), "axis": None}}}
        return legend | {"width": LEGEND_WIDTH, "height": 18 * (rows[-1]["row"] + 1)}

    def png(self) -> bytes:
        return vl_convert.vegalite_to_png(self.picture(), vl_version=VEGA_LITE, scale=2)

    def for_page(self) -> list[str]:
        """The specification of each panel as JSON that a script element can hold."""
        return [
            json.dumps(_compacted({**panel.spec, "width": "container"}), allow_nan=False).replace(
                "<", "\\u003c"
            )
            for panel in self.panels
        ]


def _pictured(panel: Panel, width: int) -> Spec:
    spec = {key: value for key, value in panel.spec.items() if key != "params"}
    if panel.title:
        letters = width // 6
        subtitle = textwrap.wrap(panel.remark, letters)
        shown = textwrap.shorten(panel.title, letters, placeholder="…") or panel.title[:letters]
        spec["title"] = {"text": shown, **({"subtitle": subtitle} if subtitle else {})}
    return spec | {"width": width}


def _compacted(part: Any) -> Any:
    """Rows of data as columns, of which the script of the page makes rows again."""
    if isinstance(part, Mapping):
        whole = {key: _compacted(value) for key, value in part.items()}
        if rows := part.get("data", {}).get("values"):
            whole["data"] = {"values": {key: _column(rows, key) for key in rows[0]}}
        return whole
    return [_compacted(entry) for entry in part] if isinstance(part, list) else part


def _column(rows: Sequence[Row], key: str) -> Any:
    values = [row[key] for row in rows]
    words = list(dict.fromkeys(values))
    if not all(isinstance(word, str) for word in words):
        return values
    numbers = {word: number for number, word in enumerate(words)}
    return {"words": words, "numbers": [numbers[value] for value in values]}


def save_png(path: Path, chart: Chart) -> None:
    """Write a PNG, whole or not at all."""
    picture = chart.png()
    write_atomically(path, lambda temporary: temporary.write_bytes(picture))


def panel(
    layers: Sequence[Spec], *, height: int = 280, title: str = "", remark: str = ""
) -> Panel:
    """Layers over each other; later ones lie on top."""
    return Panel({"height": height, "params": PARAMETERS, "layer": list(layers)}, title, remark)


def mark(kind: str, encoding: Spec, rows: Sequence[Row] | None = None, **look: Any) -> Spec:
    """A layer of marks, with its own rows or those of the layers it is in."""
    spec = {"mark": {"type": kind, **look}, "encoding": encoding}
    return spec if rows is None else {"data": {"values": list(rows)}, **spec}


def layered(layers: Sequence[Spec], rows: Sequence[Row], *, hides: bool = False) -> Spec:
    """Layers of the same rows; hides: those of the series that the reader hides."""
    transform = {"transform": [{"filter": IS_SHOWN}]} if hides else {}
    return {"data": {"values": list(rows)}, **transform, "layer": list(layers)}


def word(name: str, **more: Any) -> Spec:
    """The encoding of a field that holds names."""
    return {"field": name, "type": "nominal", **more}


def by_series(looks: Mapping[str, Look]) -> dict[str, Spec]:
    """Encodings that give each series its look; the legend is drawn apart, for all panels."""
    names, own = list(looks), list(looks.values())
    ranges: dict[str, list[Any]] = {
        "color": [look.colour for look in own],
        "shape": [look.shape for look in own],
        "strokeDash": [list(look.dashes) or [1, 0] for look in own],
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
    looks: Mapping[str, Spec],
    x: Axis,
    y: Axis,
    *,
    more: Sequence[Spec] = (),
) -> Spec:
    """Lines of rows (series, x, y, marked), a band between `low` and `high` if rows have them.

    Every point can be pointed at; those that are marked are drawn.
    """
    place, colour = {"x": x.of("x"), "y": y.of("y")}, {"color": looks["color"]}
    tooltip = [word("series", title=" "), x.tooltip("x"), y.tooltip("y"), *more]
    line = place | colour | {"strokeDash": looks["strokeDash"], "opacity": in_focus()}
    point = place | colour | {"shape": looks["shape"], "tooltip": tooltip}
    point["opacity"] = if_(f"datum.marked && ({IN_FOCUS})", 1, 0)
    layers = [mark("line", line), mark("point", point, filled=True, size=55)]
    if "low" in rows[0]:
        edges = {"x": x.of("x"), "y": y.of("low"), "y2": {"field": "high"}}
        layers.insert(0, mark("area", edges | colour | {"opacity": in_focus(0.18)}))
    return layered(layers, rows, hides=True)


def limit_layer(limit: float, x_end: float, label: str, x: Axis, y: Axis) -> Spec:
    """A dashed line across the panel, and its label above its right end."""
    text = {"x": x.of("x"), "y": y.of("y"), "text": word("label")}
    layers = [
        mark("rule", {"y": y.of("y")}, strokeDash=[6, 3], strokeWidth=1.5),
        mark("text", text, align="right", baseline="bottom", dy=-3),
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
    """1 where a point has a marker, or 0; `start` in [0, 1) shifts them, or they would lie in line."""
    every = max(1, size // MARKERS)
    return int(position % every == int(start * every))
