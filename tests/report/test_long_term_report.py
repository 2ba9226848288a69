import json
import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from fairhorizon.errors import DataError
from fairhorizon.exposure.groups import popular_group
from fairhorizon.report import churn, control, over_time
from fairhorizon.report.churn import SAMPLE, Move, exposure_ranks, first_runs, tracks
from fairhorizon.report.long_term import (
    accumulated_figure,
    accumulated_section,
    closing_lines,
    write_long_term_report,
)
from fairhorizon.report.long_term_table import summary_markdown, summary_section, summary_table
from fairhorizon.report.over_time import Span
from fairhorizon.results.long_term import CountsOverTime, LimitSummary, LongTermResult, RunSummary
from fairhorizon.results.spread import Spread

NASTY = "<b>m&m</b>"
PNG = b"\x89PNG\r\n\x1a\n"
SPAN = Span(first=1, last=4, warm_up=2, alpha_prime=0.4)


def row(method, seed, step, **values):
    numbers = {
        "ndcg": 0.1,
        "recall": 0.2,
        "gini": 0.5,
        "popularity_rate": 0.3,
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
            popularity_rate={1: 0.5, 2: 0.5, 3: 0.4, 4: 0.48}[step],
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


def charts(section):
    """The traces and the layout of each chart of a section."""
    decoder, found = json.JSONDecoder(), []
    for part in section.html.split("Plotly.newPlot(")[1:]:
        traces, end = decoder.raw_decode(part, part.index("["))
        layout, _ = decoder.raw_decode(part, part.index("{", end))
        found.append((traces, layout))
    return found


def limits(layout):
    """Heights of the lines that cross a whole panel."""
    return [shape["y0"] for shape in layout["shapes"] if shape["type"] == "line"]


def shades(layout):
    return {(shape["x0"], shape["x1"]) for shape in layout["shapes"] if shape["type"] == "rect"}


# lines and bands


def test_a_line_is_the_mean_of_its_seeds_and_the_band_their_extremes(steps):
    line = over_time.lines(steps, "ndcg")["fcpo"]
    assert line.steps.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(line.mean, [11, 21, 31, 41])
    np.testing.assert_allclose(line.low, [10, 20, 30, 40])
    np.testing.assert_allclose(line.high, [12, 22, 32, 42])
    assert line.has_band
    assert not over_time.lines(steps.filter(pl.col("seed") == 0), "ndcg")["fcpo"].has_band


def test_steps_without_a_value_are_left_out_and_a_seed_without_one_is_not_a_zero():
    rows = [row("a", 0, 1, ndcg=math.nan), row("a", 0, 2, ndcg=0.5), row("a", 1, 2, ndcg=None)]
    line = over_time.lines(frame(rows), "ndcg")["a"]
    assert (line.steps.tolist(), line.mean.tolist()) == ([2], [50.0])
    blank = over_time.lines(frame(rows[:1]), "ndcg")["a"]
    assert (len(blank.mean), blank.has_band) == (0, False)


def test_methods_keep_the_order_of_their_rows(steps):
    assert list(over_time.lines(steps, "gini")) == ["fcpo", NASTY]
    assert list(over_time.lines(steps.reverse(), "gini")) == [NASTY, "fcpo"]


# Figure 4


def test_figure_4_draws_lines_bands_limit_and_warm_up(steps):
    figure = accumulated_figure(steps, SPAN)
    ndcg, gini, popular = figure.axes
    np.testing.assert_allclose(ndcg.lines[0].get_xydata(), [[1, 11], [2, 21], [3, 31], [4, 41]])
    np.testing.assert_allclose(gini.lines[0].get_ydata(), [45] * 4)
    np.testing.assert_allclose(popular.lines[1].get_ydata(), [50, 50, 40, 48])
    (band,) = gini.collections  # of fcpo: the seeds of the other are alike
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [40, 50])
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 3]
    assert list(popular.lines[2].get_ydata()) == [40, 40]
    for axes in figure.axes:
        (warm_up,) = axes.patches
        assert (warm_up.get_x(), warm_up.get_width()) == (1, 1)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["fcpo", NASTY, "limit, 40 %", "warm-up, 2 steps"]


