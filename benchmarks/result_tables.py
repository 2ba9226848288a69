"""Tables of README and docs, made from the files in docs/results/data.

A marker in a document names a file and one of its tables; what is between it and its end is made
from the file:

    <!-- results: levels-ml-100k summary -->
    <!-- end -->

Shares are in percent. A difference is called more or less only where its interval excludes 0.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairhorizon.limits.language import Limit
from fairhorizon.report.limits import listed
from fairhorizon.report.tables import (
    NOT_SHOWN,
    Better,
    Cell,
    Grid,
    interval_cell,
    markdown,
    number_cell,
    percent_cell,
    placed,
    seeds_text,
)
from fairhorizon.studies.level_search import counting_words

Content = Mapping[str, Any]

MARKER = re.compile(r"(<!-- results: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
WIDEST = 110  # characters of a line of a command
RUN_COLUMNS: list[tuple[str, str, Better | None]] = [
    ("ndcg", "NDCG", "more"),
    ("gini", "Gini", "less"),
    ("popularity_rate_retrospective", "Retrospective", None),
    ("popularity_rate", "Moment", None),
    ("popularity_rate_lagged", "Lagged", None),
    ("popularity_rate_initial", "First", None),
    ("lorenz_share", "Lorenz", "less"),
    ("violation_share", "Steps over", "less"),
    ("largest_overshoot", "Overshoot", "less"),
]


def filled(text: str, data: Mapping[str, Content]) -> tuple[str, list[str]]:
    """A document with all its tables, and the names of files that its markers miss.

    Where a file is missing, what stands between the markers stays.
    """
    missing: dict[str, None] = {}

    def fill(found: re.Match[str]) -> str:
        begin, name, table, _, end = found.groups()
        if name not in data:
            missing[name] = None
            return found.group()
        tables = tables_of(data[name])
        if table not in tables:
            raise ValueError(f"{name} has no table {table!r}; there are {', '.join(tables)}")
        return f"{begin}{tables[table]}\n{end}"

    return MARKER.sub(fill, text), list(missing)


def tables_of(content: Content) -> dict[str, str]:
    """The tables that can be made from a file, in Markdown, by their names."""
    makers = LEVEL_TABLES if content["kind"] == "levels" else LONG_TABLES
    return {table: make(content) for table, make in makers.items()}


def command_block(content: Content) -> str:
    """The command, in lines that a shell reads as one, and what is known of the run."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(content["command"])):
        if len(lines[-1]) + len(word) > WIDEST and lines[-1]:
            lines.append("    ")
        lines[-1] += f" {word}" if lines[-1].strip() else word
    block = " \\\n".join(f"    {line}" for line in lines)
    seeds = len(content["rows"][0]["seeds"])
    minutes = max(1, round(content["seconds"] / 60))
    return (
        f"\n{block}\n\n{seeds_text(seeds).capitalize()}; {minutes} "
        f"minute{'s' * (minutes > 1)} on a busy machine of 2 cores, version {content['version']}.\n"
    )


def _mean(row: Content, metric: str) -> Cell:
    """A share in percent, with its deviation over several seeds."""
    spread = row["metrics"].get(metric) or {"mean": None, "std": None}
    if spread["mean"] is None:
        return number_cell(None)
    deviation = f"±{100 * spread['std']:.2f}" if len(row["seeds"]) > 1 else ""
    return number_cell(100 * spread["mean"], spread=deviation)


# levels of fairness


def _limits(rows: Sequence[Content]) -> list[str]:
    return list(dict.fromkeys(row["limit"] for row in rows))


def _limit_words(text: str) -> str:
    """At most 37 % popular, weighed by 1/log2(1 + place)."""
    limit = Limit.parse(text)
    words = f"at most {100 * limit.share:g} % {limit.group}"
    return f"{words} {counting_words(limit)}".strip()


