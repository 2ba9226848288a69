"""What the paper shows beside what came of it here: a page, Markdown, and tables for programs.

Every cell has the paper's figure where it gives one. What differs, and why, is said below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from fairhorizon.data.splits import Statistics
from fairhorizon.files import write_json, write_text, written_together
from fairhorizon.metrics.spread import Spread
from fairhorizon.report import charts, long_charts
from fairhorizon.report.charts import Axis, Chart, save_figure, styles_of
from fairhorizon.report.comparison import (
    FCPO_LEVELS,
    PAPER_METRICS_AT,
    PAPER_TABLE,
    metric_cell,
)
from fairhorizon.report.efficiency import efficiency_chart, efficiency_grid
from fairhorizon.report.frontier import frontier_chart
from fairhorizon.report.long_charts import Span
from fairhorizon.report.long_term import accumulated_chart
from fairhorizon.report.page import (
    Commands,
    Definitions,
    Folded,
    Page,
    Part,
    Section,
    glossary_section,
)
from fairhorizon.report.tables import (
    PAPER_METRICS,
    Better,
    Cell,
    Grid,
    markdown,
    metric_columns,
    number_cell,
    percent_cell,
    placed,
    seeds_text,
    write_grids,
)
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.reproduce import Reproduced, TableRow
from fairhorizon.studies.rows import OverSeeds, SummaryRow
from fairhorizon.studies.six_items import FCPO, SixItems, SixItemsRow
from fairhorizon.vocabulary import Mode, Protocol

NAME = "reproduction"
INTRO = (
    "Tables and figures of Ge et al., Towards Long-term Fairness in Recommendation (WSDM 2021), "
    "computed here. The paper's own figures stand beside ours wherever it gives one."
)
QUICK_NOTE = " Quick: trainings and runs are cut short, so these figures say nothing of methods."
# The paper's Table 1.
STATISTICS = {
    "ml-100k": ("943", "1682", "106", "59.45", "100,000", "6.305%"),
    "ml-1m": ("6040", "3706", "166", "270", "1,000,209", "4.468%"),
}
LISTS = {Mode.ONE_SHOT: "one-shot", Mode.INTERACTIVE: "with feedback"}
BETTER: Mapping[str, Better] = {
    **dict.fromkeys(("recall", "f1", "ndcg"), "more"),
    **dict.fromkeys(("gini", "popularity_rate"), "less"),
}
# A run counts as near the limit within this distance, looked at from a quarter of it on.
NEAR = 0.02
SETTLED = 0.25


# ---- What differs, and why -----------------------------------------------------------------------
WHY_TABLE1 = {"Nothing differs": "The paper cuts means at the point or rounds them."}
WHY_TABLE2 = {
    "fcpo:paper": "What the text says, from random weights over vectors of ratings (PMF), with "
    "ordinary values for all that it does not say. It samples W with a sigma near 1, so most of "
    "what it shows is chance.",
    "fcpo:tuned": "The same design; what the text leaves open was chosen on the later part of the "
    "training log: vectors of ALS, those of users by what they took before an episode; episodes "
    "that begin anywhere; 24 further W a step, whose answers the log knows; a sigma that falls by "
    "3 % a round.",
    "Lists with feedback": "Section 5.4.1 lets the state change within a list, which here is "
    "'with feedback'; the policy, which sees five items and was trained for ten steps, gains "
    "little by it.",
    "Recall of FCPO-1 and FCPO-2": "The paper's public notebook divides hits by the test items "
    "that are left after 200 steps, here all test items count; that alone turns a recall of about "
    "5 into 13.",
    "NDCG of LIRD": "The paper prints the NDCG of BPR-MF in the row of LIRD, digit for digit and "
    "on both data sets, so there is no figure to compare with.",
    "FCPO-3": "The paper's row is what an untrained policy of its public code gives with sampled "
    "actions (NDCG@20 2.6 to 3.0, Gini 73, popular 39 over four seeds); here the policy is "
    "trained.",
    "Popularity rate of FCPO": "The paper's policies stay below their alpha' of 1, 0.8 and 0.4; "
    "here each is trained at the paper's alpha' and again at the rate that the paper's reached, so "
    "that accuracy can be compared at equal fairness.",
    "MF-FOE, BPR-FOE, NCF-FOE": "Training items stay in the lists, so the best 200 of a user are "
    "nearly all popular, and a re-ranking of them has few others to show. How the paper's came "
    "down to 91 % is not said.",
    "MF, BPR-MF, NCF": "Own implementations, stopped by validation items; the paper gives the "
    "grid of its settings, not which were chosen.",
    "F1": "Here the mean over users of 2h / (K + n) for h hits and n test items; the paper's fits "
    "the F1 of mean precision and mean recall.",
    "Arrow of the popularity rate": "The paper's heading says that more is better; its text and "
    "its bold figures say less, as here.",
}
WHY_FIGURE3 = {
    "Points": "The paper draws the figures of its Table 2 and so does this: its points are those "
    "of the table, as the figure gives no numbers.",
    "Levels": "The paper has three levels of FCPO; here there are six, those of the paper's alpha' "
    "and those of its rates.",
}
WHY_FIGURE4 = {
    "No figures in brackets": "The paper draws curves and gives no numbers.",
    "Protocol": "Items of the training log are not shown again, as in every running system; the "
    "paper does not say whether its long run does.",
    "MF-FOE": "Its limit is alpha', in every list of a round; the paper does not say which it had.",
    "MF with a control": "The paper compares FCPO, which adapts at every step, with a rule that "
    "adapts every hundred; NAME+control adapts at every step too.",
    "FCPO": "With the control a budget holds at every step; with control=off updates of the policy "
    "alone have to keep the limit, as in the paper. A policy that has learned to keep it goes on "
    "showing few popular items when there is room for more; one that was trained without a limit, "
    "as the rankers are, leaves it to the control.",
}
FIGURE4_COLUMNS = {
    "Popular": "share of all showings, each under the label of its moment; the limit is on it",
    "Retrospective": "the same by the labels of the last step",
    "Near": "share of the steps from a quarter on that are within 2 points of the limit",
    "Over": "share of these steps that are above the limit",
}
WHY_EFFICIENCY = {
    "FOE": "The paper solves a linear program for every user; its optimum is a mixture of two "
    "sorts (rerank/exposure.py), which is the same to 1e-8 and takes milliseconds.",
    "FCPO": "The same networks, for all users at once; the machine is another one.",
}
WHY_INTRODUCTION = {
    "No figures in brackets": "The paper tells the example and gives no numbers; these six items "
    "are ours, small enough for an exact optimum.",
    "Fixed parity": "Half of the showings to the items that were popular at first; by the labels "
    "of the moment it is far above the limit, and C, E and F are never shown.",
    "Myopic": "The exact solution of every single step under the labels of the moment, with all "
    "that the limit on the showings so far leaves. It shows D until D is popular.",
    "One price": "The most clicks less a price for popular items, the best price for the whole run "
    "found in hindsight.",
    "Optimum and fcpo": "Now and then they show A and B, which nobody wants much: so these stay "
    "ahead of D, which can be shown for longer as an unpopular item. The optimum is computed, fcpo "
    "finds it from clicks. Clicks are per showing.",
}


# ---- Tables --------------------------------------------------------------------------------------
def statistics_grid(dataset: str, found: Statistics) -> Grid:
    """Table 1."""
    means = (found.per_user, found.per_item)
    texts = (
        *(str(found.users), str(found.items)),
        *(f"{mean:.0f}" if mean >= 100 else f"{mean:.2f}" for mean in means),
        *(f"{found.interactions:,}", f"{100 * found.density:.3f}%"),
    )
    theirs = STATISTICS.get(dataset, ("",) * len(texts))
    cells = [Cell(text, 0.0, paper=own) for text, own in zip(texts, theirs, strict=True)]
    headings = ("Dataset", "#users", "#items", "#act./user", "#act./item", "#act.", "density")
    return Grid(headings, [[Cell(dataset), *cells]], len(cells), "Data sets")


def table_grid(rows: Sequence[TableRow], k: int, caption: str) -> Grid:
    """Table 2 at one length of lists."""
    columns = metric_columns()
    lines = []
    for row in rows:
        theirs = paper_metrics(row.result.dataset, row.paper)
        metrics = [
            metric_cell(row.result, name, k, theirs.get(f"{name}@{k}")) for name in PAPER_METRICS
        ]
        lines.append([Cell(row.paper), Cell(row.result.method), *metrics])
    better = {number: BETTER[name] for number, name in enumerate(PAPER_METRICS, 2)}
    headings = ["Paper", "Here", *(columns[name].heading for name in PAPER_METRICS)]
    return Grid(headings, placed(lines, better), len(PAPER_METRICS), caption)


def servings_grid(rows: Sequence[TableRow], k: int) -> Grid:
    """How lists are made: at once or with feedback, by the mean of a policy or a sample."""
    columns, names = metric_columns(), ("ndcg", "recall", "gini", "popularity_rate")
    lines = [
        [
            *(Cell(text) for text in (row.paper, row.result.method, LISTS[row.result.mode])),
            Cell(row.serving or row.result.settings.get("serve", "")),
            *(metric_cell(row.result, name, k) for name in names),
        ]
        for row in rows
    ]
    headings = ["Paper", "Here", "Lists", "Served", *(columns[name].heading for name in names)]
    return Grid(headings, lines, len(names), f"How lists are made, K = {k}")


def paper_metrics(dataset: str, name: str) -> dict[str, float]:
    """A row of the paper's Table 2, as fractions; empty where there is none."""
    found = PAPER_TABLE.get(dataset, {}).get(name, {})
    return {
        f"{metric}@{k}": value / 100
        for metric, values in found.items()
        for k, value in zip(PAPER_METRICS_AT, values, strict=True)
    }


