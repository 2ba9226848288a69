import json
import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from specs import charts_of, check_schema, colours, line_of, marks

from fairhorizon.errors import DataError
from fairhorizon.limits.groups import popular_group
from fairhorizon.metrics.spread import Spread
from fairhorizon.report import long_charts
from fairhorizon.report.charts import GREY, IS_FOCUS, styles_of
from fairhorizon.report.long_charts import DRAWN, Move, Span, exposure_ranks, first_runs, tracks
from fairhorizon.report.long_term import (
    accumulated_chart,
    closing_lines,
    drawings,
    finding,
    labels_markdown,
    labels_section,
    summary_markdown,
    summary_section,
    summary_table,
    write_long_term_report,
)
from fairhorizon.report.page import drawing_library
from fairhorizon.studies.long_results import (
    CountsOverTime,
    LimitSummary,
    LongTermResult,
    RunSummary,
)

NASTY = "<b>m&m</b>"
PNG = b"\x89PNG\r\n\x1a\n"
STYLES = styles_of(["fcpo", NASTY])
SPAN = Span(first=1, last=4, warm_up=2, alpha_prime=0.4)


def row(method, seed, step, **values):
    numbers = {
        "ndcg": 0.1,
        "recall": 0.2,
        "gini": 0.5,
        "limited_rate": 0.3,
        "popularity_rate": 0.31,
        "popularity_rate_initial": 0.32,
        "popularity_rate_lagged": 0.33,
        "popularity_rate_retrospective": 0.34,
        "lorenz_share": 0.36,
        "step_popularity_rate": 0.25,
        "step_popularity_rate_initial": 0.35,
        "violation_share": None if step == 1 else 0.0,
        "largest_overshoot": 0.0,
        "churn": 2,
    }
    return {"method": method, "seed": seed, "step": step} | numbers | values


def frame(rows):
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.fixture(scope="module")
def steps():
    """fcpo keeps to the limit, the other is above it at one of the two steps that count."""
    kept = [
        row("fcpo", seed, step, ndcg=0.1 * step + 0.02 * seed, gini=0.5 - 0.1 * seed)
        for seed in (0, 1)
        for step in (1, 2, 3, 4)
    ]
    broken = [
        row(
            NASTY,
            seed,
            step,
            limited_rate={1: 0.5, 2: 0.5, 3: 0.4, 4: 0.48}[step],
            popularity_rate_lagged=0.2 + 0.02 * seed,
            violation_share={3: 0.0, 4: 0.5}.get(step),
            largest_overshoot=0.08 + 0.02 * seed if step == 4 else 0.0,
            churn=4 * seed,
        )
        for seed in (0, 1)
        for step in (1, 2, 3, 4)
    ]
    return frame(kept + broken)


@pytest.fixture(scope="module")
def counts():
    """Ten items, two of them popular: {0, 1}, then {2, 3}, then {1, 2}."""
    rest = [9, 8, 7, 6, 5, 4]
    history = np.array([[50, 40, 30, 20, *rest], [50, 40, 60, 55, *rest], [50, 70, 80, 55, *rest]])
    labels = np.stack([popular_group(moment) for moment in history])
    return CountsOverTime(np.array([0, 2, 4]), history, labels)


def rows_of(panel, kind, number=0):
    return marks(panel, kind)[number][1]


# lines and bands


def test_a_line_is_the_mean_of_its_seeds_and_the_band_their_extremes(steps):
    line = long_charts.lines(steps, "ndcg")["fcpo"]
    assert line.steps.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(line.mean, [11, 21, 31, 41])
    np.testing.assert_allclose(line.low, [10, 20, 30, 40])
    np.testing.assert_allclose(line.high, [12, 22, 32, 42])
    assert line.has_band
    assert not long_charts.lines(steps.filter(pl.col("seed") == 0), "ndcg")["fcpo"].has_band


def test_steps_without_a_value_are_left_out_and_a_seed_without_one_is_not_a_zero():
    rows = [row("a", 0, 1, ndcg=math.nan), row("a", 0, 2, ndcg=0.5), row("a", 1, 2, ndcg=None)]
    line = long_charts.lines(frame(rows), "ndcg")["a"]
    assert (line.steps.tolist(), line.mean.tolist()) == ([2], [50.0])
    blank = long_charts.lines(frame(rows[:1]), "ndcg")["a"]
    assert (len(blank.mean), blank.has_band) == (0, False)


