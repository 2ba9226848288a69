"""Whether limits were kept, in words and as a table."""

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from fairhorizon.report import page
from fairhorizon.report.grid import Cell, Grid, percent
from fairhorizon.results.limits import ReachedLimit

NOTE = (
    "The share is counted as the limit says. First 5, 10, 20: the share in these places of all "
    "lists. By rank: the share with every showing counted as 1 / log2(1 + rank). Lists off: the "
    "share of lists that by themselves have more of the group than the limit's share of their "
    "places, rounded up (of a floor: less, rounded down)."
)
DECIMALS = range(1, 7)


def verdict(found: ReachedLimit) -> str:
    """As in "kept: 38.2 % of at most 40 %"."""
    word = "kept" if found.kept else "not kept"
    asked = f"at {'least' if found.is_floor else 'most'} {100 * found.asked:.6g} %"
    if found.broken is None:
        return f"{word}: {_reached(found)} of {asked}"
    if found.kept:
        return f"kept: {asked} of every list"
    return (
        f"not kept: {asked} of every list; {found.broken:,} of {found.n_lists:,} break it, the "
        f"worst with {100 * found.reached:.1f} %"
    )


def _reached(found: ReachedLimit) -> str:
    """With one decimal, and more where these would not show that the limit is broken."""
    for decimals in DECIMALS:
        text = f"{100 * found.reached:.{decimals}f}"
        if found.kept or float(text) != round(100 * found.asked, 9):
            break
    return f"{text} %"


def how_many_kept(found: Sequence[ReachedLimit]) -> str:
    """A sentence, with the limits that were not kept."""
    broken = [f"{one.limit} ({verdict(one).partition(': ')[2]})" for one in found if not one.kept]
    if not broken:
        return "The limit was kept." if len(found) == 1 else f"All {len(found)} limits were kept."
    kept, more = len(found) - len(broken), len(broken) - 1
    named = broken[0] + (f" and {more} more" if more else "")
    return f"{kept} of {len(found)} limits {'was' if kept == 1 else 'were'} kept; not {named}."


def limits_table(found: Sequence[ReachedLimit]) -> Table:
    """For a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Limit", overflow="fold")
    table.add_column("Verdict", overflow="fold", min_width=32)
    for heading in ("By rank", "Lists off"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        numbers = (percent(one.weighed).text, percent(one.lists_above).text)
        table.add_row(escape(one.limit), verdict(one), *numbers)
    return table


def limits_section(found: Sequence[ReachedLimit]) -> page.Section:
    """For a page."""
    places = sorted({k for one in found for k in one.at})
    headings = ["Limit", "Verdict", *(f"First {k}" for k in places), "By rank", "Lists off"]
    lines = [
        [
            Cell(one.limit),
            Cell(verdict(one)),
            *(percent(one.at.get(k)) for k in places),
            percent(one.weighed),
            percent(one.lists_above),
        ]
        for one in found
    ]
    return page.Section("Limits", [Grid(headings, lines, len(headings) - 2)], f"In percent. {NOTE}")