def main_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """Those that the paper's table has: lists made at once, by each policy as it serves itself."""
    return [row for row in rows if row.result.mode is Mode.ONE_SHOT and not row.serving]


def long_grid(run: LongTermResult) -> Grid:
    """Figure 4 in numbers: NDCG at every quarter, then Gini and shares at the end."""
    last = int(run.steps["step"].to_numpy().max())
    quarters = [max(1, last * part // 4) for part in (1, 2, 3, 4)]
    lines = []
    for method in long_charts.methods_of(run.steps):
        own = run.steps.filter(pl.col("method") == method)
        at_end = own.filter(pl.col("step") == last)
        cells = [_mean_cell(own.filter(pl.col("step") == step)["ndcg"]) for step in quarters]
        cells += [
            _mean_cell(at_end[name])
            for name in ("gini", "popularity_rate", "popularity_rate_retrospective")
        ]
        settled = own.filter(pl.col("step") >= SETTLED * last)
        near = (settled["popularity_rate"] - run.alpha_prime).abs() <= NEAR
        over = settled["popularity_rate"] > run.alpha_prime + 1e-9
        cells += [_mean_cell(part.cast(pl.Float64)) for part in (near, over)]
        lines.append([Cell(method), *cells])
    better: dict[int, Better] = dict.fromkeys(range(1, 5), "more")
    headings = ["Method", *(f"NDCG {step}" for step in quarters)]
    headings += ["Gini", "Popular", "Retrospective", "Near", "Over"]
    return Grid(headings, placed(lines, better), len(headings) - 1, _run_caption(run, last))


def _mean_cell(values: pl.Series) -> Cell:
    known = values.drop_nulls().to_numpy()
    return percent_cell(float(known.mean()) if len(known) else None)


def _run_caption(run: LongTermResult, last: int) -> str:
    seeds = seeds_text(run.steps["seed"].n_unique())
    return f"{last} steps at most {100 * run.alpha_prime:g} % popular, {seeds}"


def six_items_grid(rows: Sequence[SixItemsRow]) -> Grid:
    """Every policy at every limit, FCPO as the mean of its seeds."""
    names, lines = SixItems().names, []
    for share in dict.fromkeys(row.alpha_prime for row in rows):
        own = [row for row in rows if row.alpha_prime == share]
        best = own[-1].clicks
        block = []
        for policy in dict.fromkeys(row.policy for row in own):
            seeds = [row for row in own if row.policy == policy]
            clicks, popular = (
                Spread.from_values([getattr(row, name) for row in seeds])
                for name in ("clicks", "popular")
            )
            assert clicks.mean is not None
            shares = [
                Spread.from_values([row.shares[item] for row in seeds]).mean
                for item in range(len(names))
            ]
            block.append(
                [
                    Cell(f"{100 * share:g} %"),
                    Cell(policy),
                    _spread_cell(clicks, 1, 3, len(seeds)),
                    percent_cell(clicks.mean / best),
                    _spread_cell(popular, 100, 1, len(seeds)),
                    *(number_cell(None if one is None else 100 * one, 1) for one in shares),
                ]
            )
        lines += block
    headings = ("Limit", "Policy", "Clicks", "Of the optimum", "Popular", *names)
    learned = len({row.seed for row in rows if row.policy == FCPO})
    return Grid(headings, lines, len(headings) - 2, f"Six items, FCPO {seeds_text(learned)}")


def _spread_cell(found: Spread, scale: float, decimals: int, seeds: int) -> Cell:
    spread = f"±{scale * (found.std or 0):.{decimals}f}" if seeds > 1 else ""
    mean = None if found.mean is None else scale * found.mean
    return number_cell(mean, decimals, spread=spread)


# ---- Figures -------------------------------------------------------------------------------------
def trade_off_chart(rows: Sequence[TableRow], k: int) -> Chart:
    """Figure 3: ours, and the rows of the paper's table."""
    curves: dict[str, list[OverSeeds]] = {}
    for row in main_rows(rows):
        curves.setdefault(row.result.name, []).append(row.result)
    first = rows[0].result
    for name in PAPER_TABLE.get(first.dataset, {}):
        theirs = _as_row(first, name)
        curve = "FCPO in the paper" if name in FCPO_LEVELS else f"{name} in the paper"
        curves.setdefault(curve, []).append(theirs)
    chart = frontier_chart(curves, k)
    return replace(chart, title="Figure 3: accuracy against fairness")


def _as_row(like: SummaryRow, name: str) -> OverSeeds:
    """A row of the paper's table as one of ours."""
    metrics = {key: Spread(value, 0.0) for key, value in paper_metrics(like.dataset, name).items()}
    levels = dict(zip(FCPO_LEVELS, (1.0, 0.8, 0.4), strict=True))
    return OverSeeds(
        like.dataset, name, levels.get(name), like.protocol, like.mode, (0,), metrics, {}, ()
    )


def long_chart(run: LongTermResult) -> Chart:
    """Figure 4."""
    numbers = run.steps["step"].to_numpy()
    span = Span(int(numbers.min()), int(numbers.max()), run.warm_up, run.alpha_prime, run.group)
    chart = accumulated_chart(run.steps, styles_of(long_charts.methods_of(run.steps)), span)
    return replace(chart, title="Figure 4: the long run")


def six_items_chart(rows: Sequence[SixItemsRow]) -> Chart:
    """Clicks against the popular share at every limit, and the share over time at one of them."""
    styles = styles_of(dict.fromkeys(row.policy for row in rows))
    series = charts.by_series(styles)
    ends = [
        {"series": row.policy, "x": 100 * row.popular, "y": row.clicks, "marked": 1}
        for row in rows
        if not row.seed
    ]
    x = Axis("Popular by the labels of the moment, %")
    panels = [
        charts.panel(
            [charts.lines(ends, series, x, Axis("Clicks per showing", format=".3f"))],
            height=300,
            title="Clicks against the popular share, at three limits",
        )
    ]
    limits = sorted({row.alpha_prime for row in rows})
    limit = limits[len(limits) // 2]
    over_time = [
        {"series": row.policy, "x": step, "y": 100 * share, "marked": 1}
        for row in rows
        if row.alpha_prime == limit and not row.seed
        for step, share in enumerate(row.popular_so_far, 1)
    ]
    steps = len(rows[0].popular_so_far)
    x, y = Axis("Showing", domain=(1, steps), whole=True), Axis("Popular so far, %", zero=True)
    layers = [
        charts.lines(over_time, series, x, y),
        charts.limit_layer(100 * limit, steps, "limit", x, y),
    ]
    title = f"The share over time, at most {100 * limit:g} % popular"
    panels.append(charts.panel(layers, height=300, title=title))
    reading = "More clicks at the same share are better. A line joins the limits of one policy."
    return Chart("Six items whose labels move", panels, styles, reading=reading)


# ---- The whole -----------------------------------------------------------------------------------
def sections(found: Reproduced) -> list[tuple[str, Section, dict[str, str]]]:
    """The parts in the paper's order: a name for files, what is shown, and what differs why."""
    parts: list[tuple[str, Section, dict[str, str]]] = []
    if found.six_items:
        shown: list[Part] = [six_items_chart(found.six_items), six_items_grid(found.six_items)]
        parts.append(("introduction", Section("Introduction: six items", shown), WHY_INTRODUCTION))
    if found.statistics is not None:
        grid = statistics_grid(found.dataset, found.statistics)
        parts.append(("table1", Section("Table 1: the data", [grid]), WHY_TABLE1))
    if found.table:
        lengths = lengths_of(found.table)
        grids = [
            table_grid(main_rows(found.table), k, f"{found.dataset}, paper protocol, K = {k}")
            for k in lengths
        ]
        shown = [grids[-1], *(Folded(grid.caption, grid) for grid in grids[-2::-1])]
        others = [row for row in found.table if _reacts(row)]
        if others:
            grid = servings_grid(others, lengths[-1])
            shown.append(Folded(grid.caption, grid))
        parts.append(("table2", Section("Table 2: accuracy and fairness", shown), WHY_TABLE2))
        chart = trade_off_chart(found.table, lengths[-1])
        parts.append(("figure3", Section(chart.title, [chart]), WHY_FIGURE3))
    if found.efficiency:
        shown = [efficiency_chart(found.efficiency), efficiency_grid(found.efficiency)]
        parts.append(("efficiency", Section("Efficiency", shown), WHY_EFFICIENCY))
    if found.long_run is not None:
        shown = [long_chart(found.long_run), long_grid(found.long_run)]
        why = FIGURE4_COLUMNS | WHY_FIGURE4
        parts.append(("figure4", Section("Figure 4: the long run", shown), why))
    return parts


def _reacts(row: TableRow) -> bool:
    """Whether there are several ways to make its lists."""
    return row.result.method.startswith(("fcpo", "lird"))


def lengths_of(rows: Sequence[TableRow]) -> list[int]:
    """The lengths of lists that were measured, in rising order."""
    names = rows[0].result.metrics
    return sorted(int(name.removeprefix("ndcg@")) for name in names if name.startswith("ndcg@"))


def finding(found: Reproduced) -> str:
    """What of the paper's figures is reached."""
    sentences = []
    if found.table and found.dataset in PAPER_TABLE:
        k = lengths_of(found.table)[-1]
        pairs = [
            (row, paper_metrics(found.dataset, row.paper)[f"ndcg@{k}"])
            for row in main_rows(found.table)
        ]
        above = sum((row.result.spread(f"ndcg@{k}").mean or 0) >= theirs for row, theirs in pairs)
        sentences.append(
            f"NDCG@{k} is at least that of the paper in {above} of {len(pairs)} rows of Table 2."
        )
    if found.six_items:
        own = [row for row in found.six_items if row.alpha_prime == 0.3]
        learned = Spread.from_values([row.clicks for row in own if row.policy == FCPO]).mean
        best = own[-1].clicks
        if learned is not None:
            sentences.append(
                f"On six items whose labels move fcpo gets {100 * learned / best:.0f} % of the "
                f"clicks of the optimum at a limit of 30 %, the myopic allocation "
                f"{100 * own[1].clicks / best:.0f} %."
            )
    if found.long_run is not None:
        sentences.append(_long_finding(found.long_run))
    if found.quick:
        sentences.append(QUICK_NOTE.strip())
    return " ".join(sentences) or INTRO


def _long_finding(run: LongTermResult) -> str:
    grid = long_grid(run)
    ends = {line[0].text: line[4].text for line in grid.lines}
    listed = ", ".join(f"{name} {value}" for name, value in ends.items())
    return f"{grid.caption}: NDCG at the end {listed}."


@written_together()
def write_reproduction(out: Path, found: Reproduced, command: str) -> None:
    """index.html, index.md, reproduction.json; tables as CSV and LaTeX; PNG, SVG and PDF."""
    parts = sections(found)
    write_json(out / f"{NAME}.json", {"command": command, **found.to_json()})
    text = [f"# The paper, reproduced on {found.dataset}", finding(found), f"    {command}"]
    for name, section, why in parts:
        text.append(f"## {section.title}")
        grids: dict[str, Grid] = {}
        for part in section.parts:
            if isinstance(part, Chart):
                save_figure(out, name, part)
                text.append(f"![{part.title}]({name}.png)")
            elif isinstance(part, Grid | Folded):
                grid = part if isinstance(part, Grid) else part.grid
                grids[name if not grids else f"{name}-{len(grids) + 1}"] = grid
                text.append(markdown(grid))
        write_grids(out, grids)
        text.append("\n".join(f"- **{what}.** {reason}" for what, reason in why.items()))
    if any(grid_has_paper(section) for _, section, _ in parts):
        text.insert(3, "In brackets: the paper. In percent unless a heading says otherwise.")
    write_text(out / "index.md", "\n\n".join(text) + "\n")
    page(found, parts, command).write(out / "index.html")


def grid_has_paper(section: Section) -> bool:
    grids = [part.grid if isinstance(part, Folded) else part for part in section.parts]
    return any(
        cell.paper
        for grid in grids
        if isinstance(grid, Grid)
        for line in grid.lines
        for cell in line
    )


def page(
    found: Reproduced, parts: Sequence[tuple[str, Section, dict[str, str]]], command: str
) -> Page:
    """The parts, each with what differs."""
    shown = [
        Section(section.title, [*section.parts, Definitions(why)]) for _, section, why in parts
    ]
    used = (Protocol.PAPER, Mode.ONE_SHOT, Mode.INTERACTIVE)
    return Page(
        title=f"The paper, reproduced on {found.dataset}",
        finding=finding(found),
        intro=INTRO + (QUICK_NOTE if found.quick else ""),
        sections=[
            *shown,
            *([glossary_section(PAPER_METRICS, used)] if found.table else []),
            Section("Made by", [Commands([command])]),
        ],
    )