def test_methods_keep_the_order_of_their_rows(steps):
    assert list(long_charts.lines(steps, "gini")) == ["fcpo", NASTY]
    assert list(long_charts.lines(steps.reverse(), "gini")) == [NASTY, "fcpo"]


# Figure 4


def test_figure_4_draws_lines_bands_limit_and_warm_up(steps):
    chart = accumulated_chart(steps, STYLES, SPAN)
    ndcg, gini, popular = chart.panels
    assert line_of(ndcg, "fcpo") == [(1, 11), (2, 21), (3, 31), (4, 41)]
    assert [y for _, y in line_of(gini, "fcpo")] == [45] * 4
    assert [y for _, y in line_of(popular, NASTY)] == [50, 50, 40, 48]
    bands = {(row["low"], row["high"]) for row in rows_of(gini, "area") if row["series"] == "fcpo"}
    assert bands == {(40, 50)}
    assert [len(marks(panel, "rule")) for panel in chart.panels] == [0, 0, 1]
    assert rows_of(popular, "rule")[0]["y"] == 40
    for panel in chart.panels:
        assert rows_of(panel, "rect") == [{"begin": 1, "end": 2}]
    assert list(chart.styles) == ["fcpo", NASTY]
    assert chart.reading.endswith(
        "Lines are means over seeds, bands reach from the lowest seed to the highest; dashed: the "
        "limit; grey: the warm-up."
    )


def test_one_seed_has_no_band(steps):
    one = steps.filter(pl.col("seed") == 0)
    chart = accumulated_chart(one, STYLES, SPAN)
    assert [len(marks(panel, "area")) for panel in chart.panels] == [0, 0, 0]
    assert "One seed; dashed" in chart.reading


def test_no_limit_and_no_warm_up_are_not_drawn(steps):
    free = replace(SPAN, warm_up=0, alpha_prime=1.0)
    for panel in accumulated_chart(steps, STYLES, free).panels:
        assert marks(panel, "rule") == marks(panel, "rect") == []


def test_what_nobody_measured_is_said(steps):
    blank = steps.with_columns(ndcg=pl.lit(math.nan))
    ndcg, gini, _ = accumulated_chart(blank, STYLES, SPAN).panels
    assert rows_of(ndcg, "text")[0]["text"] == "no user has relevant items"
    assert marks(ndcg, "line") == marks(gini, "text") == []


# the limit at every moment


def test_what_is_over_the_limit_counts_after_the_warm_up_alone(steps):
    running = long_charts.lines(steps, "limited_rate")[NASTY]
    after, upper = long_charts.over_limit(running, SPAN)
    assert after.tolist() == [3, 4]
    np.testing.assert_allclose(upper, [40, 48])  # never below the limit


def test_the_verdict_gives_the_mean_share_and_the_worst_overshoot(steps):
    assert long_charts.verdict(steps, "fcpo", SPAN) == "never over the limit after the warm-up"
    words = "over the limit at 50.0 % of steps, by up to 10.0 points"
    assert long_charts.verdict(steps, NASTY, SPAN) == words
    early = steps.filter(pl.col("step") <= 1)
    assert long_charts.verdict(early, NASTY, SPAN) == "no step after the warm-up yet"


def test_control_panels_share_their_axis_and_hold_all_lines(steps):
    chart = long_charts.control_chart(steps, STYLES, SPAN)
    assert [panel.title for panel in chart.panels] == ["fcpo", NASTY]
    runs = zip(chart.panels, ([30] * 4, [50, 50, 40, 48]), STYLES.values(), strict=True)
    for panel, running, style in runs:
        drawn = marks(panel, "line")
        values = [[row["y"] for row in rows] for _, rows in drawn]
        assert values == [[35] * 4, [25] * 4, running]
        assert [mark["mark"]["color"] for mark, _ in drawn] == [GREY, GREY, style.colour]
        for mark, _ in drawn:
            domain = mark["encoding"]["y"]["scale"]["domain"]
            assert domain == [0, pytest.approx(1.05 * 50)]
        assert rows_of(panel, "rule")[0]["y"] == 40
    over = rows_of(chart.panels[1], "area")
    assert [(row["x"], row["y"], row["limit"]) for row in over] == [(3, 40, 40), (4, 48, 40)]


# ranks and groups


