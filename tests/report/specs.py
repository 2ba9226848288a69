"""Reading charts: the marks of a specification, and the charts of a page."""

import json
import re

import altair


def layers(spec, rows=None):
    """All marks of a specification, inner ones too, each with the rows it draws."""
    rows = spec.get("data", {}).get("values", rows)
    if "mark" in spec:
        yield spec, rows
    for inner in spec.get("layer", ()):
        yield from layers(inner, rows)


def marks(panel, kind):
    """The layers of one kind of mark, as pairs of layer and rows."""
    return [(mark, rows) for mark, rows in layers(panel.spec) if mark["mark"]["type"] == kind]


def line_of(panel, series, kind="line"):
    """The points of a series."""
    ((_, rows), *_) = marks(panel, kind)
    return [(row["x"], row["y"]) for row in rows if row["series"] == series]


def colours(spec):
    """The colour of each series by a specification."""
    found = {}
    for mark, _ in layers(spec):
        scale = mark["encoding"].get("color", {}).get("scale")
        if scale:
            found |= dict(zip(scale["domain"], scale["range"], strict=True))
    return found


def charts_of(html):
    """The specifications that a page holds, with their data as columns."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return [json.loads(text) for text in found]


def shortened(part):
    """A specification with the first row of all data: a schema does not need more."""
    if isinstance(part, dict):
        found = {key: shortened(value) for key, value in part.items()}
        if "values" in found.get("data", {}):
            found["data"] = {"values": part["data"]["values"][:1]}
        return found
    return [shortened(entry) for entry in part] if isinstance(part, list) else part


def check_schema(chart):
    """Fails if a chart is not valid Vega-Lite, by the schema that altair comes with."""
    altair.Chart.from_dict(shortened(chart.picture()), validate=True)