def test_the_page_has_figure_4_and_its_legend_hides_a_method_in_all_panels(steps):
    section = accumulated_section(steps, SPAN)
    ((traces, layout),) = charts(section)
    # of each method a band and a line in each of three panels
    assert len(traces) == 2 * 2 * 3
    band, line = traces[:2]
    assert line["x"] == [1, 2, 3, 4]
    np.testing.assert_allclose(line["y"], [11, 21, 31, 41])
    assert band["x"] == [1, 2, 3, 4, 4, 3, 2, 1]
    np.testing.assert_allclose(band["y"], [12, 22, 32, 42, 40, 30, 20, 10])
    assert {trace["name"] for trace in traces[6:]} == {"&lt;b&gt;m&amp;m&lt;/b&gt;"}
    assert [trace["yaxis"] for trace in traces[6:]] == ["y", "y", "y2", "y2", "y3", "y3"]
    assert limits(layout) == [40]
    assert shades(layout) == {(1, 2)}
    assert 'data-trace="0 1 2 3 4 5" aria-pressed="true"' in section.html
    assert 'data-trace="6 7 8 9 10 11" aria-pressed="true"' in section.html
    assert section.note.endswith(
        "Lines are means over seeds, bands reach from the lowest seed to the highest; dashed: the "
        "limit; grey: the warm-up."
    )


def test_one_seed_has_no_band(steps):
    one = steps.filter(pl.col("seed") == 0)
    section = accumulated_section(one, SPAN)
    ((traces, _),) = charts(section)
    assert [trace["x"] for trace in traces[::2]] == [[]] * 6
    assert [trace["x"] for trace in traces[1::2]] == [[1, 2, 3, 4]] * 6
    assert all(len(axes.collections) == 0 for axes in accumulated_figure(one, SPAN).axes)
    assert "One seed; dashed" in section.note


def test_no_limit_and_no_warm_up_are_not_drawn(steps):
    free = replace(SPAN, warm_up=0, alpha_prime=1.0)
    figure = accumulated_figure(steps, free)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2]
    assert [len(axes.patches) for axes in figure.axes] == [0, 0, 0]
    ((_, layout),) = charts(accumulated_section(steps, free))
    assert "shapes" not in layout


def test_what_nobody_measured_is_said(steps):
    blank = steps.with_columns(ndcg=pl.lit(math.nan))
    words = "no user has relevant items"
    drawn = accumulated_figure(blank, SPAN)
    shown = [[text.get_text() for text in axes.texts] for axes in drawn.axes]
    assert shown == [[words], [], []]
    ((traces, layout),) = charts(accumulated_section(blank, SPAN))
    assert [note["text"] for note in layout["annotations"]].count(words) == 1
    assert traces[1]["y"] == []


# the limit at every moment


def test_what_is_over_the_limit_counts_after_the_warm_up_alone(steps):
    running = over_time.lines(steps, "popularity_rate")[NASTY]
    after, upper = control.over_limit(running, SPAN)
    assert after.tolist() == [3, 4]
    np.testing.assert_allclose(upper, [40, 48])  # never below the limit


def test_the_verdict_gives_the_mean_share_and_the_worst_overshoot(steps):
    assert control.verdict(steps, "fcpo", SPAN) == "never over the limit after the warm-up"
    words = "over the limit at 50.0 % of steps, by up to 10.0 points"
    assert control.verdict(steps, NASTY, SPAN) == words
    early = steps.filter(pl.col("step") <= 1)
    assert control.verdict(early, NASTY, SPAN) == "no step after the warm-up yet"


def test_control_panels_share_their_axis_and_hold_all_lines(steps):
    first, second = control.control_figure(steps, SPAN).axes
    assert first.get_ylim() == second.get_ylim() == (0, pytest.approx(1.05 * 50))
    for axes, running in ((first, [30] * 4), (second, [50, 50, 40, 48])):
        drawn = [line.get_ydata() for line in axes.lines]
        np.testing.assert_allclose(drawn[:3], [[35] * 4, [25] * 4, running])
        assert list(drawn[3]) == [40, 40]