def level_tables(content: Content) -> str:
    """A table for each limit: accuracy and fairness of every method, and by place."""
    k = content["k"]
    columns: list[tuple[str, str, Better | None]] = [
        (f"ndcg@{k}", f"NDCG@{k}", "more"),
        (f"gini@{k}", "Gini", "less"),
        *((f"popularity_rate@{n}", f"First {n}", None) for n in (5, 10, 20) if n <= k),
        (f"weighed_rate@{k}", "Weighed", None),
        (f"lists_above@{k}", "Lists over", None),
        (f"worst_off@{k}", "Worst-off", "more"),
    ]
    tables = []
    for limit in _limits(content["rows"]):
        rows = [row for row in content["rows"] if row["limit"] == limit]
        caption = _limit_words(limit)
        tables.append(_grid(rows, columns, f"{caption[:1].upper()}{caption[1:]}"))
    return "\n" + "\n\n".join(tables) + "\n"


def _grid(
    rows: Sequence[Content], columns: Sequence[tuple[str, str, Better | None]], caption: str = ""
) -> str:
    lines = [[_method(row), *(_mean(row, metric) for metric, _, _ in columns)] for row in rows]
    better = {n: direction for n, (_, _, direction) in enumerate(columns, 1) if direction}
    headings = ["Method", *(heading for _, heading, _ in columns)]
    return markdown(Grid(headings, placed(lines, better), len(columns), caption))


def _method(row: Content) -> Cell:
    """A mark for the best rival, and for a method above the limit under some seed."""
    marks = (" ^" if row.get("best_rival") else "") + (" !" if row.get("above") else "")
    return Cell(row["method"] + marks)


def level_summary(content: Content) -> str:
    """NDCG of every method under each limit, with the Gini index in brackets."""
    k, rows = content["k"], content["rows"]
    limits = _limits(rows)
    found = {(row["method"], row["limit"]): row for row in rows}
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        line = [Cell(method)]
        for limit in limits:
            row = found[method, limit]
            ndcg, gini = _mean(row, f"ndcg@{k}"), _mean(row, f"gini@{k}")
            line.append(Cell(ndcg.text, ndcg.value, ndcg.spread, gini.text))
        lines.append(line)
    better: dict[int, Better] = dict.fromkeys(range(1, len(limits) + 1), "more")
    headings = [f"NDCG@{k} (Gini)", *map(_limit_words, limits)]
    return f"\n{markdown(Grid(headings, placed(lines, better), len(limits)))}\n"


def gains_table(content: Content) -> str:
    """Ours against the best rival and against itself without CPO rounds."""
    headings = ["Limit", "Method", "Rival", "Shown", "NDCG", "Rival", "Diff.", "95 %", "Gini diff."]
    lines = [
        [
            Cell(_limit_words(row["limit"])),
            Cell(row["method"]),
            Cell(_rival(row)),
            Cell(_verdict(row)),
            *(percent_cell(row[key]) for key in ("ndcg", "rival_ndcg", "difference")),
            interval_cell(row["low"], row["high"]),
            percent_cell(row["gini_difference"]),
        ]
        for row in content["gains"]
    ]
    return f"\n{markdown(Grid(headings, lines, numbers=5))}\n"


def _rival(row: Content) -> str:
    words = [
        *(["best rival"] if row.get("best_rival") else []),
        *(["without CPO rounds"] if row.get("without_cpo") else []),
    ]
    return f"{row['rival']} ({', '.join(words)})" if words else str(row["rival"])


def _verdict(row: Content) -> str:
    if row["low"] is None or row["high"] is None or row["low"] <= 0 <= row["high"]:
        return NOT_SHOWN
    return "more" if row["difference"] > 0 else "less"


def _by(row: Content) -> str:
    """The difference with its interval."""
    return "{:+.2f} ({:+.2f} to {:+.2f})".format(
        *(100 * row[key] for key in ("difference", "low", "high"))
    )


