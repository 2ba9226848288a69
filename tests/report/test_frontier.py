import json

import pytest
from rich.console import Console
from specs import check_schema, colours, line_of, marks

from fairhorizon.metrics.spread import Spread
from fairhorizon.report.frontier import (
    Side,
    frontier_chart,
    frontier_sections,
    hypervolume_rows,
    hypervolume_table,
    sides_of,
    write_frontier,
)


@pytest.fixture
def curves(make_row):
    return {
        "ease+quota": [
            make_row("ease+quota", 0.8, ndcg=0.25, gini=0.8, popularity=0.8, std=0.004),
            make_row("ease+quota", 0.4, ndcg=0.2, gini=0.7, popularity=0.4),
        ],
        "<b>": [make_row("<b>", 0.5, ndcg=0.1, gini=0.9, popularity=0.5)],
        "lird": [make_row("lird", ndcg=0.05, gini=0.95, popularity=1.0)],
    }


def test_a_line_joins_the_levels_in_their_order(curves):
    of_gini, of_tail = frontier_chart(curves).panels
    assert line_of(of_gini, "ease+quota") == [(-70, 20), (-80, 25)]
    assert line_of(of_tail, "ease+quota") == [(pytest.approx(60), 20), (pytest.approx(20), 25)]
    assert line_of(of_tail, "lird") == [(0, 5)]
    check_schema(frontier_chart(curves))
    assert list(frontier_chart(curves).styles) == ["ease+quota", "<b>", "lird"]


def test_every_point_carries_its_level(curves):
    panel, _ = frontier_chart(curves).panels
    texts = marks(panel, "text")
    assert {mark["encoding"]["text"]["field"] for mark, _ in texts} == {"level"}
    shown = {
        (row["series"], row["level"])
        for mark, rows in texts
        for row in rows
        if mark["transform"][0]["filter"] == f"datum.side == '{row['side']}'"
    }
    levels = {("ease+quota", "0.4"), ("ease+quota", "0.8"), ("<b>", "0.5"), ("lird", "")}
    assert shown == levels


def test_texts_beside_points_do_not_overlap():
    apart = sides_of([(0.0, 0.0, 3), (1.0, 1.0, 3)])
    assert apart == [Side.ABOVE, Side.ABOVE]
    # the second lies right above the first: 1 of 34 letters
    crowd = sides_of([(0.0, 0.0, 3), (0.0, 1.0, 3), (9.0, 33.0, 3)])
    assert crowd[:2] == [Side.BELOW, Side.ABOVE]
    assert sides_of([(None, None, 3), (1.0, 1.0, 3)])[1] is Side.ABOVE
    assert Side.NONE in sides_of([(i / 100, i / 100, 4) for i in range(5)] + [(9.0, 9.0, 4)])


def test_a_level_that_was_not_measured_is_a_gap(make_row):
    row = make_row("fcpo", 0.4, metrics={"ndcg@20": Spread()})
    curves = {"fcpo": [row, make_row("fcpo", 0.8, ndcg=0.2, gini=0.5, popularity=0.5)]}
    assert [y for _, y in line_of(frontier_chart(curves).panels[0], "fcpo")] == [None, 20.0]
    assert frontier_chart(curves).png().startswith(b"\x89PNG")
    assert hypervolume_rows(curves)[0].gini_area == pytest.approx(0.2 * 0.5)


def test_a_point_says_its_numbers_on_hover(curves):
    chart_section, _ = frontier_sections(curves, subject="ml-100k")
    assert chart_section.title == "Accuracy against fairness, ml-100k"
    (chart,) = chart_section.parts
    assert [panel.title for panel in chart.panels] == [
        "NDCG@20 against negative Gini@20",
        "NDCG@20 against long-tail rate@20",
    ]
    ((points, rows),) = marks(chart.panels[0], "point")
    tips = {tip["title"]: tip["field"] for tip in points["encoding"]["tooltip"]}
    at_80 = {title: rows[1][field] for title, field in tips.items()}
    assert at_80 == {
        **{" ": "ease+quota", "Level": "0.8", "NDCG, %": "25.00 ± 0.40"},
        **{"Gini, %": "80.00", "popular, %": "80.00"},
    }


def test_one_colour_for_each_method_in_both_panels(curves):
    curves["ease"] = curves["lird"]
    by_panel = [colours(panel.spec) for panel in frontier_chart(curves).panels]
    assert by_panel[0] == by_panel[1]
    assert by_panel[0]["ease"] == by_panel[0]["ease+quota"]
    assert len(set(by_panel[0].values())) == 3


def test_the_page_opens_with_the_best_and_the_limits(curves, tmp_path):
    write_frontier(tmp_path, curves, 20)
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (
        '<p class="finding">ease+quota@0.8 is the most accurate, with an NDCG@20 of 25.00 %. Over '
        "all levels ease+quota dominates most: 13.00 % of NDCG x long-tail rate. All 3 limits on "
        "popular items were kept.</p>"
    ) in html.replace("\u00a0", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("frontier.csv", "frontier.json", "frontier.pdf", "frontier.png", "frontier.svg"),
        *("frontier.tex", "index.html"),
    ]


def test_areas_by_hand_largest_first(curves):
    rows = hypervolume_rows(curves)
    assert [row.method for row in rows] == ["ease+quota", "<b>", "lird"]
    assert [row.levels for row in rows] == [2, 1, 1]
    # (0.25, 0.2) and (0.2, 0.3): 0.05 * 0.2 + 0.2 * 0.3;  (0.25, 0.2) and (0.2, 0.6)
    assert rows[0].gini_area == pytest.approx(0.07)
    assert rows[0].popularity_area == pytest.approx(0.05 * 0.2 + 0.2 * 0.6)
    assert rows[1].popularity_area == pytest.approx(0.1 * 0.5)
    assert rows[2].popularity_area == 0
    assert json.loads(json.dumps(rows[2].to_json())) == {
        **{"method": "lird", "levels": 1, "popularity_area": 0.0},
        "gini_area": pytest.approx(0.05 * 0.05),
    }


def test_areas_on_a_terminal_and_on_a_page(curves):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(hypervolume_table(curves))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["ease+quota", "2", "7.00*", "13.00*"] in lines
    assert ["<b>", "1", "1.00+", "5.00+"] in lines
    assert ["lird", "1", "0.25", "0.00"] in lines
    (area,) = frontier_sections(curves)[1].parts
    assert (area.lines[0][3].text, area.lines[0][3].place) == ("13.00", 1)
