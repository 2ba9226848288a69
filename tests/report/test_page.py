import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest

from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report import page
from fairhorizon.report.page import (
    Section,
    chart_section,
    commands_section,
    exposure_section,
    glossary_section,
    results_section,
    training_section,
    write_page,
)
from fairhorizon.results.evaluation import EvaluationRow, TrainingHistory
from fairhorizon.vocabulary import Mode, Protocol

VOID = {"meta", "br", "img", "link", "hr", "input"}
NASTY = "<b>fair & </b></script>\"'"
METRICS = ["recall", "gini", "exposure_ratio"]
ROWS = [
    EvaluationRow(
        dataset="ml-100k",
        method=method,
        protocol=protocol,
        mode=Mode.ONE_SHOT,
        seed=7,
        alpha_prime=0.4,
        metrics={"recall@5": recall, "recall@20": 0.25, "gini@5": 0.5, "exposure_ratio@5": 1.5},
    )
    for method, protocol, recall in (
        ("fcpo", Protocol.STANDARD, 0.01234),
        (NASTY, Protocol.PAPER, 0.5),
    )
]
HISTORIES = {
    "tight": TrainingHistory([1, 2, 3], [1.0, 2.0, 2.5], [9.0, 6.0, 5.0], 5.0),
    NASTY: TrainingHistory([1, 2], [1.5, 3.0], [9.0, 9.5], math.inf),
}
POPULAR = np.arange(2000) < 400
COUNTS = {"skewed": np.arange(2000) ** 2, NASTY: np.ones(2000, dtype=np.int64)}


