"""Who pays for a limit: thirds of the users, with the limit and without, as tables and a chart."""

from collections.abc import Sequence
from dataclasses import replace

from fairhorizon.report import grid
from fairhorizon.report.charts import Chart, Plot, panel
from fairhorizon.report.grid import Cell, Grid, interval
from fairhorizon.report.marks import Axis, by_series, in_focus, layered, mark, word
from fairhorizon.report.page import Folded, Section
from fairhorizon.report.styles import styles_of
from fairhorizon.report.tables import group_items
from fairhorizon.studies.levels import LevelResults, UserGroupRow

TITLE = "Who pays for the limit"
CHART_TITLE = "What the limit changes for whom"
WHO_PAYS_NOTE = (
    "Users with test items in thirds of equal size, by their number of training items (activity) "
    "and by the share of these outside the limited group (taste for the tail). NDCG in percent, "
    "Change in percentage points with its interval of 95 % confidence, paired over users. FCPO and "
    "the best other method of each level, where they can serve without a limit."
)
READING = (
    "The change of NDCG by the limit, in percentage points, with its interval of 95 % confidence. "
    "Left of 0: these users pay."
)
TRAIT_HEIGHT = 34  # pixels of a third of users


def who_pays_grids(results: LevelResults) -> list[Grid]:
    """A table for each limit."""
    return [_table(rows, results) for rows in _by_limit(results.who_pays)]


def who_pays_section(results: LevelResults) -> list[Section]:
    """For a page: the chart, and the tables; none where nobody was looked at."""
    if not results.who_pays:
        return []
    tables = [
        Folded(table.caption, replace(table, caption=""), is_open=number == 0)
        for number, table in enumerate(who_pays_grids(results))
    ]
    return [Section(TITLE, [who_pays_chart(results), *tables], WHO_PAYS_NOTE)]


def _by_limit(rows: Sequence[UserGroupRow]) -> list[list[UserGroupRow]]:
    limits = dict.fromkeys(row.limit for row in rows)
    return [[row for row in rows if row.limit == limit] for limit in limits]


def _limit(row: UserGroupRow, group: str) -> str:
    words = f"at most {100 * row.level:g} % {group_items(group)}"
    return f"{words} {row.counting}" if row.counting else words


def _table(rows: Sequence[UserGroupRow], results: LevelResults) -> Grid:
    k = results.k
    headings = ("Method", "Users", "Number", "Without", f"NDCG@{k}", "Change", "95 %")
    lines = [
        [
            Cell(row.method),
            Cell(f"{_third(row)} ({_range(row)})"),
            Cell(f"{row.users:,}", row.users),
            grid.percent(row.without),
            grid.percent(row.limited),
            grid.percent(row.difference),
            interval(row.low, row.high),
        ]
        for row in rows
    ]
    caption = f"Who pays, {_limit(rows[0], results.group)}"
    return Grid(headings, lines, len(headings) - 2, caption)


def _third(row: UserGroupRow) -> str:
    return f"{row.trait}, {row.third}"


def _range(row: UserGroupRow) -> str:
    """The values of the trait: numbers of items, or shares in percent."""
    if max(row.largest, row.smallest) <= 1 and row.trait != "activity":
        return f"{100 * row.smallest:.0f} to {100 * row.largest:.0f} %"
    return f"{row.smallest:.0f} to {row.largest:.0f}"


def who_pays_chart(results: LevelResults) -> Chart:
    """A panel for each limit: thirds of the users, a mark with its interval for each method."""
    methods = dict.fromkeys(row.method for row in results.who_pays)
    styles = styles_of(methods)
    ends = [
        100 * end
        for row in results.who_pays
        for end in (row.low, row.high, row.difference, 0.0)
        if end is not None
    ]
    x = Axis(f"change of NDCG@{results.k}", domain=(min(ends) - 0.1, max(ends) + 0.1))
    encodings = by_series(styles)
    panels = [
        _panel(rows, x, encodings, list(methods), _limit(rows[0], results.group))
        for rows in _by_limit(results.who_pays)
    ]
    return Chart(CHART_TITLE, panels, styles, reading=READING)


def _panel(
    rows: Sequence[UserGroupRow],
    x: Axis,
    styles: dict[str, dict[str, object]],
    methods: list[str],
    title: str,
) -> Plot:
    thirds = list(dict.fromkeys(map(_third, rows)))
    data = [
        {
            "series": row.method,
            "users": _third(row),
            "x": 100 * row.difference,
            "low": 100 * (row.difference if row.low is None else row.low),
            "high": 100 * (row.difference if row.high is None else row.high),
        }
        for row in rows
    ]
    place = {
        "y": word("users", sort=thirds, axis={"title": None, "labelLimit": 220}),
        "yOffset": word("series", sort=methods),
        "color": styles["color"],
        "opacity": in_focus(),
    }
    tooltip = [word("series", title=" "), word("users", title="users"), x.tooltip("x")]
    layers = [
        mark("rule", {"x": x.of("zero")}, [{"zero": 0}], strokeDash=[4, 3]),
        layered(
            [
                mark("bar", place | {"x": x.of("low"), "x2": {"field": "high"}}, size=3),
                mark(
                    "point",
                    place | {"x": x.of("x"), "shape": styles["shape"], "tooltip": tooltip},
                    filled=True,
                    size=55,
                ),
            ],
            data,
            hides=True,
        ),
    ]
    return panel(layers, height=TRAIT_HEIGHT * len(thirds), title=title[:1].upper() + title[1:])