def test_ranks_agree_with_the_groups_ties_included():
    counts = np.random.default_rng(5).integers(0, 6, (20, 31))
    ranks = exposure_ranks(counts)
    assert (np.sort(ranks, axis=1) == np.arange(1, 32)).all()
    for moment, own in zip(counts, ranks, strict=True):
        popular = popular_group(moment)
        assert ((own <= popular.sum()) == popular).all()


def test_items_that_cross_are_those_that_cross(counts):
    own = tracks(counts)
    assert {move: items.tolist() for move, items in own.items.items()} == {
        Move.ENTERED: [2],
        Move.LEFT: [0],
        Move.RETURNED: [1, 3],
    }
    assert own.ranks[:, :4].tolist() == [[1, 2, 3, 4], [3, 4, 1, 2], [4, 2, 1, 3]]
    assert (own.group_size, own.boundary) == (2, 2.5)
    assert own.remark() == "of 10 items 1 entered, 1 left, 2 came back"


def test_of_many_items_the_few_that_moved_furthest_are_drawn():
    # in group G0 of 100 the item t gives way to item 100 + t at moment t + 1
    labels = np.zeros((101, 200), dtype=bool)
    for moment in range(101):
        labels[moment, moment : moment + 100] = True
    own = tracks(CountsOverTime(np.arange(101), labels.astype(np.int64), labels))
    assert len(own.items[Move.ENTERED]) == len(own.items[Move.LEFT]) == 100
    for move in (Move.ENTERED, Move.LEFT):
        drawn = own.drawn(move)
        moved = np.ptp(np.sqrt(own.ranks), axis=0)
        assert len(drawn) == DRAWN[move]
        assert moved[drawn].min() >= np.sort(moved[own.items[move]])[-DRAWN[move]]
    assert own.drawn(Move.RETURNED).size == 0
    assert len(own.steps) == long_charts.MOMENTS
    assert sum(DRAWN.values()) <= 10  # more lines in a panel cannot be told apart


def test_the_first_seed_is_drawn_and_what_shows_no_ranks_is_not(counts):
    other = replace(counts, steps=counts.steps + 1)
    runs = first_runs({("a", 3): other, ("a", 1): counts, ("b", 0): other})
    assert {name: run.steps.tolist() for name, run in runs.items()} == {
        "a": [0, 2, 4],
        "b": [1, 3, 5],
    }
    once = CountsOverTime(counts.steps[:1], counts.counts[:1], counts.sensitive[:1])
    fixed = replace(counts, sensitive=np.tile(np.arange(10) == 7, (3, 1)))  # by an attribute
    assert first_runs({("once", 0): once, ("fixed", 0): fixed}) == {}


def test_the_chart_of_ranks_has_the_boundary_and_the_items(counts):
    (panel,) = long_charts.ranks_chart({"fcpo": tracks(counts)}, STYLES, SPAN).panels
    assert (panel.title, panel.remark) == (
        "fcpo",
        "of 10 items 1 entered, 1 left, 2 came back",
    )
    assert rows_of(panel, "rule") == [{"rank": 2.5}]
    ((line, rows),) = marks(panel, "line")
    tracked = {}
    for row in rows:
        tracked.setdefault((row["series"], row["move"]), []).append((row["x"], row["rank"]))
    assert tracked == {
        ("item 2", "entered"): [(0, 3), (2, 1), (4, 1)],
        ("item 0", "left"): [(0, 1), (2, 3), (4, 4)],
        ("item 1", "came back"): [(0, 2), (2, 4), (4, 2)],
        ("item 3", "came back"): [(0, 4), (2, 2), (4, 3)],
    }
    scale = line["encoding"]["y"]["scale"]
    assert (scale["type"], scale["domain"]) == ("sqrt", [10, 1])
    assert line["mark"]["color"] == STYLES["fcpo"].colour
    # what is pointed at is thick, all else fades
    width = line["encoding"]["strokeWidth"]
    assert (width["condition"]["test"], width["condition"]["value"]) == (IS_FOCUS, 4)
    assert line["encoding"]["opacity"]["value"] < 0.2
    assert long_charts.ranks_chart({}, STYLES, SPAN) is None


@pytest.mark.slow
def test_every_chart_is_valid_by_the_schema_of_vega_lite(steps, counts):
    for chart in drawings(LongTermResult(steps, {("fcpo", 0): counts}, 0.4, 2), SPAN):
        check_schema(chart)


