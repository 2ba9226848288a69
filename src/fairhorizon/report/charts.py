"""Charts, each specified once in Vega-Lite: drawn by the browser on a page, and as a PNG.

Specifications are plain dictionaries. Altair would check them at every step, which made the page
of a long run take twice as long; the tests check them against its schema instead.

A chart is made of panels. On the page each panel is as wide as its column; in the PNG they lie
side by side.
"""

import json
import textwrap
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report.tables import group_items
from fairhorizon.vocabulary import POPULAR, MethodName

# ---- Styles: colour and shape of a method by its model, dashes by its re-ranker ------------------

# Six of Okabe and Ito for colour-blind readers, then two more; all can be seen on white and black.
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#8A63D2", "#A0522D"),
)
GREY = "#808080"  # of what is no method; can be read on white and on black
BROKEN = "#C2185B"  # of a limit that is broken; no method has it

# Paths in a square from -1 to 1; seven, so that with eight colours no two of 56 models share both.
SHAPES = (
    "M-.8 0a.8 .8 0 1 0 1.6 0a.8 .8 0 1 0 -1.6 0z",
    "M-.7 -.7h1.4v1.4h-1.4z",
    "M0 -.8L.9 .8h-1.8z",
    "M0 -1L1 0L0 1L-1 0z",
    "M0 .8L-.9 -.8h1.8z",
    "M-.3 -1h.6v.7h.7v.6h-.7v.7h-.6v-.7h-.7v-.6h.7z",
    "M-.6 -1L0 -.4L.6 -1L1 -.6L.4 0L1 .6L.6 1L0 .4L-.6 1L-1 .6L-.4 0L-1 -.6z",
)
# Lengths of dash and gap in pixels; solid first.
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2))