def test_control_on_the_page(steps):
    section = control.control_section(steps, SPAN)
    panels = charts(section)
    assert len(panels) == 2
    for traces, layout in panels:
        assert layout["yaxis"]["range"] == [0, pytest.approx(1.05 * 50)]
        assert limits(layout) == [40]
        assert traces[1]["name"] == "this step, by the groups at the start"
    *_, area = panels[1][0]
    assert area["x"] == [3, 4, 4, 3]
    np.testing.assert_allclose(area["y"], [40, 48, 40, 40])
    assert section.html.count("<h3>") == 2
    assert "<h3>&lt;b&gt;m&amp;m&lt;/b&gt;</h3>" in section.html
    ids = re.findall(r'<div id="(chart-[0-9a-f]{8})"', section.html)
    assert f'data-chart="{" ".join(ids)}" data-trace="2 3"' in section.html


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
        Move.STAYED: [4, 5, 6, 7, 8, 9],
        Move.RETURNED: [1, 3],
        Move.LEFT: [0],
        Move.ENTERED: [2],
    }
    assert own.ranks[:, :4].tolist() == [[1, 2, 3, 4], [3, 4, 1, 2], [4, 2, 1, 3]]
    assert (own.group_size, own.boundary) == (2, 2.5)
    assert own.remark() == "of 10 items 1 entered, 1 left, 2 came back"


def test_of_many_items_a_sample_spread_over_the_time_of_their_first_change():
    # in group G0 of 100 the item t gives way to item 100 + t at moment t + 1
    labels = np.zeros((101, 200), dtype=bool)
    for moment in range(101):
        labels[moment, moment : moment + 100] = True
    own = tracks(CountsOverTime(np.arange(101), labels.astype(np.int64), labels))
    entered = own.drawn(Move.ENTERED).tolist()
    assert len(entered) == SAMPLE[Move.ENTERED]
    assert (entered[0], entered[-1]) == (100, 199)
    assert set(np.diff(entered)) <= {7, 8}  # 99 / 14
    assert own.drawn(Move.STAYED).size == own.drawn(Move.RETURNED).size == 0
    assert len(own.steps) == churn.MOMENTS
    assert sum(SAMPLE.values()) <= 60


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


def test_churn_figure_has_the_boundary_the_items_and_the_changes(steps, counts):
    figure = churn.churn_figure(steps, {"fcpo": tracks(counts)}, SPAN)
    ranks, changes = figure.axes
    assert list(ranks.lines[0].get_ydata()) == [2.5, 2.5]
    assert ranks.get_ylim() == (10, 1)
    assert ranks.get_xlim() == (0, 4)
    by_move = dict(zip(Move, ranks.collections, strict=True))
    (entered,) = by_move[Move.ENTERED].get_segments()
    assert entered.tolist() == [[0, 3], [2, 1], [4, 1]]
    assert [len(lines.get_segments()) for lines in by_move.values()] == [6, 2, 1, 1]
    np.testing.assert_allclose(changes.lines[0].get_ydata(), [2] * 4)
    np.testing.assert_allclose(changes.lines[1].get_ydata(), [2] * 4)  # mean of 0 and 4


def test_churn_on_the_page(steps, counts):
    ranks, changes = churn.churn_sections(steps, {NASTY: tracks(counts)}, SPAN)
    ((traces, layout),) = charts(ranks)
    assert [trace["name"] for trace in traces] == [move.value for move in Move]
    left = traces[2]
    assert left["x"] == [0, 2, 4, None]
    np.testing.assert_allclose(left["y"][:3], np.sqrt([1, 3, 4]), atol=0.005)
    assert left["customdata"] == [[0, 1], [0, 3], [0, 4], None]
    assert limits(layout) == [pytest.approx(math.sqrt(2.5))]
    assert layout["yaxis"]["range"] == [pytest.approx(math.sqrt(10)), 1]
    assert "<h3>&lt;b&gt;m&amp;m&lt;/b&gt;</h3>" in ranks.html
    ((traces, _),) = charts(changes)
    assert traces[1]["y"] == [2, 2, 2, 2]


