import math
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

from fairhorizon.report.figures import COLOURS, exposure_label, exposure_plot, training_curves
from fairhorizon.results.evaluation import TrainingHistory

HISTORIES = {
    "tight": TrainingHistory([1, 2, 3], [1.0, 2.0, 2.5], [9.0, 6.0, 5.0], 5.0),
    "loose": TrainingHistory([1, 2], [1.5, 3.0], [9.0, 9.5], 10.0),
}
POPULAR = np.array([True, False, False, False])
COUNTS = {"one": np.array([8, 0, 0, 0]), "even": np.array([2, 2, 2, 2])}


def dashed(axes):
    return [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]


def solid(axes):
    return [line for line in axes.lines if line.get_linestyle() == "-"]


def test_training_curves_show_the_histories():
    reward, cost = training_curves(HISTORIES).axes
    for axes, key in ((reward, "reward"), (cost, "cost")):
        for line, history in zip(solid(axes), HISTORIES.values(), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), history.rounds)
            np.testing.assert_array_equal(line.get_ydata(), getattr(history, key))


def test_each_cost_has_its_limit_dashed_in_its_colour():
    reward, cost = training_curves(HISTORIES).axes
    assert [line.get_ydata()[0] for line in dashed(cost)] == [5.0, 10.0]
    assert [line.get_color() for line in dashed(cost)] == [line.get_color() for line in solid(cost)]
    assert dashed(reward) == []


def test_no_limit_no_line():
    _, cost = training_curves({"free": replace(HISTORIES["loose"], limit=math.inf)}).axes
    assert dashed(cost) == []


def test_the_legend_names_every_run_and_the_limit():
    (legend,) = training_curves(HISTORIES).legends
    assert [text.get_text() for text in legend.get_texts()] == ["tight", "loose", "limit"]


def test_lorenz_curves_with_the_diagonal():
    (axes,) = exposure_plot(COUNTS, POPULAR).axes
    (equality,) = dashed(axes)
    np.testing.assert_array_equal(equality.get_xydata(), [[0, 0], [1, 1]])
    one, even = solid(axes)
    np.testing.assert_allclose(one.get_ydata(), [0, 0, 0, 0, 1])
    np.testing.assert_allclose(even.get_ydata(), [0, 1 / 4, 1 / 2, 3 / 4, 1])
    np.testing.assert_allclose(one.get_xdata(), even.get_ydata())


def test_the_legend_gives_gini_and_the_share_of_the_popular():
    (legend,) = exposure_plot(COUNTS, POPULAR).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "all items alike",
        "one: Gini 75.0%, popular items 100.0%",
        "even: Gini 0.0%, popular items 25.0%",
    ]
    assert exposure_label("none", np.zeros(4), POPULAR) == "none: Gini 0.0%, nothing shown"


def test_a_group_by_an_attribute_is_called_by_its_name():
    figure = exposure_plot(COUNTS, POPULAR, "price = $1 or $2")
    figure.savefig(BytesIO(), format="png")  # dollars are no mathematics
    texts = [text.get_text().replace(r"\$", "$") for text in figure.legends[0].get_texts()]
    assert texts[1] == "one: Gini 75.0%, items with price = $1 or $2 100.0%"


def test_more_curves_than_colours_are_all_drawn():
    many = {str(i): COUNTS["one"] for i in range(len(COLOURS) + 2)}
    (axes,) = exposure_plot(many, POPULAR).axes
    assert len(solid(axes)) == len(COLOURS) + 2


@pytest.mark.parametrize(
    "figure",
    [training_curves(HISTORIES), exposure_plot(COUNTS, POPULAR)],
    ids=["training", "lorenz"],
)
def test_figures_are_saved_without_a_display(figure):
    file = BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
