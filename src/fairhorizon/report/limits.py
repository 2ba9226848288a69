"""Whether limits were kept, in words and as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from fairhorizon.limits.measured import LimitOutcome, verdict_of
from fairhorizon.report import page
from fairhorizon.report.tables import (
    MISSING,
    Cell,
    Grid,
    group_items,
    markdown,
    number_cell,
    percent_cell,
    terminal,
)
from fairhorizon.studies.rows import LimitRow, OverSeeds, SummaryRow

TOLERANCE = 0.0005  # of a share: what is over the limit by less counts as kept
NAMED = 3  # of many that broke their limit
LIMIT_MISSED = " †"
LIMIT_MISSED_NOTE = (
    "† under some seed no evaluated round of the training kept the limit: the policy of its last "
    "round serves."
)


@dataclass(frozen=True)
class Kept:
    """A limit on a share, and the share that was found; None: not measured."""

    method: str
    limit: float
    share: float | None

    @property
    def is_kept(self) -> bool:
        return self.share is not None and self.share <= self.limit + TOLERANCE

    @property
    def has_limit(self) -> bool:
        return self.limit < 1


def of_row(row: SummaryRow, k: int) -> Kept:
    return Kept(row.method, row.alpha_prime, row.spread(f"popularity_rate@{k}").mean)


def limits_sentence(found: Sequence[Kept], group: str) -> str:
    """Which limits on the share of the group were kept, and which were not."""
    limited = [one for one in found if one.has_limit]
    items = group_items(group)
    if not limited:
        return f"No method had a limit on {items}."
    broken = [one for one in limited if not one.is_kept]
    if not broken:
        if len(limited) == 1:
            (one,) = limited
            return f"{one.method} kept its limit: {_share(one)} {items}, at most {_limit(one)}."
        return f"All {len(limited)} limits on {items} were kept."
    named = [f"{one.method} ({_share(one)}, at most {_limit(one)})" for one in broken[:NAMED]]
    more = len(broken) - len(named)
    words = ", ".join(named) + (f" and {more} more" if more else "")
    kept = len(limited) - len(broken)
    return f"{kept} of {len(limited)} limits on {items} kept; not kept by {words}."


def best_sentence(rows: Sequence[OverSeeds], metric: str, heading: str) -> str:
    """Which method has the highest mean of the metric."""
    known = {row.method: mean for row in rows if (mean := row.spread(metric).mean) is not None}
    if not known:
        return f"{heading} could not be measured."
    best = max(known, key=lambda method: known[method])
    if len(known) == 1:
        return f"{best} has an {heading} of {percent(known[best])}."
    return f"{best} is the most accurate, with an {heading} of {percent(known[best])}."


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _share(one: Kept) -> str:
    return "not measured" if one.share is None else percent(one.share)


def _limit(one: Kept) -> str:
    return f"{100 * one.limit:g} %"


def marked(row: OverSeeds) -> str:
    """The method of a row, marked if a training of it did not keep its limit."""
    return row.method + (LIMIT_MISSED if row.limit_missed else "")


def mark_notes(rows: Sequence[OverSeeds]) -> list[str]:
    """Notes on the marks that are in use."""
    return [LIMIT_MISSED_NOTE] if any(row.limit_missed for row in rows) else []


# ---- Verdicts and tables of limits ---------------------------------------------------------------

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


def limits_grid(found: Sequence[LimitOutcome], methods: Sequence[str] = ()) -> Grid:
    """A line per limit; methods: of each line, where several are compared."""
    lines = [
        [
            *([Cell(methods[place])] if methods else []),
            Cell(one.limit),
            Cell(f"{'>=' if one.is_floor else '<='}{100 * one.asked:.6g}", one.asked),
            percent_cell(one.reached),
            percent_cell(one.weighed),
            percent_cell(one.at.get(FIRST)),
            percent_cell(one.lists_above),
            Cell(MISSING) if one.violations is None else _whole(one.violations),
            number_cell(one.price, 4),
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
