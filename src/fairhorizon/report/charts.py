"""Charts, each specified once in Vega-Lite: drawn by the browser on a page, and as a PNG.

Specifications are plain dictionaries. Altair would check them at every step, which made the page
of a long run take twice as long; the tests check them against its schema instead.

A chart is made of panels. On the page each panel is as wide as its column; in the PNG they lie
side by side.
"""

import json
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import vl_convert
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report.marks import (
    PARAMETERS,
    Axis,
    Row,
    Spec,
    by_series,
    is_marked,
    layered,
    lines,
    mark,
    points_each,
    thinned,
    word,
)
from fairhorizon.report.styles import GREY, Style
from fairhorizon.report.tables import group_items
from fairhorizon.vocabulary import POPULAR

VEGA_LITE = "6.4"  # what altair writes and vl-convert draws
WIDTH = 860  # pixels of a PNG, at twice the resolution
SHARPNESS = 2.0  # pixels of a PNG for one of the page
LEGEND_WIDTH = WIDTH - 80  # it begins where the first panel does, right of the axis
INK = "#1c2024"

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
        """The panels side by side above the legend, for a PNG."""
        columns = min(self.columns, len(self.panels))
        width = (WIDTH - 80 * columns) // columns
        title = {"text": self.title, "subtitle": textwrap.wrap(self.reading, 130), "offset": 14}
        panels = {
            **{"columns": columns, "bounds": "flush", "spacing": {"row": 110, "column": 76}},
            "concat": [_pictured(panel, width) for panel in self.panels],
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
        drawn = vl_convert.vegalite_to_png(self.picture(), vl_version=VEGA_LITE, scale=SHARPNESS)
        return _smaller(drawn)

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
    words = list(dict.fromkeys(values))
    if not all(isinstance(word, str) for word in words):
        return values
    numbers = {word: number for number, word in enumerate(words)}
    return {"words": words, "numbers": [numbers[value] for value in values]}


def save_png(path: Path, chart: Chart) -> None:
    """Write a PNG, whole or not at all."""
    picture = chart.png()
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


def exposure_label(
    label: str, counts: NDArray[Any], members: NDArray[np.bool_], group: str = POPULAR
) -> str:
    """A curve's entry in the legend: its Gini index and what the group receives."""
    total = counts.sum()
    if not total:
        return f"{label}: Gini {gini(counts):.1%}, nothing shown"
    share = counts[members].sum() / total
    return f"{label}: Gini {gini(counts):.1%}, {group_items(group)} {share:.1%}"