def test_changes_are_counted_from_the_first_step(steps):
    (panel,) = long_charts.changes_chart(steps, STYLES, SPAN).panels
    assert [y for _, y in line_of(panel, "fcpo")] == [2, 4, 6, 8]
    assert [y for _, y in line_of(panel, NASTY)] == [2, 4, 6, 8]  # means of 0 and 4


def test_a_method_has_one_colour_in_all_charts_of_the_page(folder):
    html = (folder / "index.html").read_text(encoding="utf-8")
    found = {}
    for spec in charts_of(html):
        for method, colour in colours(spec).items():
            found.setdefault(method, set()).add(colour)
    assert found == {method: {style.colour} for method, style in STYLES.items()}


def test_the_page_opens_with_who_is_best_and_who_kept_which_limit(steps):
    limits = (
        LimitSummary("floor a", "fcpo", 0.0, 0.0),
        LimitSummary("floor a", NASTY, 0.5, 0.01),
    )
    result = LongTermResult(steps, {}, 0.4, 2, limits=limits)
    assert finding(result, SPAN) == (
        "After 4 steps fcpo is the most accurate, with an NDCG of 41.00 %. The limit of 40 % "
        f"popular items was kept by fcpo and was broken by {NASTY} (at 50.0 % of steps). "
        f"floor a: kept by fcpo, broken by {NASTY}."
    )
    free = finding(replace(result, limits=()), replace(SPAN, alpha_prime=1.0))
    assert free.endswith("There was no limit on popular items.")
    early = replace(result, steps=steps.filter(pl.col("step") <= 1), limits=())
    assert finding(early, SPAN).endswith("was not tested yet: no step is after the warm-up.")


def test_the_page_of_many_methods_stays_small():
    methods = [f"method{i}+quota" for i in range(16)]
    rng = np.random.default_rng(3)
    many = frame(
        [
            row(method, seed, step, limited_rate=rng.random(), ndcg=rng.random())
            | {"step_popularity_rate": rng.random(), "gini": rng.random()}
            for method in methods
            for seed in (0, 1)
            for step in range(1, 401)
        ]
    )
    history = np.cumsum(rng.integers(0, 9, (101, 500)), axis=0)
    labels = np.stack([popular_group(moment) for moment in history])
    run = CountsOverTime(np.arange(0, 404, 4), history, labels)
    counts = {(method, 0): run for method in methods}
    result = LongTermResult(many, counts, 0.4, 50)
    charts = drawings(result, Span(1, 400, 50, 0.4))
    assert len(charts) == 4
    size = sum(len(spec) for chart in charts for spec in chart.for_page())
    assert size + len(drawing_library()) < 1_400_000  # the rest is for tables and words


def test_ticks_of_ranks_are_round_and_apart():
    assert long_charts.rank_ticks(1682) == [1, 50, 200, 500, 1000]
    assert long_charts.rank_ticks(4) == [1, 2]


# the table


def test_the_table_gives_mean_and_spread_and_marks_the_best(steps):
    text = summary_markdown(steps)
    assert text.startswith("After step 4, 2 seeds\n")
    # ndcg 40 and 42, gini 50 and 40, changes 4 x 2 of each seed
    assert (
        "| fcpo | **41.00** ±1.41 | **20.00** ±0.00 | **45.00** ±7.07 | **30.00** ±0.00 "
        "| **0.00** ±0.00 | **0.00** ±0.00 | 8 ±0 |"
    ) in text
    # overshoot 8 and 10, changes 0 and 16
    assert (
        r"| \<b\>m&m\</b\> | _10.00_ ±0.00 | **20.00** ±0.00 | _50.00_ ±0.00 | _48.00_ ±0.00 "
        "| _50.00_ ±0.00 | _9.00_ ±1.41 | 8 ±11 |"
    ) in text


def test_milestones_that_a_run_has_come_to():
    long = frame(
        [row("a", 0, step) for step in range(1, 121)] + [row("b", 0, step) for step in range(1, 61)]
    )
    text = summary_markdown(long)
    assert re.findall(r"After step (\d+), (.*)", text) == [
        ("120", "1 seed"),
        ("100", "1 seed"),
        ("50", "1 seed"),
    ]
    assert text.count("| a |") == 3
    assert text.count("| b |") == 1  # which is at 60
    assert "| b | 10.00 | 20.00 | 50.00 | 30.00 | 0.00 | 0.00 | 100 |" in text.replace("**", "")
    section = summary_section(long)
    assert [part.is_open for part in section.parts] == [True, False, False]


