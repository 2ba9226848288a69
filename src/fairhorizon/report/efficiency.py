"""Time to make lists for all users, compared with what the paper reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group

from fairhorizon.files import write_copies, written_together
from fairhorizon.report import charts
from fairhorizon.report.charts import GREY, SHAPES, Chart, Spec, save_figure, styles_of
from fairhorizon.report.comparison import paper_hours
from fairhorizon.report.page import Page, Section, commands_section
from fairhorizon.report.tables import MISSING, Cell, Grid, number_cell, terminal, write_grids
from fairhorizon.studies.efficiency import EfficiencyRow

HOUR = 3600
INTRO = (
    "How long it takes to make a list of {length} for every user on one thread: fairness of "
    "exposure over more and more candidates, compared with a policy that has learned the limit."
)
NOTE = (
    "Lists for all users, on one core. The paper's hours are of another machine and another "
    "program: the ratio shows what is feasible, not which processor is faster."
)
READING = "Bars: here, in the colour of the method. Grey diamonds: in the paper."
DIAMOND = SHAPES[3]


@written_together()
def write_efficiency(
    out: Path,
    rows: Sequence[EfficiencyRow],
    *,
    command: str = "",
    json_file: Path | None = None,
    made_by: Mapping[str, Any] | None = None,
) -> None:
    """efficiency.json, .csv and .tex, index.html, and the figure as PNG, SVG and PDF."""
    content: dict[str, Any] = {
        "rows": [row.to_json() | {"paper_hours": _hours(row)} for row in rows],
        **({"made_by": made_by} if made_by else {}),
    }
    write_grids(out, {"efficiency": efficiency_grid(rows, "Time to recommend")})
    save_figure(out, "efficiency", efficiency_chart(rows))
    page = Page(
        title=f"Efficiency on {rows[0].dataset}",
        finding=finding(rows),
        intro=INTRO.format(length=rows[0].length),
        sections=[efficiency_section(rows), commands_section([command])],
    )
    page.write(out / "index.html")
    write_copies(content, out / "efficiency.json", json_file)


def efficiency_table(rows: Sequence[EfficiencyRow], caption: str = "Time to recommend") -> Group:
    """For a terminal."""
    return Group(terminal(efficiency_grid(rows, caption)), NOTE)


def finding(rows: Sequence[EfficiencyRow]) -> str:
    """The fastest and the slowest; nothing is said about limits, which have no part in it."""
    fast, slow = (choose(rows, key=_seconds) for choose in (min, max))
    found = f"{_label(fast)}, takes {duration(_seconds(fast))} for all {fast.users} users"
    if fast is not slow:
        times = _seconds(slow) / _seconds(fast)
        found += f"; {_label(slow)}, is the slowest with {duration(_seconds(slow))}, "
        found += f"{_ratio(times).text} times as long"
    return f"{found}. Only time was measured, no limit was tested."


def efficiency_section(
    rows: Sequence[EfficiencyRow], *, title: str = "Time to recommend"
) -> Section:
    """For a page: bars of a logarithmic scale, and the table."""
    return Section(title, [efficiency_chart(rows), efficiency_grid(rows, "")], NOTE)


def efficiency_chart(rows: Sequence[EfficiencyRow]) -> Chart:
    """A bar per row on a logarithmic scale; a diamond where the paper's time would lie."""
    styles = styles_of(row.method for row in rows)
    values: list[Spec] = [
        {"series": row.method, "label": _label(row), "seconds": _seconds(row)}
        | {"time": duration(_seconds(row))}
        for row in rows
    ]
    theirs: list[Spec] = [
        {"label": _label(row), "seconds": hours * HOUR, "time": duration(hours * HOUR)}
        for row in rows
        if (hours := _hours(row)) is not None
    ]
    low, high = (edge(row["seconds"] for row in (*values, *theirs)) for edge in (min, max))
    # A logarithmic scale has no 0 for bars to begin at; on the right, room for their texts.
    domain = [low / 3, high * 8]
    scale = {"type": "log", "domain": domain, "nice": False}
    axis = {"title": "Seconds, logarithmic", "format": "~g", "tickCount": 6}
    x = {"field": "seconds", "type": "quantitative", "scale": scale, "axis": axis}
    order = [row["label"] for row in values]
    y = charts.word("label", sort=order, axis={"title": None, "labelLimit": 220, "grid": False})
    tooltip = [charts.word("label", title=" "), charts.word("time", title="Time")]
    colour = charts.by_series(styles)["color"]
    bar = {"x": x, "x2": {"datum": domain[0]}, "y": y, "color": colour, "tooltip": tooltip}
    layers = [
        charts.layered(
            [
                charts.mark("bar", bar, size=18),
                charts.mark(
                    "text", {"x": x, "y": y, "text": charts.word("time")}, align="left", dx=5
                ),
            ],
            values,
        )
    ]
    if theirs:
        point = {"x": x, "y": y, "tooltip": tooltip}
        style = {"shape": DIAMOND, "filled": True, "size": 130, "color": GREY, "opacity": 1}
        layers.append(charts.mark("point", point, theirs, **style))
    panel = charts.panel(layers, height=30 * len(rows) + 20)
    return Chart(_what(rows), [panel], reading=READING if theirs else "", columns=1)


def duration(seconds: float) -> str:
    """In a readable unit: 0.32 s, 45 s, 12 min, 6.5 h."""
    for size, unit in ((HOUR, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _seconds(row: EfficiencyRow) -> float:
    """The mean, which exists because all measurements are finite."""
    assert row.seconds.mean is not None
    return row.seconds.mean


def _hours(row: EfficiencyRow) -> float | None:
    """The hours that the paper reports for the same."""
    return paper_hours(row.dataset, row.step, row.candidates)


def _label(row: EfficiencyRow) -> str:
    return f"{row.method}, {_candidates(row)}"


def _candidates(row: EfficiencyRow) -> str:
    return "all items" if row.candidates is None else f"{row.candidates} items"


def _what(rows: Sequence[EfficiencyRow]) -> str:
    """Lists of 100 for 943 users, where all rows agree on it."""
    asked = {(row.length, row.users) for row in rows}
    if len(asked) > 1:
        return "Time to recommend"
    length, users = asked.pop()
    return f"Time to recommend {length} items to each of {users} users"


def efficiency_grid(rows: Sequence[EfficiencyRow], caption: str = "Time to recommend") -> Grid:
    headings = ("Method", "From", "Time", "Paper", "Ratio", "ms/user", "Users", "Length")
    lines = []
    for row in rows:
        seconds, hours = _seconds(row), _hours(row)
        theirs = None if hours is None else hours * HOUR
        lines.append(
            [
                Cell(row.method),
                Cell(_candidates(row)),
                Cell(duration(seconds), seconds),
                Cell(MISSING if theirs is None else duration(theirs), theirs),
                Cell(MISSING) if theirs is None else _ratio(theirs / seconds),
                number_cell(1000 * seconds / row.users),
                Cell(str(row.users), row.users),
                Cell(str(row.length), row.length),
            ]
        )
    return Grid(headings, lines, len(headings) - 2, caption)


def _ratio(value: float) -> Cell:
    return Cell(f"{value:,.0f}" if value >= 10 else f"{value:.2g}", value)
