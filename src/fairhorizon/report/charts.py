"""Charts, each specified once in Vega-Lite: drawn by the browser on a page, and as a PNG.

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

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.report.looks import GREY, Look

Row = Mapping[str, Any]
Layer = alt.Chart | alt.LayerChart
VEGA_LITE = "6.4"  # what altair writes and vl-convert draws
MOST_POINTS = 500  # of a line: what a screen can show
MOST_ROWS = 6000  # of a chart: what a page can hold
MARKERS = 8  # on a line: enough to identify it, few enough to see it
WIDTH = 860  # pixels of a PNG, at twice the resolution
LEGEND_WIDTH = WIDTH - 80  # it begins where the first panel does, right of the axis
INK = "#1c2024"
FADED = 0.12  # opacity of what is not in focus

HIDDEN = alt.param(name="hidden", value=[])
FOCUS = alt.param(name="focus", value="")
IS_SHOWN = "indexof(hidden, datum.series) < 0"
IN_FOCUS = "focus == '' || focus == datum.series"
IS_FOCUS = "focus == datum.series"

# for light paper; on the page the style file sets the colours of text, axes and rules
CONFIG: dict[str, Any] = {
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
ON_PAGE: dict[str, Any] = {
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

    def scale(self) -> alt.Scale:
        if self.domain is not None:
            return alt.Scale(domain=list(self.domain), nice=False, zero=False)
        return alt.Scale(zero=self.zero, nice=not self.whole)

    def axis(self) -> alt.Axis:
        whole = {"tickMinStep": 1, "format": "d"} if self.whole else {}
        labels = {"format": self.labels} if self.labels else {}
        title = self.title if self.is_titled else None
        return alt.Axis(title=title, tickCount=5, **whole, **labels)

    def x(self, name: str = "x") -> alt.X:
        return alt.X(name, type="quantitative", scale=self.scale(), axis=self.axis())

    def y(self, name: str = "y") -> alt.Y:
        return alt.Y(name, type="quantitative", scale=self.scale(), axis=self.axis())

    def tooltip(self, name: str) -> alt.Tooltip:
        return alt.Tooltip(
            name, type="quantitative", title=self.title, format="d" if self.whole else self.format
        )


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

    def picture(self) -> dict[str, Any]:
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
            "params": [{"name": "hidden", "value": []}, {"name": "focus", "value": ""}],
            "vconcat": [panels, *legend],
        }

    def _legend(self) -> dict[str, Any]:
        """A swatch and a label for each series, in rows."""
        widest = max(len(self.label(series)) for series in self.looks)
        columns = max(1, LEGEND_WIDTH // (56 + 7 * widest))
        rows = [
            {"series": series, "label": self.label(series), "row": number // columns}
            | {"x": LEGEND_WIDTH // columns * (number % columns)}
            for number, series in enumerate(self.looks)
        ]
        encodings = by_series(self.looks)
        across = {"type": "quantitative", "scale": alt.Scale(domain=[0, LEGEND_WIDTH]), "axis": None}
        base = alt.Chart().transform_calculate(end="datum.x + 34", middle="datum.x + 17")
        base = base.transform_calculate(begin="datum.x + 42")
        base = base.encode(y=alt.Y("row:O", axis=None))
        colour = encodings["color"]
        swatch = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("x", **across), x2="end", color=colour, strokeDash=encodings["strokeDash"]
        )
        symbol = base.mark_point(filled=True, opacity=1, size=70).encode(
            x=alt.X("middle", **across), color=colour, shape=encodings["shape"]
        )
        text = base.mark_text(align="left", fontSize=12).encode(
            x=alt.X("begin", **across), text="label:N"
        )
        height = 18 * (rows[-1]["row"] + 1)
        chart = alt.layer(swatch, symbol, text, data=data(rows))
        return _specified(chart.properties(width=LEGEND_WIDTH, height=height))

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


def _pictured(panel: Panel, width: int) -> dict[str, Any]:
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


def data(rows: Sequence[Row]) -> alt.InlineData:
    return alt.InlineData(values=[dict(row) for row in rows])


def panel(
    layers: Sequence[Layer], *, height: int = 280, title: str = "", remark: str = ""
) -> Panel:
    """Layers over each other; later ones lie on top."""
    chart = alt.layer(*layers).properties(height=height).add_params(HIDDEN, FOCUS)
    return Panel(_specified(chart), title, remark)


def _specified(chart: alt.LayerChart) -> dict[str, Any]:
    """In Vega-Lite, with its data inside."""
    with alt.data_transformers.enable(consolidate_datasets=False):
        spec = chart.to_dict()
    return {key: value for key, value in spec.items() if key not in ("config", "$schema")}


def by_series(looks: Mapping[str, Look]) -> dict[str, Any]:
    """Encodings that give each series its look; the legend is drawn apart, for all panels."""
    names, own = list(looks), list(looks.values())

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    dashes = [list(look.dashes) or [1, 0] for look in own]
    return {
        "color": alt.Color("series:N", scale=scale([look.colour for look in own]), legend=None),
        "shape": alt.Shape("series:N", scale=scale([look.shape for look in own]), legend=None),
        "strokeDash": alt.StrokeDash("series:N", scale=scale(dashes), legend=None),
    }


def in_focus(opacity: float = 1.0) -> Any:
    return alt.condition(IN_FOCUS, alt.value(opacity), alt.value(opacity * FADED))


def lines(
    rows: Sequence[Row],
    encodings: Mapping[str, Any],
    x: Axis,
    y: Axis,
    *,
    more: Sequence[alt.Tooltip] = (),
    width: float = 2,
) -> alt.LayerChart:
    """Lines of rows (series, x, y, marked), a band between `low` and `high` if rows have them.

    Every point can be pointed at; those that are marked are drawn.
    """
    colour, shape, dash = (encodings[name] for name in ("color", "shape", "strokeDash"))
    is_drawn = f"datum.marked && ({IN_FOCUS})"
    line = (
        alt.Chart()
        .mark_line(strokeWidth=width)
        .encode(x=x.x(), y=y.y(), color=colour, strokeDash=dash, opacity=in_focus())
    )
    points = (
        alt.Chart()
        .mark_point(filled=True, size=55)
        .encode(
            x=x.x(),
            y=y.y(),
            color=colour,
            shape=shape,
            opacity=alt.condition(is_drawn, alt.value(1), alt.value(0)),
            tooltip=[alt.Tooltip("series:N", title=" "), x.tooltip("x"), y.tooltip("y"), *more],
        )
    )
    layers = [line, points]
    if any(row.get("low") != row.get("high") for row in rows):
        area = alt.Chart().mark_area()
        edges = {"y": y.y("low"), "y2": alt.Y2("high")}
        layers.insert(0, area.encode(x=x.x(), color=colour, opacity=in_focus(0.18), **edges))
    return alt.layer(*layers, data=data(rows)).transform_filter(IS_SHOWN)


def limit_layers(limit: float, x_end: float, label: str, x: Axis, y: Axis) -> list[alt.Chart]:
    """A dashed line across the panel, and its label above its right end."""
    rows = [{"x": x_end, "y": limit, "label": label}]
    rule = alt.Chart(data(rows)).mark_rule(strokeDash=[6, 3], strokeWidth=1.5).encode(y=y.y())
    text = (
        alt.Chart(data(rows))
        .mark_text(align="right", baseline="bottom", dy=-3)
        .encode(x=x.x(), y=y.y(), text="label:N")
    )
    return [rule, text]


def shade_layer(begin: float, end: float, x: Axis) -> alt.Chart:
    """A grey strip from top to bottom."""
    rows = [{"begin": begin, "end": end}]
    return (
        alt.Chart(data(rows))
        .mark_rect(color=GREY, opacity=0.14)
        .encode(x=x.x("begin"), x2="end:Q")
    )


def thinned(size: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Which of `size` points to draw: at most `most`, evenly spread, the first and last too."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def points_each(series: int) -> int:
    """How many points each of so many lines may have."""
    return max(20, min(MOST_POINTS, MOST_ROWS // max(1, series)))


def is_marked(position: int, size: int, start: float) -> bool:
    """Whether a point has a marker; `start` in [0, 1) shifts them, or they would lie in line."""
    every = max(1, size // MARKERS)
    return bool(position % every == int(start * every))
