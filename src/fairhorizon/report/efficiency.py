"""Time to make lists for all users, compared with what the paper reports."""

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from matplotlib.figure import Figure
from rich.console import Group

from fairhorizon.files import write_copies, written_together
from fairhorizon.report import grid
from fairhorizon.report.figures import COLOURS, GREY, save_figure, style
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.page import (
    Section,
    chart_section,
    commands_section,
    verbatim,
    write_page,
)
from fairhorizon.report.paper import paper_hours
from fairhorizon.report.tables import MISSING
from fairhorizon.results.studies import EfficiencyRow

HOUR = 3600
INTRO = (
    "How long it takes to make a list of {length} for every user on one thread: fairness of "
    "exposure over more and more candidates, compared with a policy that has learned the limit."
)
NOTE = (
    "Lists for all users, on one core. The paper's hours are of another machine and another "
    "program: the ratio shows what is feasible, not which processor is faster."
)
OURS, THEIRS = COLOURS[0], COLOURS[1]


@written_together()
def write_efficiency(
    out: Path,
    rows: Sequence[EfficiencyRow],
    *,
    command: str = "",
    json_file: Path | None = None,
) -> None:
    """efficiency.json for programs, efficiency.png and index.html."""
    content = {"rows": [row.to_json() | {"paper_hours": _hours(row)} for row in rows]}
    save_figure(out / "efficiency.png", efficiency_figure(rows))
    write_page(
        out / "index.html",
        title=f"Efficiency on {rows[0].dataset}",
        intro=INTRO.format(length=rows[0].length),
        sections=[efficiency_section(rows), commands_section([command])],
    )
    write_copies(content, out / "efficiency.json", json_file)


def efficiency_table(rows: Sequence[EfficiencyRow], caption: str = "Time to recommend") -> Group:
    """For a terminal."""
    return Group(grid.terminal(_grid(rows, caption)), NOTE)


def efficiency_markdown(rows: Sequence[EfficiencyRow], caption: str = "") -> str:
    """For GitHub."""
    return f"{grid.markdown(_grid(rows, caption))}\n\n{NOTE}\n"


def efficiency_section(
    rows: Sequence[EfficiencyRow], *, title: str = "Time to recommend"
) -> Section:
    """For a page: bars of a logarithmic scale, and the table."""
    chart = go.Figure()
    labels = [verbatim(_label(row)) for row in rows]
    chart.add_bar(
        y=labels,
        x=[_seconds(row) for row in rows],
        name="here",
        orientation="h",
        marker={"color": OURS},
        text=[duration(_seconds(row)) for row in rows],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra>here</extra>",
    )
    given = [
        (label, hours)
        for label, row in zip(labels, rows, strict=True)
        if (hours := _hours(row)) is not None
    ]
    chart.add_scatter(
        y=[label for label, _ in given],
        x=[hours * HOUR for _, hours in given],
        name="in the paper",
        mode="markers",
        marker={"color": THEIRS, "symbol": "diamond", "size": 11},
        text=[duration(hours * HOUR) for _, hours in given],
        hovertemplate="%{y}: %{text}<extra>in the paper</extra>",
    )
    chart.update_xaxes(type="log", title_text="Seconds, logarithmic", dtick=1)
    chart.update_yaxes(autorange="reversed", automargin=True)
    section = chart_section(title, chart, NOTE, height=140 + 34 * len(rows), hovermode="closest")
    return Section(title, section.html + grid.html(_grid(rows, "")), NOTE)


def efficiency_figure(rows: Sequence[EfficiencyRow]) -> Figure:
    """A bar per row on a logarithmic scale; a diamond where the paper's time would lie."""
    figure = Figure(figsize=(8, 1.4 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    bars = axes.barh(places, [_seconds(row) for row in rows], color=OURS, label="here", height=0.6)
    axes.bar_label(bars, [duration(_seconds(row)) for row in rows], padding=3, fontsize=8)
    given = [(p, hours) for p, row in enumerate(rows) if (hours := _hours(row)) is not None]
    axes.plot(
        [hours * HOUR for _, hours in given],
        [place for place, _ in given],
        color=THEIRS,
        marker="D",
        linestyle="none",
        label="in the paper",
    )
    axes.set_xscale("log")
    axes.set_yticks(places, [_label(row) for row in rows])
    axes.invert_yaxis()
    style(axes, _what(rows))
    axes.set_xlabel("Seconds, logarithmic")
    for seconds, name in ((60, "a minute"), (HOUR, "an hour"), (24 * HOUR, "a day")):
        axes.axvline(seconds, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(
            name,
            (seconds, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, -9),
            textcoords="offset points",
            fontsize=8,
            color=GREY,
        )
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


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


def _grid(rows: Sequence[EfficiencyRow], caption: str) -> Grid:
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
                grid.number(1000 * seconds / row.users),
                Cell(str(row.users), row.users),
                Cell(str(row.length), row.length),
            ]
        )
    return Grid(headings, lines, len(headings) - 2, caption)


def _ratio(value: float) -> Cell:
    return Cell(f"{value:,.0f}" if value >= 10 else f"{value:.2g}", value)