def test_the_table_for_a_terminal_is_that_of_the_last_step(steps):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary_table(steps))
    lines = capture.get().splitlines()
    assert lines[0] == "After step 4, 2 seeds"
    accuracy, control = [line.split() for line in lines if line.startswith("fcpo")]
    assert accuracy[1:3] == ["41.00", "±1.41*"]
    assert accuracy[-2:] == ["30.00", "±0.00*"]  # of popular items
    assert control[1:] == ["0.00", "±0.00*", "0.00", "±0.00*", "8", "±0"]


def test_of_one_seed_the_table_for_a_terminal_is_one(steps):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary_table(steps.filter(pl.col("seed") == 0)))
    (fcpo,) = [line for line in capture.get().splitlines() if line.startswith("fcpo")]
    assert fcpo.split()[1:] == ["40.00*", "20.00*", "50.00*", "30.00*", "0.00*", "0.00*", "8"]


def test_before_the_warm_up_ends_nothing_is_said_of_violations(steps):
    text = summary_markdown(steps.filter(pl.col("step") == 1))
    assert "| fcpo | **11.00** ±1.41 | **20.00** ±0.00 | **45.00** ±7.07 |" in text
    assert text.count(" | - | ") == 2


def test_the_share_under_all_labels_side_by_side(steps):
    section = labels_section(steps, 7)
    (block,) = section.parts
    assert block.headings == ["Method", "Retrospective", "Moment", "Lagged", "First", "Most shown"]
    fcpo, other = [[cell.text for cell in line] for line in block.lines]
    assert fcpo == ["fcpo", "34.00", "31.00", "33.00", "32.00", "36.00"]
    assert other == [NASTY, "34.00", "31.00", "21.00", "32.00", "36.00"]
    assert "Lagged: each showing under the label of 7 steps before." in section.note
    assert labels_markdown(steps, 7).count("**21.00** ±1.41") == 1


# all of it