def level_claims(content: Content) -> str:
    """A line per rival: where a difference is shown, and where none is."""
    pairs: dict[tuple[str, str], list[Content]] = {}
    for row in content["gains"]:
        pairs.setdefault((row["method"], _rival(row)), []).append(row)
    claims = []
    for (method, rival), rows in pairs.items():
        parts = []
        for word in ("more", "less", NOT_SHOWN):
            places = [
                _limit_words(row["limit"]) + ("" if row["low"] is None else f", {_by(row)}")
                for row in rows
                if _verdict(row) == word
            ]
            said = "no difference is shown" if word == NOT_SHOWN else f"{word} NDCG"
            parts += [f"{said} with {'; with '.join(places)}"] if places else []
        claims.append(
            f"- `{method}` against `{rival.split(' ')[0]}`{_of(rival)}: {'; '.join(parts)}."
        )
    return "\n" + "\n".join(claims) + "\n"


def _of(rival: str) -> str:
    return f", {rival.partition(' (')[2].removesuffix(')')}" if " (" in rival else ""


def who_pays_table(content: Content) -> str:
    """Thirds of the users, with each limit and without."""
    headings = ["Limit", "Method", "Users", "Number", "Without", "With", "Change", "95 %"]
    lines = [
        [
            Cell(_limit_words(row["limit"])),
            Cell(row["method"]),
            Cell(f"{row['trait']}, {row['third']}"),
            Cell(f"{row['users']:,}", row["users"]),
            *(percent_cell(row[key]) for key in ("without", "limited", "difference")),
            interval_cell(row["low"], row["high"]),
        ]
        for row in content["who_pays"]
    ]
    return f"\n{markdown(Grid(headings, lines, numbers=5))}\n"


# the long run


def runs_table(content: Content) -> str:
    """How the runs ended: accuracy, and the share of the group under all labels."""
    return f"\n{_grid(content['rows'], RUN_COLUMNS)}\n"


def run_summary(content: Content) -> str:
    """The same with fewer columns."""
    chosen = {"ndcg", "gini", "popularity_rate_retrospective", "lorenz_share"}
    chosen |= {"violation_share", "largest_overshoot"}
    return f"\n{_grid(content['rows'], [one for one in RUN_COLUMNS if one[0] in chosen])}\n"


def differences_table(content: Content) -> str:
    """The first method against each other one."""
    headings = ["Method", "Rival", "Shown", "Diff.", "95 %", "Users"]
    lines = [
        [
            *(Cell(row["method"]), Cell(row["rival"]), Cell(_verdict(row))),
            percent_cell(row["difference"]),
            interval_cell(row["low"], row["high"]),
            Cell(f"{row['users']:,}", row["users"]),
        ]
        for row in content["differences"]
    ]
    return f"\n{markdown(Grid(headings, lines, numbers=3))}\n"


def run_claims(content: Content) -> str:
    """To whom a difference is shown and to whom none is, and who kept the limit how well."""
    rows = content["differences"]
    claims = []
    for word in ("more", "less", NOT_SHOWN):
        rivals = [
            f"`{row['rival']}`" + ("" if row["low"] is None else f" {_by(row)}")
            for row in rows
            if _verdict(row) == word
        ]
        said = "No difference of NDCG is shown" if word == NOT_SHOWN else f"{word.title()} NDCG"
        if rivals:
            claims.append(f"- {said} of `{rows[0]['method']}` against {listed(rivals)}.")
    over = [
        f"`{row['method']}` {_mean(row, 'violation_share').text} % "
        f"(largest overshoot {_mean(row, 'largest_overshoot').text} points)"
        for row in content["rows"]
    ]
    return "\n" + "\n".join([*claims, f"- Later steps over the limit: {listed(over)}."]) + "\n"


LEVEL_TABLES: dict[str, Callable[[Content], str]] = {
    "command": command_block,
    "summary": level_summary,
    "levels": level_tables,
    "gains": gains_table,
    "claims": level_claims,
    "who-pays": who_pays_table,
}
LONG_TABLES: dict[str, Callable[[Content], str]] = {
    "command": command_block,
    "summary": run_summary,
    "runs": runs_table,
    "differences": differences_table,
    "claims": run_claims,
}
