"""Who stays in a long run of users who can leave: a table for page, terminal and Markdown."""

import json

import polars as pl

from fairhorizon.report import grid
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.long_term_table import Column, number_cell, seeds_of
from fairhorizon.report.over_time import methods_of
from fairhorizon.report.page import Section

PREFIX = "here of "  # in the notes of a step: the share of a group of users that is still there
COLUMNS = [
    Column("likes", "Likes", "per user who was there at the start", "more", 1),
    Column("showings", "Showings", "per user who was there at the start", None, 1, 1),
    Column(
        "here", "Still there", "share of the users at the last step, in percent", "more", 100, 1
    ),
]
NOTE = (
    "Likes and showings are per user who was there at the start, since the run began. Still there: "
    "in percent, the users who have not left; light, medium and heavy are three equal parts of "
    "them, by how much they took in training. ± is the standard deviation over seeds."
)


def can_leave(steps: pl.DataFrame) -> bool:
    """Whether somebody has left in any of the runs."""
    known = steps["here"].fill_null(1.0) if "here" in steps.columns else pl.Series([1.0])
    return bool((known < 1).any())


def staying_section(steps: pl.DataFrame) -> Section:
    """For a page."""
    return Section("Who stays", [staying_grid(steps)], NOTE)


def staying_markdown(steps: pl.DataFrame) -> str:
    """For GitHub."""
    return f"Who stays\n\n{grid.markdown(staying_grid(steps))}\n\n{NOTE}\n"


def staying_grid(steps: pl.DataFrame) -> Grid:
    """The methods at the last step."""
    last = steps.filter(pl.col("step") == pl.col("step").max().over("method", "seed"))
    notes = [json.loads(text) if text else {} for text in last["notes"]]
    names = [name for name in dict.fromkeys(n for note in notes for n in note) if PREFIX in name]
    groups = [
        Column(name, name.removeprefix(PREFIX).capitalize(), "", "more", 100, 1) for name in names
    ]
    known = last.with_columns(
        pl.Series(name, [note.get(name) for note in notes], dtype=pl.Float64) for name in names
    )
    columns, lines = [*COLUMNS, *groups], []
    for method in methods_of(steps):
        own = known.filter(pl.col("method") == method)
        lines.append([Cell(method), *(number_cell(own[c.name], c) for c in columns)])
    better = {place: column.better for place, column in enumerate(columns, 1) if column.better}
    headings = ["Method", *(column.heading for column in columns)]
    caption = f"After step {max(steps['step'])}, {seeds_of(last)}"
    return Grid(headings, grid.placed(lines, better), len(columns), caption)
