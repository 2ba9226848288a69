"""Tables of a comparison at levels of fairness: each level, by place, ours against rivals."""

from collections.abc import Sequence
from typing import Literal

from fairhorizon.report import grid
from fairhorizon.report.comparison import metric_cell
from fairhorizon.report.footnotes import marked
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.tables import MISSING, group_items, metric_columns, short_title
from fairhorizon.studies.levels import GainRow, LevelResults, LevelRow

COLUMNS = ("ndcg", "gini", "popularity_rate", "recall")
FIRST_PLACES = (5, 10, 20)  # whose share is shown, where lists are as long
BEST_RIVAL, ABOVE = " ^", " !"
NOT_SHOWN = "not shown"


def limit_words(row: "LevelRow | GainRow", group: str) -> str:
    """The limit of a row within a sentence: at most 37 % popular items."""
    words = f"at most {100 * row.level:g} % {group_items(group)}"
    return f"{words} {row.counting}" if row.counting else words


def limit_cell(level: float, limit: str, counting: str) -> Cell:
    """The limit of a line: its share, or all of it where showings do not count alike."""
    return Cell(limit if counting else f"{100 * level:g} %")


def level_grids(results: LevelResults) -> list[tuple[Grid, Grid]]:
    """For each limit: accuracy and fairness of all methods, and where the group is in lists."""
    rows = results.rows
    limits = dict.fromkeys(row.limit for row in rows)
    return [
        (_level(same, results.k, results.group), _by_place(same, results.k, results.group))
        for same in ([row for row in rows if row.limit == limit] for limit in limits)
    ]


def _level(rows: Sequence[LevelRow], k: int, group: str) -> Grid:
    columns, first = metric_columns(group), rows[0]
    caption = (
        f"{_capital(limit_words(first, group))} in lists of {k}: {first.dataset}, "
        f"{first.protocol} protocol, {first.mode}, {grid.counted(len(first.seeds))}"
    )
    better: dict[int, Literal["more", "less"]] = {}
    for column, metric in enumerate(COLUMNS, 2):
        direction = columns[metric].better
        if direction != "zero" and metric != "popularity_rate":  # the level sets it
            better[column] = direction
    headings = ["Method", "Dial", *(columns[metric].heading for metric in COLUMNS)]
    lines = [
        [_name(row), Cell(_dials(row)), *(metric_cell(row, metric, k) for metric in COLUMNS)]
        for row in rows
    ]
    return Grid(headings, grid.placed(lines, better), len(COLUMNS), caption)


def _by_place(rows: Sequence[LevelRow], k: int, group: str) -> Grid:
    places = sorted({*(first for first in FIRST_PLACES if first < k), k})
    headings = ("Method", *(f"First {first}" for first in places), "Weighed", "Lists over")
    lines = [
        [
            _name(row),
            *(metric_cell(row, "popularity_rate", first) for first in places),
            metric_cell(row, "weighed_rate", k),
            metric_cell(row, "lists_above", k),
        ]
        for row in rows
    ]
    caption = f"By place, {limit_words(rows[0], group)}"
    return Grid(headings, lines, len(headings) - 1, caption)


def by_place_note(group: str) -> str:
    """What the columns of the tables by place are."""
    return (
        f"By place: share of {group_items(group)} among the first places of the lists; Weighed: "
        "the same over whole lists, a place counting 1/log2(1 + place). Lists over: share of lists "
        "with more of them than the level, rounded up to whole places. In percent."
    )


def _name(row: LevelRow) -> Cell:
    mark = (BEST_RIVAL if row.best_rival else "") + (ABOVE if row.above else "")
    return Cell(marked(row) + mark)


def _dials(row: LevelRow) -> str:
    """The levels of the settings, from the least to the most over the seeds."""
    if None in row.settings:
        reached = sum(setting is not None for setting in row.settings)
        return f"{reached} of {len(row.settings)} seeds"
    if not row.setting_levels:
        return MISSING
    low, high = f"{min(row.setting_levels):g}", f"{max(row.setting_levels):g}"
    return low if low == high else f"{low} to {high}"


def gains_grid(results: LevelResults, *, narrow: bool = False) -> Grid:
    """Ours against rivals; narrow: for a terminal, what the other columns do not say."""
    headings = ["Level", "Method", "Rival", f"NDCG@{results.k}", *([] if narrow else ["Rival"])]
    headings += ["Diff.", "95 %", "Gain"]
    headings += [] if narrow else ["Gini", short_title(results.group), "p"]
    lines = [
        [
            limit_cell(row.level, row.limit, row.counting),
            Cell(row.method),
            Cell(row.rival + (BEST_RIVAL if row.best_rival else "")),
            grid.percent(row.ndcg),
            *([] if narrow else [grid.percent(row.rival_ndcg)]),
            grid.percent(row.difference),
            interval(row.low, row.high),
            grid.percent(row.gain) if row.is_shown else Cell(NOT_SHOWN),
            *([] if narrow else _fairness(row)),
        ]
        for row in results.gains
    ]
    caption = "FCPO against the best rival and without CPO rounds"
    return Grid(headings, lines, len(headings) - 3, caption)


def _fairness(row: GainRow) -> list[Cell]:
    differences = (grid.percent(value) for value in (row.gini_difference, row.rate_difference))
    return [*differences, grid.p_value(row.t_test)]


def interval(low: float | None, high: float | None) -> Cell:
    """An interval of fractions, in percent."""
    if low is None or high is None:
        return Cell(MISSING)
    return Cell(f"{100 * low:.2f} to {100 * high:.2f}", low)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
