"""The page in a real browser: what is drawn, what a click does, light and dark, on a phone."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.limits.groups import popular_group
from fairhorizon.metrics.spread import Spread
from fairhorizon.report.charts import PALETTE
from fairhorizon.report.comparison import comparison_section, significance_section
from fairhorizon.report.efficiency import efficiency_section
from fairhorizon.report.frontier import frontier_sections
from fairhorizon.report.long_term import write_long_term_report
from fairhorizon.report.page import Page
from fairhorizon.studies.compare import SignificanceRow
from fairhorizon.studies.efficiency import EfficiencyRow
from fairhorizon.studies.long_results import CountsOverTime, LongTermResult
from fairhorizon.vocabulary import Mode, Protocol

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
# in CI a missing browser is a failure: what is skipped there is never run
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None and not os.environ.get("CI"),
        reason="no chromium, google-chrome or chrome on the PATH",
    ),
]
WIDTH, HEIGHT = 1100, 5000
GROUND = {"light": "rgb(246, 247, 249)", "dark": "rgb(17, 20, 24)"}
RANKERS = ("ease", "sasrec", "gru4rec", "bpr", "als", "mf")
RERANKERS = ("quota", "penalty", "foe")
LEVELS = (0.2, 0.4, 0.65, 0.85)
N_SERIES = len(RANKERS) * len(RERANKERS) + 1
N_POINTS = len(RANKERS) * len(RERANKERS) * len(LEVELS) + 1

# what the page looks like to its own scripts, left where the test can read it
OBSERVER = """<script>
const drawn = place => [...place.querySelectorAll(".mark-line path")]
  .filter(path => path.getTotalLength() > 9);
