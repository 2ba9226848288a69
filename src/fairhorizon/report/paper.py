"""What the paper itself reports, for comparison with our own figures.

Source: Ge et al., Towards Long-term Fairness in Recommendation (WSDM 2021), table "Summary of the
performance on two datasets" and "Efficiency Performance" in its section of experimental results.
Copied as printed: LIRD's NDCG is, digit by digit, that of BPR-MF in both data sets there. The paper
does not say whether training items may be recommended; its public code leaves them in.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

PAPER_METRICS_AT = (5, 10, 20)
NEAR = 0.05  # a level this near to the popularity rate that a row of the paper reached


def _read_table() -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """The paper's table: dataset -> its name there -> metric -> percent at 5, 10 and 20."""
    table: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {}
    text = (files("fairhorizon.report") / "paper.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        values = tuple(float(line[f"at_{k}"]) for k in PAPER_METRICS_AT)
        methods = table.setdefault(line["dataset"], {})
        methods.setdefault(line["method"], {})[line["metric"]] = values
    return table


PAPER_TABLE = _read_table()
NAMES = {
    "mf": "MF",
    "bpr": "BPR-MF",
    "ncf": "NCF",
    "lird": "LIRD",
    "mf+foe": "MF-FOE",
    "bpr+foe": "BPR-FOE",
    "ncf+foe": "NCF-FOE",
}
FCPO = "fcpo:paper"
FCPO_LEVELS = ("FCPO-1", "FCPO-2", "FCPO-3")  # trained at alpha' = 1, 0.8 and 0.4

# dataset -> what makes the lists -> candidates per user (None: all items) -> hours on one core
# for all users, lists of 100
PAPER_HOURS: dict[str, dict[str, dict[int | None, float]]] = {
    "ml-100k": {"foe": {200: 1.5, 400: 6.5, 800: 60.5}, "fcpo": {None: 3.0}},
    "ml-1m": {"foe": {200: 10.5, 400: 43.5, 800: 397.0}, "fcpo": {None: 11.55}},
}


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table: its name there, and metrics as fractions."""

    name: str
    metrics: Mapping[str, float]


def paper_row(dataset: str, method: str, level: float | None = None) -> PaperRow | None:
    """The paper's row for a method of ours, named without its level; None where it has none.

    A level (`fcpo:paper` at 0.65, `mf+foe` at 0.9) has to be within 0.05 of the popularity rate
    at 20 that the paper's row reached: the two are compared at the same fairness.
    """
    table = PAPER_TABLE.get(dataset, {})
    if method == FCPO and level is None:  # no saying which of the three
        return None
    names = FCPO_LEVELS if method == FCPO else (NAMES.get(method, ""),)
    reached = {
        name: table[name]["popularity_rate"][PAPER_METRICS_AT.index(20)] / 100
        for name in names
        if name in table
    }
    if not reached:
        return None
    name = names[0]
    if level is not None:
        name = min(reached, key=lambda name: abs(reached[name] - level))
        if abs(reached[name] - level) > NEAR:
            return None
    return PaperRow(name, _fractions(table[name]))


def paper_hours(dataset: str, step: str, candidates: int | None) -> float | None:
    """The paper's hours for `fcpo`, or for any ranker behind `foe`; None where it gives none."""
    hours = PAPER_HOURS.get(dataset, {}).get(step, {})
    return hours.get(None if step == "fcpo" else candidates)


def _fractions(percents: dict[str, tuple[float, ...]]) -> dict[str, float]:
    return {
        f"{metric}@{k}": value / 100
        for metric, values in percents.items()
        for k, value in zip(PAPER_METRICS_AT, values, strict=True)
    }