@pytest.fixture(scope="module")
def folder(steps, counts, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    runs = {("fcpo", 0): counts, (NASTY, 0): counts}
    result = LongTermResult(steps, runs, 0.4, 2, settings={"steps": 4})
    write_long_term_report(out, result, "fairhorizon longterm --out <run>")
    return out


def test_every_file_is_there_and_the_figures_are_pictures(folder):
    starts = {"png": PNG, "svg": b"<svg", "pdf": b"%PDF-"}
    names = [f"{name}.{one}" for name in ("churn", "control", "figure4") for one in starts]
    others = ["index.html", *(f"longterm.{one}" for one in ("csv", "json", "md", "tex"))]
    assert sorted(file.name for file in folder.iterdir()) == sorted([*names, *others])
    content = json.loads((folder / "longterm.json").read_text(encoding="utf-8"))
    assert content == {"rows": [], "limits": [], "differences": [], "settings": {"steps": 4}}
    for name in names:
        assert (folder / name).read_bytes().startswith(starts[name[-3:]])
    heading, *lines = (folder / "longterm.csv").read_text(encoding="utf-8").splitlines()
    assert heading.split(",")[:2] == ["Method", "NDCG"]
    assert [line.split(",")[0] for line in lines][:1] == ["fcpo"]


def test_names_and_commands_are_shown_as_written(folder):
    html = (folder / "index.html").read_text(encoding="utf-8")
    assert NASTY not in html
    assert html.count("<h3>&lt;b&gt;m&amp;m&lt;/b&gt;</h3>") == 2
    assert "fairhorizon longterm --out &lt;run&gt;" in html
    assert "4 steps, 2 seeds." in html
    assert "the first 2 steps, in which going above the limit is not counted" in html


def test_further_limits_and_a_fixed_group_are_on_the_page(steps, tmp_path):
    limits = (LimitSummary("floor a<b=c", "fcpo", 0.125, 0.0301, 0.3, True, Spread(0.2699, 0.001)),)
    result = LongTermResult(steps, {}, 0.4, 2, limits=limits, group="genre = War")
    write_long_term_report(tmp_path, result, "")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<td>floor a&lt;b=c</td><td>fcpo</td>" in page
    text = (tmp_path / "longterm.md").read_text(encoding="utf-8")
    for number in ("at least 30 %", "26.99 ± 0.10 %"):
        assert number in page
        assert number in text
    assert ">12.50</td>" in page
    assert ">3.01</td>" in page
    assert "is genre = War, and its items stay the same. 4 steps, 2 seeds." in page
    assert "the groups move" not in page
    write_long_term_report(tmp_path, LongTermResult(steps, {}, 0.4, 2), "")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "the groups change during the run. 4 steps, 2 seeds." in page
    assert "Further limits" not in page


def test_a_group_by_an_attribute_is_called_by_its_name(steps, counts, tmp_path):
    name = "seller = <Mega> or $5 or $6"
    # counts under which the items of the seller happen to be the most shown
    result = LongTermResult(steps, {("fcpo", 0): counts}, 0.4, 2, group=name)
    write_long_term_report(tmp_path, result, "")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    page = page.replace(drawing_library(), "")
    shown = "seller = &lt;Mega&gt; or $5 or $6"
    assert f"<button>{shown}</button>" in page  # the heading of the column
    assert f"alpha&#39; = 0.4: the share of what is shown that may be items with {shown}" in page
    assert f"How often an item entered or left the group {shown} so far" in page
    text = (tmp_path / "longterm.md").read_text(encoding="utf-8")
    assert r"| seller = \<Mega\> or $5 or $6 |" in text
    for content in (page, text):
        assert "popular" not in content.lower()
    span = replace(SPAN, group=name)
    accumulated = accumulated_chart(steps, STYLES, span)
    assert accumulated.panels[2].title == f"Share of {name}, %"
    shown_title = accumulated.picture()["vconcat"][0]["concat"][2]["title"]["text"]
    assert shown_title.endswith("…")  # there is no room for all of it
    (line, _), *_ = marks(long_charts.control_chart(steps, STYLES, span).panels[0], "line")
    assert line["encoding"]["y"]["axis"]["title"] == f"{name}, %"
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary_table(steps, name))
    heading, rest = (line.rstrip() for line in capture.get().splitlines()[1:3])
    assert heading.endswith(" seller = <Mega> or")  # folded, above the rest of the name
    assert rest.endswith(" $5 or $6")
    assert "popular" not in capture.get().lower()


def test_the_lines_below_the_table_on_a_terminal(steps):
    limits = (
        LimitSummary("limit a=b", "fcpo", 0, 0, 0.1, reached=Spread(0.0998, 0.0)),
        LimitSummary("floor a=c", "fcpo", 0, 0, 0.2, True, Spread(0.2042, 0.0013)),
        LimitSummary("gini", "fcpo", 0.5, 0.021, 0.3, reached=Spread(0.321, 0.0)),
        LimitSummary("floor a=d", "fcpo", None, 0, 0.2, True, Spread(0.25, 0.0)),
    )
    rows = (RunSummary("fcpo", (0, 1), 4, {"seconds_per_step": Spread(0.25, 0.0)}),)
    assert closing_lines(LongTermResult(steps, {}, 0.4, 2, rows, limits)) == [
        "limit a=b: 9.98 % reached, must be at most 10 %; kept after the warm-up (fcpo)",
        "floor a=c: 20.42 ± 0.13 % reached, must be at least 20 %; kept after the warm-up (fcpo)",
        "gini: 32.10 % reached, must be at most 30 %; broken at 50.00 % of steps, by up to 2.10 "
        "points, after the warm-up (fcpo)",
        "floor a=d: 25.00 % reached, must be at least 20 %; not checked, no step comes after the "
        "warm-up (fcpo)",
        "Seconds per step: fcpo 0.250.",
    ]


def test_a_run_of_one_step_without_counts_is_reported(steps, tmp_path):
    first = steps.head(1)
    write_long_term_report(tmp_path, LongTermResult(first, {}, 0.4, 50), "")
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "1 step, 1 seed." in html
    assert long_charts.CHANGES_TITLE in html
    assert long_charts.RANKS_TITLE not in html


def test_without_a_step_there_is_nothing_to_report(steps, tmp_path):
    with pytest.raises(DataError, match="no steps to report"):
        write_long_term_report(tmp_path, LongTermResult(steps.clear(), {}, 0.4, 50), "")
    assert list(tmp_path.iterdir()) == []
