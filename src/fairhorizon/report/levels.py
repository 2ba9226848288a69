"""Accuracy at levels of fairness: tables for each level, ours against rivals, and who pays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.limits.measured import FEW_POINTS
from fairhorizon.report.charts import (
    Axis,
    Chart,
    Plot,
    by_series,
    in_focus,
    layered,
    mark,
    panel,
    save_figure,
    styles_of,
    word,
)
from fairhorizon.report.comparison import metric_cell
from fairhorizon.report.frontier import frontier_chart
from fairhorizon.report.limits import (
    listed,
    mark_notes,
    marked,
    methods_markdown,
    methods_section,
    methods_table,
    percent,
)
from fairhorizon.report.page import Folded, Page, Section, commands_section, glossary_section
from fairhorizon.report.tables import (
    LEGEND,
    MISSING,
    NOT_SHOWN,
    Cell,
    Grid,
    group_items,
    interval_cell,
    markdown,
    metric_columns,
    p_value_cell,
    percent_cell,
    placed,
    seeds_text,
    short_title,
    terminal,
    units,
    write_grids,
)
from fairhorizon.studies.levels import GainRow, LevelResults, LevelRow, UserGroupRow

INTRO = (
    "Every method under the same limits on the share of {items} in its lists. FCPO is served at "
    "the limit; each rival is shown with its best setting that keeps it."
)
NOTE = (
    "A rival is picked with hindsight, in its favour: of its settings whose test lists keep the "
    "level, under each seed the one with the best NDCG on the test items. FCPO is served at the "
    "level itself, without any choice."
)
BEST_RIVAL_NOTE = "^ the best rival."
ABOVE_NOTE = "! under some seed the share is above the level by more than 0.05 points."
MISSED_NOTE = "n of m seeds: under the others no setting keeps the level."
GAINS_NOTE = (
    "Diff.: of NDCG, in percentage points, with its interval of 95 % confidence, paired over "
    f"users. Gain: the same relative to the rival, in percent; {NOT_SHOWN}: the interval holds 0. "
    "^ the best of all rivals."
)
FAIRNESS_NOTE = (
    "Gini and {share}: the difference to that rival in percentage points. p: two-sided t-test, "
    "paired over users."
)
WITHOUT_CPO_NOTE = "{names}: the same without CPO rounds; the difference is what these gain."
OTHER_PARTS_NOTE = (
    "No rival of {names} is made of the same rankers: a difference may be that of the rankers."
)


COLUMNS = ("ndcg", "gini", "popularity_rate", "recall")
FIRST_PLACES = (1, 10, 20)  # whose share is shown, where lists are as long
BEST_RIVAL, ABOVE = " ^", " !"


@written_together()
def write_levels(
    out: Path,
    results: LevelResults,
    *,
    command: str = "",
    json_file: Path | None = None,
    made_by: Mapping[str, Any] | None = None,
) -> None:
    """levels.json, the figure, index.html; tables as levels.md, and of each level as CSV and LaTeX.

    made_by: what made the results, for levels.json.
    """
    rows = results.rows
    content = {
        "command": command,
        "group": results.group,
        "k": results.k,
        "levels": list(dict.fromkeys(row.level for row in rows)),
        "limits": list(dict.fromkeys(row.limit for row in rows)),
        "note": NOTE,
        "rows": [row.to_json() for row in rows],
        "gains": [row.to_json() for row in results.gains],
        "who_pays": [row.to_json() for row in results.who_pays],
        "limit_rows": [row.to_json() for row in results.limits],
        **({"made_by": made_by} if made_by else {}),
    }
    write_copies(content, out / "levels.json", json_file)
    write_text(out / "levels.md", levels_markdown(results))
    tables = [level for level, _ in level_grids(results)]
    write_grids(out, {f"levels-{number}": table for number, table in enumerate(tables, start=1)})
    save_figure(out, "levels", levels_chart(results))
    levels_page(results, command).write(out / "index.html")


def levels_page(results: LevelResults, command: str = "") -> Page:
    """Tables of each level, ours against rivals, and who pays."""
    first, chart = results.rows[0], levels_chart(results)
    return Page(
        title=f"Accuracy at levels of fairness on {first.dataset}",
        finding=finding(results),
        intro=INTRO.format(items=group_items(results.group)),
        sections=[
            *levels_sections(results),
            Section(chart.title, [chart]),
            *who_pays_section(results),
            glossary_section(COLUMNS, (first.protocol, first.mode), results.group),
            commands_section([command]),
        ],
    )


def finding(results: LevelResults) -> str:
    """How ours compares with the best rival at each level, and whether each level was kept."""
    rows, k, group = results.rows, results.k, results.group
    sentences = _comparisons(results.gains, k, group)
    if not sentences:
        best = max(rows, key=lambda row: row.spread(f"ndcg@{k}").mean or 0.0)
        mean = best.spread(f"ndcg@{k}").mean
        if mean is not None:
            at = limit_words(best, group)
            sentences.append(f"With {at} {best.method} is the best: NDCG@{k} {percent(mean)}.")
    measured = [row for row in rows if row.metrics]
    above = [_at_limit(row) for row in measured if row.above]
    missed = [_at_limit(row) for row in rows if not row.metrics]
    kept = f"All {len(measured)} results keep their limit."
    if above:
        kept = f"{len(measured) - len(above)} of {len(measured)} results keep their limit; under "
        kept += f"some seed {listed(above)} is above it."
    sentences += [kept, *_at_rank_1(rows, group)]
    if missed:
        sentences.append(f"No setting reached the limit for {listed(missed)}.")
    return " ".join(sentences)


def _at_rank_1(rows: Sequence[LevelRow], group: str) -> list[str]:
    """Where ours shows clearly more of the group at the top than whole lists are allowed."""
    shares = [
        (row, share)
        for row in rows
        if row.ours and not row.counting
        if (share := row.spread("popularity_rate@1").mean) is not None
        if share - row.level > FEW_POINTS
    ]
    if not shares:
        return []
    found = listed([f"{percent(share)} for {_at_limit(row)}" for row, share in shares])
    return [f"At rank 1 the share of {group_items(group)} is higher: {found}."]


def _level(row: LevelRow | GainRow) -> str:
    return row.limit if row.counting else f"{100 * row.level:g} %"


def _at_limit(row: LevelRow) -> str:
    return f"{row.method} at {_level(row)}"


def _comparisons(gains: Sequence[GainRow], k: int, group: str) -> list[str]:
    """A sentence for each difference that is shown, and one for all others to the same rival."""
    sentences = [_compared(row, k, group) for row in gains if row.is_shown or row.low is None]
    same: dict[tuple[str, str], list[GainRow]] = {}
    for row in gains:
        if not row.is_shown and row.low is not None:
            same.setdefault((row.method, _rival(row)), []).append(row)
    for (method, rival), rows in same.items():
        each = listed([f"{_level(row)} (NDCG@{k} {percent(row.ndcg)}: {_by(row)})" for row in rows])
        sentences.append(f"No difference of {method} to {rival} is shown at {each}.")
    return sentences


def _compared(row: GainRow, k: int, group: str) -> str:
    at = f"With {limit_words(row, group)} {row.method} has an NDCG@{k} of {percent(row.ndcg)}"
    if row.difference is None or not row.is_shown:
        return f"{at}, against {percent(row.rival_ndcg)} of {_rival(row)}."
    by = "" if row.gain is None else f", {abs(row.gain):.1%}".replace("%", " %")
    word = "less" if row.difference < 0 else "more"
    return f"{at}{by} {word} than {_rival(row)} ({_by(row)})."


def _rival(row: GainRow) -> str:
    return f"{row.rival}, the same without CPO rounds," if row.without_cpo else row.rival


def _by(row: GainRow) -> str:
    """The difference with its interval."""
    ends = [100 * end for end in (row.difference, row.low, row.high) if end is not None]
    return "{:+.2f} points, 95 % interval {:+.2f} to {:+.2f}".format(*ends)


def levels_sections(results: LevelResults) -> list[Section]:
    """Tables of each level, the first open; and ours against rivals."""
    pairs = level_grids(results)
    levels, places = (
        [
            Folded(table.caption, replace(table, caption=""), is_open=number == 0)
            for number, table in enumerate(tables)
        ]
        for tables in zip(*pairs, strict=True)
    )
    note = f"{units(COLUMNS)} Best bold, second underlined. {_notes(results.rows)}"
    sections = [
        Section("At each level", levels, note),
        Section("By place", places, by_place_note(results.group)),
    ]
    if results.limits:
        sections.append(methods_section(results.limits))
    if results.gains:
        table = gains_grid(results)
        sections.append(Section(table.caption, [replace(table, caption="")], _gains_note(results)))
    return sections


def levels_table(results: LevelResults) -> Group:
    """For a terminal."""
    parts: list[Any] = []
    for level, places in level_grids(results):
        parts += [terminal(level), "", terminal(places), ""]
    legend = f"{units(COLUMNS)} {LEGEND}. {_notes(results.rows)}"
    parts += [Text(legend), Text(by_place_note(results.group))]
    if results.limits:
        parts += ["", methods_table(results.limits)]
    if results.gains:
        table = terminal(gains_grid(results, narrow=True))
        parts += ["", table, Text(_gains_note(results, narrow=True))]
    for table in map(terminal, who_pays_grids(results)):
        parts += ["", table]
    return Group(*parts, *([Text(WHO_PAYS_NOTE)] if results.who_pays else []))


def levels_markdown(results: LevelResults) -> str:
    """For GitHub: best bold, second italic."""
    pairs = level_grids(results)
    parts = [markdown(level) for level, _ in pairs]
    parts.append(f"{units(COLUMNS)} Best **bold**, second _italic_. {_notes(results.rows)}")
    parts += [markdown(places) for _, places in pairs]
    parts.append(by_place_note(results.group))
    if results.limits:
        parts.append(methods_markdown(results.limits).rstrip())
    if results.gains:
        parts += [markdown(gains_grid(results)), _gains_note(results)]
    if results.who_pays:
        parts += [*map(markdown, who_pays_grids(results)), WHO_PAYS_NOTE]
    return "\n\n".join(parts) + "\n"


def levels_chart(results: LevelResults) -> Chart:
    """The accuracy of each method at the levels, as a frontier; of one way of counting."""
    counting = results.rows[0].counting
    curves: dict[str, list[LevelRow]] = {}
    for row in results.rows:
        if row.counting == counting:
            curves.setdefault(row.method, []).append(row)
    return frontier_chart(curves, results.k, results.group)


def _notes(rows: Sequence[LevelRow]) -> str:
    applicable = {
        BEST_RIVAL_NOTE: any(row.best_rival for row in rows),
        ABOVE_NOTE: any(row.above for row in rows),
        MISSED_NOTE: any(None in row.settings for row in rows),
        NOTE: True,
    }
    notes = [note for note, applies in applicable.items() if applies]
    return " ".join([*mark_notes(rows), *notes])


def _gains_note(results: LevelResults, *, narrow: bool = False) -> str:
    notes = [GAINS_NOTE]
    if not narrow:
        notes.append(FAIRNESS_NOTE.format(share=short_title(results.group)))
    starts = dict.fromkeys(row.rival for row in results.gains if row.without_cpo)
    if starts:
        notes.append(WITHOUT_CPO_NOTE.format(names=listed(list(starts))))
    alone = dict.fromkeys(row.method for row in results.gains if not row.same_parts)
    if alone:
        notes.append(OTHER_PARTS_NOTE.format(names=listed(list(alone))))
    return " ".join(notes)


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
        (_level_grid(same, results.k, results.group), _by_place(same, results.k, results.group))
        for same in ([row for row in rows if row.limit == limit] for limit in limits)
    ]


def _level_grid(rows: Sequence[LevelRow], k: int, group: str) -> Grid:
    columns, first = metric_columns(group), rows[0]
    caption = (
        f"{_capital(limit_words(first, group))} in lists of {k}: {first.dataset}, "
        f"{first.protocol} protocol, {first.mode}, {seeds_text(len(first.seeds))}"
    )
    better: dict[int, Literal["more", "less"]] = {}
    for column, metric in enumerate(COLUMNS, 2):
        direction = columns[metric].better
        if direction != "zero" and metric != "popularity_rate":  # the level sets it
            better[column] = direction
    headings = ["Method", "Level", *(columns[metric].heading for metric in COLUMNS)]
    lines = [
        [
            _name(row),
            Cell(_setting_levels(row)),
            *(metric_cell(row, metric, k) for metric in COLUMNS),
        ]
        for row in rows
    ]
    return Grid(headings, placed(lines, better), len(COLUMNS), caption)


def _by_place(rows: Sequence[LevelRow], k: int, group: str) -> Grid:
    places = sorted({*(first for first in FIRST_PLACES if first < k), k})
    headings = (
        "Method",
        *("Rank 1" if first == 1 else f"First {first}" for first in places),
        "Weighed",
        "Lists over",
    )
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


def _setting_levels(row: LevelRow) -> str:
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
            percent_cell(row.ndcg),
            *([] if narrow else [percent_cell(row.rival_ndcg)]),
            percent_cell(row.difference),
            interval_cell(row.low, row.high),
            percent_cell(row.gain) if row.is_shown else Cell(NOT_SHOWN),
            *([] if narrow else _fairness(row)),
        ]
        for row in results.gains
    ]
    caption = "FCPO against the best rival and without CPO rounds"
    return Grid(headings, lines, len(headings) - 3, caption)


def _fairness(row: GainRow) -> list[Cell]:
    differences = (percent_cell(value) for value in (row.gini_difference, row.rate_difference))
    return [*differences, p_value_cell(row.t_test)]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---- Who pays: thirds of the users, with the limit and without -----------------------------------

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
            percent_cell(row.without),
            percent_cell(row.limited),
            percent_cell(row.difference),
            interval_cell(row.low, row.high),
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