class Reader(HTMLParser):
    """Collects tags, table cells and text outside scripts; fails where tags do not match."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.lines, self.text = [], [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        if tag in ("td", "th"):
            self.lines[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.lines[-1][-1] += data
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def chart_data(section):
    """The traces that a section hands to plotly."""
    start = section.html.index("[", section.html.index("Plotly.newPlot("))
    return json.JSONDecoder().raw_decode(section.html, start)[0]


@pytest.fixture(scope="module")
def sections():
    return [
        results_section(ROWS, METRICS, [5, 20]),
        training_section(HISTORIES),
        exposure_section(COUNTS, POPULAR),
        glossary_section(METRICS, ("standard", "paper", "one-shot")),
        commands_section(["fairhorizon fit fcpo --data <file>", "fairhorizon evaluate runs/a"]),
    ]


@pytest.fixture(scope="module")
def html(sections, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "new" / "report.html"
    write_page(path, title=NASTY, intro=NASTY, sections=sections)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader(html):
    return Reader(html)


def test_every_tag_is_closed_and_every_section_is_there(reader, sections):
    assert reader.open == []
    assert reader.tags.count("section") == reader.tags.count("h2") == len(sections)


def test_nothing_is_loaded_from_elsewhere(reader, html):
    loading = {"src", "href", "srcset", "data", "action", "poster"}
    assert [found for found in reader.attributes if found[1] in loading] == []
    ours = html.replace(page.get_plotlyjs(), "")
    assert len(html) - len(ours) == len(page.get_plotlyjs())  # there, and there once
    assert re.findall(r"https?://|@import|url\(", ours) == []
    policy = next(value for tag, name, value in reader.attributes if "default-src" in (value or ""))
    assert policy.startswith("default-src 'none'")


def test_the_table_holds_the_rows_as_given(reader):
    assert reader.lines == [
        ["Data", "Method", "alpha'", "Protocol", "Mode", "Seed", "K", "Recall", "Gini", "G0/G1"],
        ["ml-100k", "fcpo", "0.4", "standard", "one-shot", "7", "5", "1.23", "50.00", "1.50"],
        ["ml-100k", "fcpo", "0.4", "standard", "one-shot", "7", "20", "25.00", "-", "-"],
        ["ml-100k", NASTY, "0.4", "paper", "one-shot", "7", "5", "50.00", "50.00", "1.50"],
        ["ml-100k", NASTY, "0.4", "paper", "one-shot", "7", "20", "25.00", "-", "-"],
    ]


def test_text_is_shown_as_written(reader):
    assert reader.text.count(NASTY) == 5  # title, heading, introduction and two cells
    assert "fairhorizon fit fcpo --data <file>\nfairhorizon evaluate runs/a" in reader.text
    assert "b" not in reader.tags


def test_the_glossary_explains_what_the_rows_use_and_no_more(reader):
    assert "share of a user's test items that the list found; more is better" in reader.text
    for used in ("training items stay recommendable", "never recommended again", "list at once"):
        assert used in reader.text
    assert "step by step" not in reader.text


def test_training_chart_holds_the_histories():
    traces = chart_data(training_section(HISTORIES))
    assert [trace["y"] for trace in traces] == [
        [1.0, 2.0, 2.5],
        [9.0, 6.0, 5.0],
        [5.0, 5.0],  # the limit; the second run has none
        [1.5, 3.0],
        [9.0, 9.5],
    ]
    assert [trace["x"] for trace in traces[:3]] == [[1, 2, 3], [1, 2, 3], [1, 3]]
    assert traces[2]["line"]["dash"] == "dash"
    assert traces[3]["name"] == "&lt;b&gt;fair &amp; &lt;/b&gt;&lt;/script&gt;\"'"


def test_exposure_chart_is_the_lorenz_curve_thinned_for_the_screen():
    diagonal, skewed, even = chart_data(exposure_section(COUNTS, POPULAR))
    assert (diagonal["x"], diagonal["y"]) == ([0, 1], [0, 1])
    assert len(skewed["x"]) == page.MAX_POINTS + 1
    whole = lorenz_curve(COUNTS["skewed"])
    np.testing.assert_allclose(skewed["y"], np.interp(skewed["x"], *whole), rtol=1e-12)
    np.testing.assert_allclose(even["x"], even["y"], rtol=1e-12)
    assert skewed["name"].startswith(f"skewed: Gini {100 * gini(COUNTS['skewed']):.1f}%")
    assert even["name"].endswith(": Gini 0.0%, popular items 20.0%")


def test_a_group_by_an_attribute_is_called_by_its_name():
    name = "seller = <Mega>"
    metrics = ["popularity_rate", "exposure_ratio", "demographic_parity_gap", "exact_k_violation"]
    table = results_section([replace(ROWS[0], group=name)], metrics, [5])
    assert "<th>seller = &lt;Mega&gt;</th>" in table.html
    glossary = glossary_section(metrics, ("standard",), name)
    meaning = "the limit: the largest share of items with seller = &lt;Mega&gt; in a list"
    assert meaning in glossary.html
    exposure = exposure_section(COUNTS, POPULAR, name)
    traces = chart_data(exposure)
    assert traces[2]["name"].endswith("Gini 0.0%, items with seller = &lt;Mega&gt; 20.0%")
    for section in (table, glossary, exposure):
        assert "popular" not in section.html.lower()
        assert "popular" not in section.note.lower()


def test_a_small_catalogue_is_drawn_whole():
    trace = chart_data(
        exposure_section({"few": np.array([3, 0, 1])}, np.array([True, False, False]))
    )
    np.testing.assert_allclose(trace[1]["y"], [0, 0, 1 / 4, 1])


def test_the_same_input_gives_the_same_page(tmp_path):
    first, second = (
        write_page(
            tmp_path / name, title="t", intro="i", sections=[training_section(HISTORIES)]
        ).read_bytes()
        for name in ("a.html", "b.html")
    )
    assert first == second


def test_charts_have_ids_of_their_own_and_titles_must_differ(tmp_path):
    charts = [chart_section(title, go.Figure()) for title in ("One", "Two")]
    ids = [re.search(r'id="(chart-[0-9a-f]{8})"', chart.html)[1] for chart in charts]
    assert ids[0] != ids[1]
    with pytest.raises(ValueError, match="two sections of a page have the same title"):
        write_page(tmp_path / "p.html", title="t", intro="i", sections=[charts[0], charts[0]])


def test_a_failed_write_keeps_the_old_page_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "p.html"
    write_page(path, title="old", intro="", sections=[])
    old = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(page.Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(path, title="new", intro="", sections=[Section("S", "<p>x</p>", "note")])
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == old
