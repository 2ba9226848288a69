"""Overshoot, unused budget and load of a simulated fleet, by the size of leases."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from fairhorizon.report import charts
from fairhorizon.report.charts import PALETTE, SHAPES, Style
from fleet_simulation import Outcome

PANELS = {
    "Most over the share, showings": lambda one: one.overshoot,
    "Unused budget, %": lambda one: 100 * one.unused,
    "Lock held, % of the time": lambda one: 100 * one.utilisation,
}


def draw(
    path: Path, found: Mapping[str, Mapping[str, Sequence[Outcome]]], sizes: Sequence[int]
) -> None:
    """A panel for each figure, a line for each scenario; the rule's as a dashed line."""
    looks = {
        name: Style(PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)])
        for number, name in enumerate(found)
    }
    x = {
        **{"field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False}},
        "axis": {"title": "Lease, showings", "format": "~s", "values": list(sizes)},
    }
    panels = []
    for title, value in PANELS.items():
        y = {"field": "y", "type": "quantitative", "axis": {"title": None}}
        series = charts.by_series(looks)
        rows = [
            {"series": name, "x": size, "y": mean(map(value, runs[f"{size:,}"]))}
            for name, runs in found.items()
            for size in sizes
        ]
        rule = [
            {"series": name, "y": mean(map(value, runs["rule"]))} for name, runs in found.items()
        ]
        layers = [
            charts.mark("line", {"x": x, "y": y, "color": series["color"]}, rows),
            charts.mark(
                "point",
                {"x": x, "y": y, "color": series["color"], "shape": series["shape"]},
                rows,
                **{"filled": True, "size": 55, "opacity": 1},
            ),
            charts.mark(
                "rule", {"y": y, "color": series["color"]}, rule, strokeDash=[4, 4], opacity=0.7
            ),
        ]
        panels.append(charts.panel(layers, title=title))
    reading = "Mean over seeds. Lines: leases of one size. Dashed: the size by the service's rule."
    title = "What the size of a lease changes"
    charts.save_png(path, charts.Chart(title, panels, looks, reading=reading, columns=3))
