"""Search for the setting of a rival whose lists have at most a given share of the group."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fairhorizon.methods import Method
from fairhorizon.metrics.shares import exceeds, whole_showings
from fairhorizon.studies.rows import StudyRow

TRIES = 8  # further settings per level, each nearer to it
NEAR = 0.002  # a share this little below the level ends the search
STEEP = 0.2  # between rates this far apart, interpolation is not linear
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of a penalty, to begin with
HEAVIEST = 64.0
THOUSANDTHS = 1000
COUNTED = "counted_share"  # metric: the share of the group as a limit counts it, by place or list

Measure = Callable[[Method], StudyRow]


@dataclass(frozen=True)
class Dial:
    """The level of a rival as a whole number of steps; more steps are less strict."""

    first: tuple[int, ...]  # always tried
    tightest: int
    loosest: int
    steps_per_unit: int

    @classmethod
    def of(cls, method: Method, levels: Sequence[float], k: int) -> Self | None:
        if method.reranker is None:
            return None
        if method.reranker == "penalty":
            first = tuple(-round(weight * THOUSANDTHS) for weight in WEIGHTS)
            tightest = -round(HEAVIEST * THOUSANDTHS)
            return cls(first, tightest, 0, THOUSANDTHS)
        # a list has room for whole items, so that a quota in between is the one below
        unit = k if method.reranker == "quota" else THOUSANDTHS
        first = tuple(dict.fromkeys(whole_showings(level * unit) for level in levels))
        return cls(first, 0, unit, unit)

    def level(self, steps: int) -> float:
        """The level for the re-ranker; rounded up, because a quota is rounded down."""
        return math.ceil(abs(steps) / self.steps_per_unit * 1e4 - 1e-6) / 1e4

    def next(self, rates: Mapping[int, float], level: float) -> int | None:
        """The next setting to try for a rate just below the level; None: nothing is left to try.

        Rates grow with the steps, or nearly so: the search is between the least strict setting
        that keeps the level and the next one tried.
        """
        kept = [steps for steps, rate in rates.items() if keeps(rate, level)]
        if not kept:
            steps = min(rates)
            tighter = steps // 2 if self.tightest == 0 else max(self.tightest, 2 * steps)
            return tighter if steps > self.tightest else None
        low = max(kept)
        gap = level - rates[low]
        if gap <= NEAR or low == self.loosest:
            return None
        looser = [steps for steps in rates if steps > low]
        if not looser:
            return min(self.loosest, low + max(1, math.ceil(2 * gap * self.steps_per_unit)))
        high = min(looser)
        if high - low == 1:
            return None
        width, rise = high - low, rates[high] - rates[low]
        share = 0.5 if rise > STEEP else (gap - NEAR / 2) / rise
        return low + min(width - 1, max(1, round(min(0.9, max(0.1, share)) * width)))


def keeps(rate: float, level: float) -> bool:
    return not exceeds(rate, level)


def tried(
    method: Method, levels: Sequence[float], k: int, measure: Measure, tries: int = TRIES
) -> Iterator[tuple[Method, StudyRow]]:
    """The settings of a rival in the order tried, with their results; the same at every call."""
    dial = Dial.of(method, levels, k)
    if dial is None:
        yield method, measure(method)
        return
    rates: dict[int, float] = {}

    def turned(steps: int) -> tuple[Method, StudyRow]:
        setting = replace(method, level=dial.level(steps))
        row = measure(setting)
        rates[steps] = rate_of(row, k)
        return setting, row

    for steps in dial.first:
        yield turned(steps)
    for level in levels:
        for _ in range(tries):
            found = dial.next(rates, level)
            if found is None:
                break
            yield turned(found)


def best_setting(results: Sequence[tuple[Method, StudyRow]], level: float, k: int) -> Method | None:
    """Of the settings that keep the level, the one with the best NDCG; None where none does."""
    kept = [(method, row) for method, row in results if keeps(rate_of(row, k), level)]
    if not kept:
        return None
    return max(kept, key=lambda one: (one[1].metrics[f"ndcg@{k}"] or 0.0, rate_of(one[1], k)))[0]


def rate_of(row: StudyRow, k: int) -> float:
    """The share of the group that a limit is on; infinite where nothing was shown."""
    rate = row.metrics[COUNTED if COUNTED in row.metrics else f"popularity_rate@{k}"]
    return math.inf if rate is None else float(rate)