const isFaded = path => Number(path.getAttribute("opacity") ?? 1) < 0.2;
const pause = () => new Promise(resolve => setTimeout(resolve, 100));
// how many lines fade while the pointer is on a point
const pointedAt = async chart => {
  const {x, y, width, height} = chart.querySelector(".mark-symbol.role-mark path")
    ?.getBoundingClientRect() ?? {};
  const place = {clientX: x + width / 2, clientY: y + height / 2};
  if (!width) return null;
  const target = document.elementFromPoint(place.clientX, place.clientY);
  target?.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, ...place}));
  await pause();
  const faded = drawn(chart).filter(isFaded).length;
  chart.dispatchEvent(new PointerEvent("pointerleave"));
  await pause();
  return faded;
};
const observe = async () => {
  const box = chart => {
    const {x, y, width, height} = chart.getBoundingClientRect();
    return [x, y, width, height].map(Math.round);
  };
  const charts = [...document.querySelectorAll(".chart")].map(chart => ({
    box: box(chart),
    svg: Math.round(chart.querySelector("svg").getBoundingClientRect().width),
    lines: drawn(chart).length,
    colours: [...chart.querySelectorAll(".role-mark path")]
      .filter(path => path.getBoundingClientRect().width > 3)
      .flatMap(path => [path.getAttribute("fill"), path.getAttribute("stroke")]),
    points: [...chart.querySelectorAll(".mark-symbol.role-mark path")]
      .filter(path => path.getAttribute("opacity") !== "0").length,
    bars: chart.querySelectorAll(".mark-rect.role-mark path").length,
    labels: [...chart.querySelectorAll(".mark-text.role-mark text")].map(text => text.textContent),
  }));
  const fills = new Set([...document.querySelectorAll(".chart text")]
    .map(text => getComputedStyle(text).fill));
  const first = document.querySelector("table.sortable");
  const column = () => [...first.tBodies[0].rows].map(row => row.cells[0].firstChild.data.trim());
  const button = first.querySelectorAll("th button")[3];  // NDCG
  const orders = [column()];
  for (let click = 0; click < 2; click++) { button.click(); orders.push(column()); }
  const legend = document.querySelector(".legend button");
  const drawing = legend.closest(".drawing");
  const pointed = [];
  for (const chart of document.querySelectorAll(".chart")) pointed.push(await pointedAt(chart));
  legend.dispatchEvent(new PointerEvent("pointerenter"));
  await pause();
  const faded = drawn(drawing).filter(isFaded).length;
  legend.dispatchEvent(new PointerEvent("pointerleave"));
  legend.click();
  await pause();
  const tables = [...document.querySelectorAll(".scroll")].filter(one => one.clientWidth);
  const seen = {
    charts, orders, faded, pointed,
    fills: [...fills],
    sorted: button.parentNode.ariaSort,
    rows: [...document.querySelectorAll("main table")].map(table => table.rows.length),
    left: drawn(drawing).length,
    wide: tables.map(one => one.scrollWidth > one.clientWidth + 1),
    hints: tables.map(one => one.parentNode.querySelector(".hint").offsetHeight > 0),
    overflow: document.documentElement.scrollWidth - innerWidth,
    width: innerWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    finding: document.querySelector("main p").className,
  };
  document.body.dataset.seen = JSON.stringify(seen);
};
const wait = setInterval(() => {
  const charts = [...document.querySelectorAll(".chart")];
  if (charts.every(chart => "drawn" in chart.dataset)) { clearInterval(wait); observe(); }
}, 50);
</script>"""
PHONE = """<!DOCTYPE html><body style="margin:0"><iframe src="page.html" width="500" height="3000"
style="border:0"></iframe><script>
const wait = setInterval(() => {
  const seen = frames[0].document.body?.dataset.seen;
  if (seen) { clearInterval(wait); document.body.dataset.seen = seen; }
}, 50);
</script>"""


@dataclass(frozen=True)
class Visit:
    """What the browser made of a page."""

    dom: str
    complaints: list[str]  # errors of scripts, refused loads

    @property
    def seen(self):
        found = re.search(r'data-seen="([^"]*)"', self.dom)
        return json.loads(found[1].replace("&quot;", '"'))


def visit(page: Path, scheme: str, folder: Path) -> Visit:
    command = [
        BROWSER,
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
        "--allow-file-access-from-files",  # a page may look into its frame
        *("--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=60000"),
        *(f"--window-size={WIDTH},{HEIGHT}", page.as_uri()),
    ]
    # into files: a helper process that outlives the browser would keep a pipe open
    dom, log = folder / "dom.html", folder / "log.txt"
    with dom.open("wb") as out, log.open("wb") as errors:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, timeout=120, check=True
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    complaints = [line for line in lines if ":CONSOLE:" in line]
    return Visit(dom.read_text(encoding="utf-8"), complaints)


@pytest.fixture(scope="module")
def page(make_row, tmp_path_factory):
    rows = [make_row(name, ndcg=0.1 + 0.01 * i) for i, name in enumerate(("mf", "bpr", "ease"))]
    curves = {
        f"{ranker}+{reranker}": [
            make_row(
                f"{ranker}+{reranker}",
                level,
                ndcg=0.1 + 0.02 * i - 0.01 * j + 0.05 * level,
                gini=0.6 + 0.2 * level + 0.02 * j,
                popularity=level,
            )
            for level in LEVELS
        ]
        for i, ranker in enumerate(RANKERS)
        for j, reranker in enumerate(RERANKERS)
    }
    curves["lird"] = [make_row("lird", ndcg=0.05)]
    test = SignificanceRow("ndcg@20", "ease", "bpr", 0.01, 943, 0.01, 0.01, 0.01, 0.01)
    time = EfficiencyRow(
        *("ml-100k", "mf+foe", "foe", 200, Protocol.STANDARD, Mode.ONE_SHOT, 943, 100),
        Spread(0.3, 0.0),
    )
    page = Page(
        title="All there is",
        finding="All was found and all limits were kept.",
        intro="A page with every kind of part.",
        sections=[
            comparison_section(rows, paper=True),
            significance_section([test]),
            *frontier_sections(curves),
            efficiency_section([time, replace(time, method="bpr+foe")]),
        ],
    )
    path = page.write(tmp_path_factory.mktemp("browser") / "page.html")
    path.write_text(path.read_text(encoding="utf-8") + OBSERVER, encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request):
    return request.param


@pytest.fixture(scope="module")
def visited(page, scheme, tmp_path_factory):
    return visit(page, scheme, tmp_path_factory.mktemp(scheme))


def test_no_script_fails_and_nothing_is_refused(visited):
    assert visited.complaints == []


def test_every_row_and_every_mark_is_there(visited):
    seen = visited.seen
    # a table for each K, significance, areas, times; each with its heading
    assert seen["rows"] == [4, 4, 4, 2, 1 + N_SERIES, 3]
    of_gini, of_tail, times = seen["charts"]
    for chart in (of_gini, of_tail):
        assert chart["lines"] == N_SERIES - 1  # one is a single point
        assert chart["points"] == N_POINTS
        assert sorted(set(chart["labels"]) - {""}) == sorted(f"{level:g}" for level in LEVELS)
    assert (times["bars"], times["points"]) == (2, 2)
    assert seen["finding"] == "finding"


def test_a_click_on_a_heading_sorts(visited):
    seen = visited.seen
    assert seen["orders"] == [["mf", "bpr", "ease"], ["ease", "bpr", "mf"], ["mf", "bpr", "ease"]]
    assert seen["sorted"] == "ascending"


def test_the_legend_highlights_and_hides_in_both_panels(visited):
    assert visited.seen["faded"] == 2 * (N_SERIES - 2)
    assert visited.seen["left"] == 2 * (N_SERIES - 2)


def test_what_is_pointed_at_stands_out_from_all_other_lines(visited):
    of_gini, of_tail, _ = visited.seen["pointed"]
    assert of_gini == of_tail == N_SERIES - 2


def test_the_text_of_charts_can_be_read(visited, scheme):
    ink = {"light": "rgb(28, 32, 36)", "dark": "rgb(232, 234, 237)"}[scheme]
    assert visited.seen["fills"] == [ink]


def test_a_wide_table_has_a_hint_and_no_other(visited):
    assert visited.seen["hints"] == visited.seen["wide"] == [False] * 6


def test_the_ground_follows_the_readers_choice(visited, scheme):
    assert visited.seen["ground"] == GROUND[scheme]


def test_no_chart_is_blank(visited):
    *frontiers, times = visited.seen["charts"]
    for chart in frontiers:
        assert set(chart["colours"]) >= set(PALETTE[: len(RANKERS)])
    assert set(times["colours"]) >= set(PALETTE[:2])


def test_on_a_phone_charts_shrink_and_tables_scroll_within_the_page(page, tmp_path):
    phone = page.with_name("phone.html")
    phone.write_text(PHONE, encoding="utf-8")
    seen = visit(phone, "light", tmp_path).seen
    assert (seen["width"], seen["overflow"]) == (500, 0)
    for chart in seen["charts"]:
        assert chart["svg"] <= chart["box"][2] < 500
    assert True in seen["wide"]
    assert seen["hints"] == seen["wide"]  # each says that it can be scrolled


def test_the_page_is_not_too_large(page):
    assert page.stat().st_size < 1_500_000


@pytest.mark.essential
def test_the_page_of_a_long_run_and_its_small_panels(tmp_path):
    methods, n_steps = ("fcpo", "mf+foe", "bpr"), 40
    names = ("ndcg", "recall", "gini", "popularity_rate", "step_popularity_rate")
    names += ("limited_rate", "popularity_rate_initial", "popularity_rate_lagged")
    names += ("popularity_rate_retrospective", "lorenz_share")
    names += ("step_popularity_rate_initial", "violation_share", "largest_overshoot", "churn")
    rows = [
        {"method": method, "seed": seed, "step": step}
        | dict.fromkeys(names, 0.1 + 0.1 * i + 0.02 * seed + 0.001 * step)
        for i, method in enumerate(methods)
        for seed in (0, 1)
        for step in range(1, n_steps + 1)
    ]
    # one item after the other, from the last rank on, is shown to everybody and becomes popular
    history = np.arange(50) + 200 * np.tril(np.ones((n_steps, 50), dtype=np.int64), -1)
    labels = np.stack([popular_group(moment) for moment in history])
    seen_items = CountsOverTime(np.arange(n_steps), history, labels)
    counts = {(method, 0): seen_items for method in methods}
    write_long_term_report(tmp_path, LongTermResult(pl.DataFrame(rows), counts, 0.4, 10), "")
    page = tmp_path / "index.html"
    page.write_text(page.read_text(encoding="utf-8") + OBSERVER, encoding="utf-8")
    visited = visit(page, "dark", tmp_path)
    assert visited.complaints == []
    seen = visited.seen
    assert seen["overflow"] == 0
    assert seen["fills"] == ["rgb(232, 234, 237)"]
    *accumulated, last = seen["charts"][:3], seen["charts"][-1]
    for chart in accumulated[0]:
        assert chart["lines"] == len(methods)
    assert last["lines"] == len(methods)
    panels = seen["charts"][3:-1]
    assert len(panels) == 2 * len(methods)
    for chart in panels:  # side by side, each drawn as wide as its column
        assert chart["svg"] <= chart["box"][2] < last["svg"] / 2
    assert all(3 <= chart["lines"] <= 10 for chart in panels)
    ranks = slice(3 + len(methods), -1)
    for chart, faded in zip(seen["charts"][ranks], seen["pointed"][ranks], strict=True):
        assert faded == chart["lines"] - 1  # all but the item that is pointed at


def test_a_planted_fault_is_noticed(tmp_path):
    path = Page(title="t", finding="", intro="", sections=[]).write(tmp_path / "page.html")
    faults = '<script>missing()</script><img src="http://127.0.0.1:9/x.png">'
    path.write_text(path.read_text(encoding="utf-8") + faults, encoding="utf-8")
    failed, refused = visit(path, "light", tmp_path).complaints
    assert "missing is not defined" in failed
    assert "Content Security Policy" in refused
