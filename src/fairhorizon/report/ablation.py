"""What each part of FCPO contributes: a table of what is served, and one of the training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import charts, grid, marks
from fairhorizon.report.charts import Chart
from fairhorizon.report.findings import Kept, limits_sentence, percent
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.looks import looks_of
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.page import Section, commands_section, meanings_section, write_page
from fairhorizon.report.tables import MISSING, group_items, group_title, metric_columns, units
from fairhorizon.results.spread import Spread
from fairhorizon.results.studies import AblationRow, SummaryRow
from fairhorizon.vocabulary import POPULAR

SERVED = ("ndcg", "gini", "popularity_rate")
INTRO = (
    "The preset fast of FCPO beside variants that differ in one part, trained and served under "
    "the same limit."
)
SERVED_NOTE = (
    "Difference: NDCG minus that of `fast`, seed by seed, in percentage points. Kept: the round "
    "after which the policy that serves was found, the best on validation, seed by seed."
)
TRAINING_NOTE = (
    "Sampled episodes of the policy itself, before the first round and after the last. {group}: "
    "share of what is shown, in percent. Reward: hits of an episode. Within: after how many rounds "
    "that share was first within the limit and its tolerance, seed by seed, - if never."
)
VALIDATION_NOTE = (
    "Valid.: validation NDCG of the policy that serves, in percent. It compares rounds, not "
    "variants: rankers are those of training, and a Gaussian policy is validated without the limit."
)


@written_together()
def write_ablation(
    out: Path,
    rows: Sequence[AblationRow],
    k: int,
    *,
    group: str = POPULAR,
    command: str = "",
    json_file: Path | None = None,
) -> None:
    """ablation.json for programs, ablation.md, ablation.png and index.html; `group`: name of G0."""
    content = {
        **{"command": command, "group": group, "k": k},
        "rows": [row.to_json() for row in rows],
    }
    write_copies(content, out / "ablation.json", json_file)
    write_text(out / "ablation.md", ablation_markdown(rows, k, group))
    chart = training_chart(rows, group)
    charts.save_png(out / "ablation.png", chart)
    served, training = _served(rows, k, group), _training(rows, group)
    sections = [
        Section("What is served", [served], f"{units(SERVED)} {SERVED_NOTE}"),
        Section("How it was trained", [training], _training_note(group)),
        Section(chart.title, [chart]),
        meanings_section({row.summary.method: row.meaning for row in rows}),
        commands_section([command]),
    ]
    write_page(
        out / "index.html",
        title=f"The parts of FCPO on {rows[0].summary.dataset}",
        finding=finding(rows, k, group),
        intro=INTRO,
        sections=sections,
    )


def finding(rows: Sequence[AblationRow], k: int, group: str = POPULAR) -> str:
    """What the parts are worth, and whether the limit was kept by what is served."""
    found = {
        row.summary.method: mean
        for row in rows
        if (mean := row.summary.spread(f"ndcg@{k}").mean) is not None
    }
    drops = {
        row.summary.method: row.difference.mean
        for row in rows
        if row.difference is not None and row.difference.mean is not None
    }
    sentences = [f"{name} has an NDCG@{k} of {percent(found[name])}." for name in list(found)[:1]]
    if drops:
        worst = min(drops, key=lambda method: drops[method])
        points = f"{abs(100 * drops[worst]):.2f} points"
        sentences.append(
            f"What costs most is {worst}: {points} less."
            if drops[worst] < 0
            else f"No variant is less accurate; nearest is {worst}, {points} more."
        )
    limits = [
        Kept(row.summary.method, row.limit, row.summary.spread(f"popularity_rate@{k}").mean)
        for row in rows
    ]
    return " ".join([*sentences, limits_sentence(limits, group)])


def training_chart(rows: Sequence[AblationRow], group: str = POPULAR) -> Chart:
    """The share of the group and the reward in training episodes, mean over seeds."""
    looks = looks_of([row.summary.method for row in rows])
    rounds = Axis("Training round", whole=True)
    share, reward = f"{group_title(group)} in episodes, %", "Reward of an episode"
    panels = []
    for title, field, scale in ((share, "share", 100), (reward, "reward", 1)):
        y = Axis(title, zero=True, is_titled=False)
        points: list[Spec] = []
        for position, row in enumerate(rows):
            courses = [getattr(course, field) for course in row.courses]
            length = min(map(len, courses))
            points += [
                {"series": row.summary.method, "x": number}
                | {"y": round(scale * sum(one[number] for one in courses) / len(courses), 3)}
                | {"marked": marks.is_marked(number, length, position / len(rows))}
                for number in range(length)
            ]
        layers = [marks.lines(points, marks.by_series(looks), rounds, y)]
        if field == "share" and rows[0].limit < 1:
            end = max(point["x"] for point in points)
            layers.append(marks.limit_layer(100 * rows[0].limit, end, "limit", rounds, y))
        panels.append(charts.panel(layers, title=title))
    reading = "Sampled episodes of the policy itself before the first round and after each."
    return Chart("Training", panels, looks, reading=reading)


def ablation_table(rows: Sequence[AblationRow], k: int = 20, group: str = POPULAR) -> Group:
    """For a terminal."""
    served, training = _served(rows, k, group), _training(rows, group)
    return Group(
        grid.terminal(served),
        Text(f"{units(SERVED)} {grid.LEGEND}. {SERVED_NOTE}"),
        "",
        grid.terminal(training),
        Text(_training_note(group)),
    )


def ablation_markdown(rows: Sequence[AblationRow], k: int = 20, group: str = POPULAR) -> str:
    """For GitHub: best bold, second italic; and what each variant is."""
    parts = [
        grid.markdown(_served(rows, k, group)),
        f"{units(SERVED)} Best **bold**, second _italic_. {SERVED_NOTE}",
        grid.markdown(_training(rows, group)),
        _training_note(group),
        "\n".join(f"- `{row.summary.method}`: {row.meaning}" for row in rows),
    ]
    return "\n\n".join(parts) + "\n"


def _training_note(group: str) -> str:
    return f"{TRAINING_NOTE.format(group=group_title(group))} {VALIDATION_NOTE}"


def _served(rows: Sequence[AblationRow], k: int, group: str) -> Grid:
    first, columns = rows[0].summary, metric_columns(group)
    caption = (
        f"Served with at most {100 * first.alpha_prime:g} % {group_items(group)}, lists of {k}: "
        f"{first.dataset}, {first.protocol} protocol, {first.mode}, "
        f"{grid.counted(len(first.seeds))}"
    )
    ndcg, *others = (columns[name].heading for name in SERVED)
    headings = ["Variant", "Kept", ndcg, "Difference", *others]
    lines = [
        [
            Cell(row.summary.method),
            Cell(_by_seed(row.kept)),
            _percent(row.summary, f"ndcg@{k}"),
            _cell(row.difference or Spread(), row.summary, 100),
            *(_percent(row.summary, f"{name}@{k}") for name in SERVED[1:]),
        ]
        for row in rows
    ]
    better: dict[int, Literal["more", "less"]] = {2: "more", 4: "less"}
    return Grid(headings, grid.placed(lines, better), 4, caption)


def _training(rows: Sequence[AblationRow], group: str) -> Grid:
    seeds = grid.counted(len(rows[0].summary.seeds))
    caption = f"Trained under a limit of {100 * rows[0].limit:g} %, {seeds}"
    share = group_title(group)
    headings = ("Variant", "Within", share, "at last", "Reward", "at last", "Valid.")
    lines = [
        [
            Cell(row.summary.method),
            Cell(_by_seed(row.rounds_to_limit)),
            _percent(row.summary, "share_before", 1),
            _percent(row.summary, "share_after", 1),
            _cell(row.summary.spread("reward_before"), row.summary, 1),
            _cell(row.summary.spread("reward_after"), row.summary, 1),
            replace(_percent(row.summary, "validation"), spread=""),
        ]
        for row in rows
    ]
    return Grid(headings, lines, len(headings) - 2, caption)


def _by_seed(rounds: Sequence[int | None]) -> str:
    return ", ".join(MISSING if number is None else str(number) for number in rounds)


def _percent(row: SummaryRow, metric: str, decimals: int = 2) -> Cell:
    return _cell(row.spread(metric), row, 100, decimals)


def _cell(found: Spread, row: SummaryRow, factor: float, decimals: int = 2) -> Cell:
    if found.mean is None or found.std is None:
        return Cell(MISSING)
    spread = f"±{factor * found.std:.{decimals}f}" if len(row.seeds) > 1 else ""
    return grid.number(factor * found.mean, decimals, spread=spread)
