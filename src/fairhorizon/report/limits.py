"""Whether limits were kept, in words and as a table."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from fairhorizon.limits.measured import LimitOutcome, verdict_of
from fairhorizon.report import page
from fairhorizon.report.grid import Cell, Grid, markdown, number, percent, terminal
from fairhorizon.report.tables import MISSING
from fairhorizon.studies.rows import LimitRow

NARROW = 7  # characters of a heading on a terminal, so that there is room for the limits
FIRST = 10  # places, whose share has a column of its own
COLUMNS = (
    *("Asked", "Reached", "Weighed", f"First {FIRST}", "Lists above", "Violations", "Price"),
    "Kept",
)
NOTE = (
    "Reached: the share as the limit counts it. Weighed: the share with every showing counted as "
    f"1 / log2(1 + rank). First {FIRST}: the share in these places of all lists. Lists above: the "
    "share of lists that by themselves have more of the group than the limit's share of their "
    "places, rounded up (of a floor: less, rounded down). Violations: how many showings are too "
    "many (of a floor: too few), or how many lists break a limit on every list. Price: what the "
    "method subtracted from the value of an item for the limit."
)
LONG_NOTE = (
    "Reached: the share, or the Gini index, of all that was shown. Violations: the steps after the "
    "warm-up at which the limit was broken. Price: what the method subtracted from the value of an "
    "item for the limit in the last step."
)
SEEDS_NOTE = "Means over seeds; kept under all of them, violations of all of them together."


def how_many_kept(found: Sequence[LimitOutcome]) -> str:
    """A sentence, with the limits that were not kept."""
    broken = [
        f"{one.limit} ({verdict_of(one).removeprefix('not kept').lstrip(': ')})"
        for one in found
        if not one.kept
    ]
    if not broken:
        return "The limit was kept." if len(found) == 1 else f"All {len(found)} limits were kept."
    kept, more = len(found) - len(broken), len(broken) - 1
    named = broken[0] + (f" and {more} more" if more else "")
    return f"{kept} of {len(found)} limits {'was' if kept == 1 else 'were'} kept; not {named}."


def limits_grid(found: Sequence[LimitOutcome], methods: Sequence[str] = ()) -> Grid:
    """A line per limit; methods: of each line, where several are compared."""
    lines = [
        [
            *([Cell(methods[place])] if methods else []),
            Cell(one.limit),
            Cell(f"{'>=' if one.is_floor else '<='}{100 * one.asked:.6g}", one.asked),
            percent(one.reached),
            percent(one.weighed),
            percent(one.at.get(FIRST)),
            percent(one.lists_above),
            Cell(MISSING) if one.violations is None else _whole(one.violations),
            number(one.price, 4),
            Cell("yes" if one.kept else "no"),
        ]
        for place, one in enumerate(found)
    ]
    headings = [*(["Method"] if methods else []), "Limit", *COLUMNS]
    return Grid(headings, lines, len(COLUMNS))


def _whole(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def limits_table(found: Sequence[LimitOutcome]) -> Group:
    """For a terminal: in words, then in numbers."""
    words = [Text(f"{one.limit} {verdict_of(one)}") for one in found]
    return Group(*words, terminal(limits_grid(found), NARROW))


def methods_table(rows: Sequence[LimitRow]) -> Group:
    """For a terminal: the limit above the lines of its methods, or 80 columns are too few."""
    tables = []
    for limit in dict.fromkeys(row.limit for row in rows):
        grid = _by_method([row for row in rows if row.limit == limit])
        lines = [[name, *numbers] for name, _, *numbers in grid.lines]
        headings = ["Method", *COLUMNS]
        tables.append(terminal(Grid(headings, lines, len(COLUMNS), f"Limit {limit}"), NARROW))
    return Group(*tables)


def methods_section(rows: Sequence[LimitRow], note: str = NOTE) -> page.Section:
    """For a page, a line per limit and method."""
    return page.Section("Limits", [_by_method(rows)], f"In percent. {note} {SEEDS_NOTE}")


def methods_markdown(rows: Sequence[LimitRow], note: str = NOTE) -> str:
    """For GitHub, a line per limit and method."""
    return f"Limits\n\n{markdown(_by_method(rows))}\n\nIn percent. {note} {SEEDS_NOTE}\n"


def limit_content(rows: Sequence[LimitRow]) -> dict[str, Any]:
    """For programs; nothing where no limit was measured."""
    return {"limit_rows": [row.to_json() for row in rows]} if rows else {}


def _by_method(rows: Sequence[LimitRow]) -> Grid:
    return limits_grid(rows, [row.method for row in rows])
