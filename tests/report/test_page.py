import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from specs import charts_of, check_schema

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.report import charts, page
from fairhorizon.report.charts import Axis, Chart, exposure_chart, panel, styles_of
from fairhorizon.report.page import (
    Page,
    Section,
    commands_section,
    glossary_section,
    results_section,
)
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
REWARDS = {"tight": [1.0, 2.0, 2.5], NASTY: [1.5, 3.0]}
POPULAR = np.arange(2000) < 400
COUNTS = {"skewed": np.arange(2000) ** 2, NASTY: np.ones(2000, dtype=np.int64)}


def training_chart():
    """Two panels with lines, the second with a limit too."""
    styles, x, y = styles_of(REWARDS), Axis("Round", whole=True), Axis("Reward")
    rows = [
        {"series": name, "x": number, "y": value, "marked": 1}
        for name, values in REWARDS.items()
        for number, value in enumerate(values, 1)
    ]
    lines = charts.lines(rows, charts.by_series(styles), x, y)
    panels = [panel([lines]), panel([lines, charts.limit_layer(2.0, 3, "limit", x, y)])]
    return Chart("Training", panels, styles)


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
        if {"td", "th"} & set(self.open):
            self.lines[-1][-1] += data
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def sections():
    return [
        results_section(ROWS, METRICS, [5, 20]),
        Section("Training", [training_chart()]),
        Section("Exposure", [exposure_chart(COUNTS, POPULAR, styles_of(COUNTS))]),
        glossary_section(METRICS, ("standard", "paper", "one-shot")),
        commands_section(["fairhorizon fit fcpo --data <file>", "fairhorizon evaluate runs/a"]),
    ]


@pytest.fixture(scope="module")
def html(sections, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "new" / "report.html"
    Page(title=NASTY, finding=NASTY, intro=NASTY, sections=sections).write(path)
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
    library = page.drawing_library()
    ours = html.replace(library, "")
    assert len(html) - len(ours) == len(library)  # there, and there once
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
    # title, heading, finding, introduction, two cells and two legends
    assert reader.text.count(NASTY) == 8
    assert "fairhorizon fit fcpo --data <file>\nfairhorizon evaluate runs/a" in reader.text
    assert "b" not in reader.tags


def test_the_glossary_explains_what_the_rows_use_and_no_more(reader):
    assert "share of a user's test items that the list found; more is better" in reader.text
    for used in ("training items stay recommendable", "never recommended again", "list at once"):
        assert used in reader.text
    assert "step by step" not in reader.text


def test_the_finding_opens_the_page(reader):
    words = reader.text.split("What the numbers")[0]
    classes = [value for tag, name, value in reader.attributes if (tag, name) == ("p", "class")]
    assert classes[:2] == ["finding", "intro"]
    assert words.index(NASTY) < words.index("Training")


def test_the_page_holds_the_charts_with_their_data_as_columns(html):
    reward, cost, exposure = charts_of(html)
    (lines,) = reward["layer"]
    assert lines["data"]["values"] == {
        "series": {"words": ["tight", NASTY], "numbers": [0, 0, 0, 1, 1]},
        **{"x": [1, 2, 3, 1, 2], "y": [1.0, 2.0, 2.5, 1.5, 3.0]},
        "marked": [1, 1, 1, 1, 1],
    }
    assert len(cost["layer"]) == 2  # with the limit
    assert (reward["width"], reward["height"]) == ("container", 280)
    assert exposure["layer"][0]["data"]["values"]["series"]["words"][1:] == ["skewed", NASTY]


@pytest.mark.slow
def test_every_chart_is_valid_by_the_schema_of_vega_lite(sections):
    for section in sections:
        for chart in section.parts:
            if isinstance(chart, Chart):
                check_schema(chart)


def test_templates_and_styles_are_files_of_the_package():
    folder = files("fairhorizon.report")
    assert "{{ page.finding" in (folder / "templates" / "page.html.j2").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in (folder / "style" / "page.css").read_text("utf-8")
    markup = re.compile(r"</?(html|table|section|div|span|td|tr|script|style|svg)\b")
    for file in folder.iterdir():
        if file.name.endswith(".py"):
            assert not markup.search(file.read_text(encoding="utf-8").replace("</script", "")), file


def test_a_page_without_charts_is_small(tmp_path):
    path = Page(title="t", finding="", intro="", sections=[]).write(tmp_path / "p.html")
    assert path.stat().st_size < 20_000


def test_a_group_by_an_attribute_is_called_by_its_name():
    name = "seller = <Mega>"
    metrics = ["popularity_rate", "exposure_ratio", "demographic_parity_gap", "exact_k_violation"]
    table = results_section([replace(ROWS[0], group=name)], metrics, [5])
    (grid,) = table.parts
    assert grid.headings[-4] == name
    glossary = glossary_section(metrics, ("standard",), name)
    (definitions,) = glossary.parts
    assert definitions.meanings["alpha'"] == (
        "the limit: the largest share of items with seller = <Mega> in a list"
    )
    exposure = exposure_chart(COUNTS, POPULAR, styles_of(COUNTS), name)
    assert exposure.label(NASTY).endswith("Gini 0.0%, items with seller = <Mega> 20.0%")
    html = Page("", "", "", [table, glossary, Section("Exposure", [exposure])]).html()
    ours = html.replace(page.drawing_library(), "")
    assert "<button>seller = &lt;Mega&gt;</button>" in ours
    assert "popular" not in ours.lower()


def test_the_same_input_gives_the_same_page(tmp_path):
    first, second = (
        Page("t", "f", "i", [Section("T", [training_chart()])]).write(tmp_path / name).read_bytes()
        for name in ("a.html", "b.html")
    )
    assert first == second


def test_titles_must_differ():
    with pytest.raises(ValueError, match="two sections of a page have the same title"):
        Page("t", "f", "i", [Section("One", []), Section("One", [])]).html()


def test_a_failed_write_keeps_the_old_page_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "p.html"
    Page(title="old", finding="", intro="", sections=[]).write(path)
    old = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(page.Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        Page(title="new", finding="", intro="", sections=[Section("S", [], "note")]).write(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == old
