import json
import math
from io import BytesIO

import numpy as np
import pytest
from rich.console import Console

from fairhorizon.report.frontier import (
    frontier_figure,
    frontier_sections,
    hypervolume_rows,
    hypervolume_table,
)
from fairhorizon.report.series import styles
from fairhorizon.results.spread import Spread


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


def chart_data(section):
    start = section.html.index("[", section.html.index("Plotly.newPlot("))
    return json.JSONDecoder().raw_decode(section.html, start)[0]


def test_the_figure_joins_the_levels_in_their_order(curves):
    figure = frontier_figure(curves)
    of_gini, of_tail = figure.axes
    np.testing.assert_allclose(of_gini.lines[0].get_xydata(), [[-70, 20], [-80, 25]])
    np.testing.assert_allclose(of_tail.lines[0].get_xydata(), [[60, 20], [20, 25]])
    np.testing.assert_allclose(of_tail.lines[2].get_xydata(), [[0, 5]])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ease+quota", "<b>", "lird"]


def test_the_legend_of_twenty_series_lies_outside_of_both_panels(make_row):
    many = {f"method{i}+quota": [make_row("m", 0.1 * i)] for i in range(20)}
    figure = frontier_figure(many)
    figure.savefig(BytesIO(), format="png")  # lays it out
    legend = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        assert not legend.overlaps(axes.get_tightbbox())
        assert axes.get_window_extent().height > 0.5 * figure.bbox.height


def test_a_level_that_was_not_measured_is_a_gap(make_row):
    row = make_row("fcpo", 0.4, metrics={"ndcg@20": Spread()})
    curves = {"fcpo": [row, make_row("fcpo", 0.8, ndcg=0.2, gini=0.5, popularity=0.5)]}
    assert chart_data(frontier_sections(curves)[0])[0]["y"] == [None, 20.0]
    drawn = frontier_figure(curves).axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(np.array(drawn, dtype=float), [math.nan, 20.0])
    assert hypervolume_rows(curves)[0].gini_area == pytest.approx(0.2 * 0.5)


def test_the_charts_hold_the_curves_and_say_them_on_hover(curves):
    of_gini, of_tail, _ = frontier_sections(curves, subject="ml-100k")
    assert of_gini.title == "NDCG@20 against negative Gini@20, ml-100k"
    assert of_tail.title == "NDCG@20 against long-tail rate@20, ml-100k"
    quota, nasty, lird = chart_data(of_gini)
    np.testing.assert_allclose(quota["x"], [-70, -80])
    np.testing.assert_allclose(quota["y"], [20, 25])
    assert quota["text"][1] == (
        "<b>ease+quota</b> at 0.8<br>NDCG 25.00 ± 0.40<br>Gini 80.00<br>popular 80.00"
    )
    assert nasty["text"][0].startswith("<b>&lt;b&gt;</b> at 0.5<br>")
    assert lird["text"][0].startswith("<b>lird</b><br>NDCG 5.00")
    np.testing.assert_allclose(chart_data(of_tail)[0]["x"], [60, 20])


def test_the_legend_names_the_traces_in_their_order(curves):
    section = frontier_sections(curves)[0]
    legend = section.html[: section.html.index("Plotly.newPlot(")]
    for number, name in enumerate(["ease+quota", "&lt;b&gt;", "lird"]):
        button = legend.split(f'data-trace="{number}"')[1].split("</button>")[0]
        assert button.endswith(f"</svg>{name}")


def test_no_two_of_many_series_look_alike():
    names = [f"m{i}+r{j}" for i in range(50) for j in range(5)] + [f"m{i}" for i in range(50)]
    looks = styles(names)
    assert len(set(looks.values())) == len(names)
    assert looks["m3+r1"].colour == looks["m3"].colour
    assert looks["m3+r1"].dashes == looks["m4+r1"].dashes
    assert looks["m3"].plotly_dash == "solid"
    assert looks["m3"].matplotlib_dash == (0, None)


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
    assert "<strong>13.00</strong>" in frontier_sections(curves)[2].html