@dataclass(frozen=True)
class Style:
    """How a method is drawn, in every chart of a page."""

    colour: str
    shape: str = SHAPES[0]  # an SVG path in a square from -1 to 1
    dashes: tuple[int, ...] = ()


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name: `ease` and `ease+quota` share colour and shape, not the dashes.

    The same names give the same styles; up to 56 models with 6 re-rankers no two are alike.
    """
    parts = {name: MethodName.split(name) for name in names}
    models = list(dict.fromkeys(part.model for part in parts.values()))
    variants = list(dict.fromkeys((part.reranker, part.level) for part in parts.values()))
    variants.sort(key=lambda variant: variant != (None, None))  # what is plain is solid
    result = {}
    for name, part in parts.items():
        number = models.index(part.model)
        dashes = DASHES[variants.index((part.reranker, part.level)) % len(DASHES)]
        result[name] = Style(PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)], dashes)
    return result


# ---- Marks: parts of a specification in Vega-Lite ------------------------------------------------

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
    # Points without a marker are transparent, and still can be pointed at.
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


# ---- Charts --------------------------------------------------------------------------------------

VEGA_LITE = "6.4"  # what altair writes and vl-convert draws
WIDTH = 860  # pixels of a PNG, at twice the resolution
SHARPNESS = 2.0  # pixels of a PNG for one of the page
LEGEND_WIDTH = WIDTH - 80  # it begins where the first panel does, right of the axis
INK = "#1c2024"

# For light paper; on the page the style file sets the colours of text, axes and rules.
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

EVEN = "all items alike"
LOG = "training log"
EXPOSURE_READING = (
    "The nearer a curve is to the dashed line, the more evenly items are shown; the Gini index is "
    "twice the area between the two."
)


@dataclass(frozen=True)
class Plot:
    """A part of a chart with its own axes."""

    spec: Mapping[str, Any]  # Vega-Lite, without a width
    title: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Chart:
    """Panels under one title, and one legend: the style of each series."""

    template: ClassVar[str] = "chart.html.j2"

    title: str
    panels: Sequence[Plot]
    styles: Mapping[str, Style] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of the legend, if not the names
    reading: str = ""  # how the marks are to be read
    hint: str = ""  # what a reader can do, on the page
    columns: int = 2

    def label(self, series: str) -> str:
        return self.labels.get(series, series)

    def picture(self) -> Spec:
        """The panels side by side above the legend, for a file."""
        columns = min(self.columns, len(self.panels))
        width = (WIDTH - 80 * columns) // columns
        title = {"text": self.title, "subtitle": textwrap.wrap(self.reading, 130), "offset": 14}
        panels = {
            **{"columns": columns, "bounds": "flush", "spacing": {"row": 110, "column": 76}},
            "concat": [_pictured(panel, width) for panel in self.panels],
            # Panels may draw different series, which would else share one scale of colours.
            "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
        }
        legend = [self._legend()] if self.styles else []
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
        widest = max(len(self.label(series)) for series in self.styles)
        columns = max(1, LEGEND_WIDTH // (56 + 7 * widest))
        rows: list[Spec] = []
        for number, series in enumerate(self.styles):
            x = LEGEND_WIDTH // columns * (number % columns)
            place = {"begin": x, "middle": x + 17, "end": x + 34, "text": x + 42}
            label = {"series": series, "label": self.label(series)}
            rows.append({**label, **place, "row": number // columns})
        styles = by_series(self.styles)
        across = {
            name: {"field": name, "type": "quantitative", "axis": None}
            | {"scale": {"domain": [0, LEGEND_WIDTH]}}
            for name in ("begin", "middle", "text")
        }
        colour, dash, shape = styles["color"], styles["strokeDash"], styles["shape"]
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
        # It takes long to import, and the service needs colours alone.
        import vl_convert

        drawn = vl_convert.vegalite_to_png(self.picture(), vl_version=VEGA_LITE, scale=SHARPNESS)
        return _smaller(drawn)

    def svg(self) -> bytes:
        import vl_convert

        return vl_convert.vegalite_to_svg(self.picture(), vl_version=VEGA_LITE).encode()

    def pdf(self) -> bytes:
        import vl_convert

        return vl_convert.vegalite_to_pdf(self.picture(), vl_version=VEGA_LITE)

    def for_page(self) -> list[str]:
        """The specification of each panel as JSON that a script element can hold."""
        return [
            json.dumps(
                _compacted({**panel.spec, "width": "container"}),
                allow_nan=False,
                separators=(",", ":"),
            ).replace("<", "\\u003c")
            for panel in self.panels
        ]


def _pictured(panel: Plot, width: int) -> Spec:
    spec = {key: value for key, value in panel.spec.items() if key != "params"}
    if panel.title:
        letters = width // 6
        subtitle = textwrap.wrap(panel.remark, letters)
        shown = textwrap.shorten(panel.title, letters, placeholder="…") or panel.title[:letters]
        spec["title"] = {"text": shown, **({"subtitle": subtitle} if subtitle else {})}
    return spec | {"width": width}


def _smaller(png: bytes) -> bytes:
    """The same picture, a third as large: what draws it compresses in haste."""
    # The chunks of a PNG: length, kind, content, checksum. All content is one compressed stream,
    # whatever the number of IDAT chunks that it is cut into.
    kept, content, position = [], b"", 8
    while position < len(png):
        size = int.from_bytes(png[position : position + 4], "big")
        chunk = png[position : position + 12 + size]
        if chunk[4:8] == b"IDAT":
            content += chunk[8:-4]
        else:
            kept.append(chunk)
        position += len(chunk)
    body = b"IDAT" + zlib.compress(zlib.decompress(content), 9)
    length, check = (len(body) - 4).to_bytes(4, "big"), zlib.crc32(body).to_bytes(4, "big")
    return b"".join([png[:8], *kept[:-1], length + body + check, kept[-1]])


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
    # Names are stored once, and as numbers in every row.
    words = list(dict.fromkeys(values))
    if not all(isinstance(word, str) for word in words):
        return values
    numbers = {word: number for number, word in enumerate(words)}
    return {"words": words, "numbers": [numbers[value] for value in values]}


def save_figure(folder: Path, name: str, chart: Chart) -> None:
    """Write NAME.png, NAME.svg and NAME.pdf, each whole or not at all."""
    pictures = {"png": chart.png, "svg": chart.svg, "pdf": chart.pdf}
    for suffix, draw in pictures.items():
        save_picture(folder / f"{name}.{suffix}", draw())


def save_picture(path: Path, picture: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(picture))


def panel(layers: Sequence[Spec], *, height: int = 280, title: str = "", remark: str = "") -> Plot:
    """Layers over each other; later ones lie on top."""
    return Plot({"height": height, "params": PARAMETERS, "layer": list(layers)}, title, remark)


def exposure_chart(
    counts_by_label: Mapping[str, NDArray[Any]],
    members: NDArray[np.bool_],
    styles: Mapping[str, Style],
    group: str = POPULAR,
) -> Chart:
    """Lorenz curves of exposure; the legend gives the Gini index and the share of the group."""
    drawn = {EVEN: Style(GREY, dashes=(6, 3))}
    drawn |= {label: styles.get(label, Style(GREY)) for label in counts_by_label}
    labels = {EVEN: EVEN} | {
        label: exposure_label(label, counts, members, group)
        for label, counts in counts_by_label.items()
    }
    rows = [{"series": EVEN, "x": end, "y": end, "marked": 0} for end in (0.0, 1.0)]
    for position, (label, counts) in enumerate(counts_by_label.items()):
        catalogue, exposure = lorenz_curve(counts)
        kept = thinned(counts.size + 1, points_each(len(counts_by_label)))
        start = position / len(counts_by_label)
        rows += [
            {"series": label, "x": round(float(catalogue[i]), 5), "y": round(float(exposure[i]), 5)}
            | {"marked": is_marked(number, len(kept), start)}
            for number, i in enumerate(kept)
        ]
    y = Axis("Share of all exposure", domain=(0.0, 1.0), format=".1%", labels=".0%")
    x = replace(y, title="Share of the catalogue, least shown items first")
    drawing = panel([lines(rows, by_series(drawn), x, y)], height=420)
    title = "Distribution of exposure"
    return Chart(title, [drawing], drawn, labels, EXPOSURE_READING, columns=1)


def by_rank_chart(shares: Mapping[str, Sequence[float]], styles: Mapping[str, Style]) -> Chart:
    """A line per series: its share of the showings at ranks 1, 2, ..."""
    rows = [
        {"series": name, "x": rank, "y": round(share, 5), "marked": 1}
        for name, own in shares.items()
        for rank, share in enumerate(own, start=1)
    ]
    longest = max(map(len, shares.values()))
    x = Axis("Rank", domain=(1, max(2, longest)), whole=True)
    y = Axis("Share of showings at this rank", domain=(0.0, 1.0), format=".1%", labels=".0%")
    drawing = panel([lines(rows, by_series(styles), x, y)], height=320)
    return Chart("Exposure by rank", [drawing], styles, columns=1)


def exposure_label(
    label: str, counts: NDArray[Any], members: NDArray[np.bool_], group: str = POPULAR
) -> str:
    """A curve's entry in the legend: its Gini index and what the group receives."""
    total = counts.sum()
    if not total:
        return f"{label}: Gini {gini(counts):.1%}, nothing shown"
    share = counts[members].sum() / total
    return f"{label}: Gini {gini(counts):.1%}, {group_items(group)} {share:.1%}"
