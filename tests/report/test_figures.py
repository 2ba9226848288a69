import numpy as np
from specs import colours, line_of

from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report import charts
from fairhorizon.report.charts import (
    EVEN,
    GREY,
    LOG,
    MOST_POINTS,
    PALETTE,
    exposure_chart,
    exposure_label,
    styles_of,
)

POPULAR = np.array([True, False, False, False])
COUNTS = {"one": np.array([8, 0, 0, 0]), "even": np.array([2, 2, 2, 2])}


def test_lorenz_curves_with_the_diagonal():
    (panel,) = exposure_chart(COUNTS, POPULAR, styles_of(COUNTS)).panels
    assert line_of(panel, EVEN) == [(0, 0), (1, 1)]
    assert line_of(panel, "one") == [(0, 0), (0.25, 0), (0.5, 0), (0.75, 0), (1, 1)]
    assert line_of(panel, "even") == [(n / 4, n / 4) for n in range(5)]


def test_a_large_catalogue_is_thinned_for_the_screen():
    counts = np.arange(20_000) ** 2
    (panel,) = exposure_chart({"skewed": counts}, counts > 0, {}).panels
    x, y = np.transpose(line_of(panel, "skewed"))
    assert len(x) == MOST_POINTS
    np.testing.assert_allclose(y, np.interp(x, *lorenz_curve(counts)), atol=2e-5)


def test_the_legend_gives_gini_and_the_share_of_the_group():
    chart = exposure_chart(COUNTS, POPULAR, styles_of(COUNTS))
    assert [chart.label(series) for series in chart.styles] == [
        "all items alike",
        "one: Gini 75.0%, popular items 100.0%",
        "even: Gini 0.0%, popular items 25.0%",
    ]
    assert exposure_label("none", np.zeros(4), POPULAR) == "none: Gini 0.0%, nothing shown"
    assert f"one: Gini {100 * gini(COUNTS['one']):.1f}%" in chart.label("one")
    named = exposure_chart(COUNTS, POPULAR, {}, "price = $1 or $2")
    assert named.label("one") == "one: Gini 75.0%, items with price = $1 or $2 100.0%"


def test_a_method_has_its_colour_and_the_log_none_of_theirs():
    counts = {LOG: COUNTS["one"], "tight": COUNTS["even"], "loose": COUNTS["one"]}
    found = colours(exposure_chart(counts, POPULAR, styles_of(["tight", "loose"])).panels[0].spec)
    assert found == {EVEN: GREY, LOG: GREY, "tight": PALETTE[0], "loose": PALETTE[1]}


def test_the_same_chart_as_a_picture(monkeypatch):
    monkeypatch.setattr(charts, "SHARPNESS", 2.0)  # as users see it
    picture = exposure_chart(COUNTS, POPULAR, styles_of(COUNTS)).png()
    assert picture.startswith(b"\x89PNG")
    width, height = (int.from_bytes(picture[i : i + 4], "big") for i in (16, 20))
    assert width > 1200
    assert height > 600