def test_ticks_of_ranks_are_round_and_apart():
    assert churn.rank_ticks(1682) == [1, 50, 200, 500, 1000]
    assert churn.rank_ticks(4) == [1, 2]


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
    assert section.html.count("<details open>") == 1
    assert section.html.count("<details>") == 2


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


# all of it


@pytest.fixture(scope="module")
def folder(steps, counts, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    runs = {("fcpo", 0): counts, (NASTY, 0): counts}
    result = LongTermResult(steps, runs, 0.4, 2, settings={"steps": 4})
    write_long_term_report(out, result, "fairhorizon longterm --out <run>")
    return out


def test_every_file_is_there_and_the_figures_are_pictures(folder):
    names = ["churn.png", "control.png", "figure4.png"]
    names += ["longterm.html", "longterm.json", "longterm.md"]
    assert sorted(file.name for file in folder.iterdir()) == names
    content = json.loads((folder / "longterm.json").read_text(encoding="utf-8"))
    assert content == {"rows": [], "limits": [], "settings": {"steps": 4}}
    for name in names[:3]:
        assert (folder / name).read_bytes().startswith(PNG)


def test_names_and_commands_are_shown_as_written(folder):
    html = (folder / "longterm.html").read_text(encoding="utf-8")
    assert NASTY not in html
    assert html.count("<h3>&lt;b&gt;m&amp;m&lt;/b&gt;</h3>") == 2
    assert "fairhorizon longterm --out &lt;run&gt;" in html
    assert "4 steps, 2 seeds." in html
    assert "the first 2 steps, in which going above the limit is not counted" in html


def test_further_limits_and_a_fixed_group_are_on_the_page(steps, tmp_path):
    limits = (LimitSummary("floor a<b=c", "fcpo", 0.125, 0.0301, 0.3, True, Spread(0.2699, 0.001)),)
    result = LongTermResult(steps, {}, 0.4, 2, limits=limits, group="genre = War")
    write_long_term_report(tmp_path, result, "")
    page = (tmp_path / "longterm.html").read_text(encoding="utf-8")
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
    page = (tmp_path / "longterm.html").read_text(encoding="utf-8")
    assert "the groups change during the run. 4 steps, 2 seeds." in page
    assert "Further limits" not in page


def test_a_group_by_an_attribute_is_called_by_its_name(steps, counts, tmp_path):
    name = "seller = <Mega> or $5 or $6"
    # counts under which the items of the seller happen to be the most shown
    result = LongTermResult(steps, {("fcpo", 0): counts}, 0.4, 2, group=name)
    write_long_term_report(tmp_path, result, "")
    page = (tmp_path / "longterm.html").read_text(encoding="utf-8").replace(get_plotlyjs(), "")
    shown = "seller = &lt;Mega&gt; or $5 or $6"
    assert f"<button>{shown}</button>" in page  # the heading of the column
    assert f"alpha&#x27; = 0.4: the share of what is shown that may be items with {shown}" in page
    assert f"How many items entered or left the group {shown} at that step" in page
    text = (tmp_path / "longterm.md").read_text(encoding="utf-8")
    assert r"| seller = \<Mega\> or $5 or $6 |" in text
    for content in (page, text):
        assert "popular" not in content.lower()
    span = replace(SPAN, group=name)
    drawn = [
        *(axes.get_title(loc="left") for axes in accumulated_figure(steps, span).axes),
        *(axes.get_ylabel() for axes in control.control_figure(steps, span).axes),
    ]
    assert drawn[2].replace(r"\$", "$") == f"Share of {name}"[:33] + "…, %"
    assert drawn[3].replace(r"\$", "$") == f"{name}, %"
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
    html = (tmp_path / "longterm.html").read_text(encoding="utf-8")
    assert "1 step, 1 seed." in html
    assert churn.CHANGES_TITLE in html
    assert churn.RANKS_TITLE not in html


def test_without_a_step_there_is_nothing_to_report(steps, tmp_path):
    with pytest.raises(DataError, match="no steps to report"):
        write_long_term_report(tmp_path, LongTermResult(steps.clear(), {}, 0.4, 50), "")
    assert list(tmp_path.iterdir()) == []
