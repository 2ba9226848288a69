"""FCPO on logs of several kinds, freshly drawn, against the best of all rivals at three levels.

    python benchmarks/kinds.py [--kinds sparse,baskets,trends] [--seeds 21,22,23]

Rivals are ridge, EASE and item-kNN, each with and without recency, popularity and the stack, behind
a quota, a penalty and the joint allocation. Of a quota and a penalty the setting is searched on the
test items, the best rival is the best on the test items: both flatter the rivals. Only the four
rankers with the best test NDCG are tried behind re-rankers. Levels are 90, 70 and 45 % of the share
that the popular group has without a limit, so that they bind. NDCG@20, one-shot, standard protocol.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.groups import popular_group
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.quota import Quota
from fairhorizon.settings import changed
from shared import difference, measured, parse

PARTS_OF_THE_RATE = (0.9, 0.7, 0.45)
BEST_RANKERS = 4
TRIES = 6  # of a setting
HIGHEST_PENALTY = 8.0
WITHOUT_RECENCY = {
    "ease:recent": {"half_life": None, "training_half_life": None},
    "itemknn:recent": {"half_life": None},
    "ridge": {"decays": (1.0,)},
}
QUICK: dict[str, Any] = {"rounds": 1, "warm_start": ("ease:recent", "itemknn:recent")}
SMALL = ":users=40,items=50"


@dataclass(frozen=True)
class RankedLists:
    """The lists of all users, measured."""

    ndcg: NDArray[np.float64]  # (n_users,), NaN for users without test items
    rate: float  # share of the popular group

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.ndcg))


def served(model: Recommender, parts: Split, group: NDArray[np.bool_]) -> RankedLists:
    ndcg, shown = measured(model, parts)
    return RankedLists(ndcg, float(shown[group].sum() / shown.sum()))


def rankers() -> Iterator[tuple[str, Ranker[Any]]]:
    for name in ("ridge", "ease:recent", "itemknn:recent", "popularity", "stack"):
        yield name, RANKERS[name]()
    for name, settings in WITHOUT_RECENCY.items():
        kind = RANKERS[name]
        yield f"{name} without recency", kind(changed(kind.config_class(), settings))


def rivals(
    name: str, model: Ranked, level: float, parts: Split, group: NDArray[np.bool_]
) -> Iterator[tuple[str, RankedLists]]:
    """The ranker behind every re-ranker, with settings that keep the level."""
    yield f"{name}+lists", served(model.reranked(ListAllocation().at_level(level)), parts, group)
    # settings that are certainly fair and certainly not
    for reranker, fair, unfair in ((Quota(), 0.0, 1.0), (Penalty(), HIGHEST_PENALTY, 0.0)):
        for _ in range(TRIES):
            setting = (fair + unfair) / 2
            found = served(model.reranked(reranker.at_level(setting)), parts, group)
            if found.rate <= level:
                fair = setting
                yield f"{name}+{reranker.method}", found
            else:
                unfair = setting


def compare(source: str, config: FcpoConfig, n_rankers: int = BEST_RANKERS) -> None:
    parts = split(load(source))
    group = popular_group(parts.train.item_counts())
    fcpo = Fcpo(config, seed=0).fit(parts)
    rate = served(fcpo, parts, group).rate
    fitted = {name: Ranked(ranker).fit(parts) for name, ranker in rankers()}
    alone = {name: served(model, parts, group).mean for name, model in fitted.items()}
    best_rankers = sorted(fitted, key=lambda name: -alone[name])[:n_rankers]
    assert fcpo.policy_.ensemble is not None
    print(f"{source}: {fcpo.policy_.ensemble.summary[1]}")
    for part in PARTS_OF_THE_RATE:
        level = part * rate
        ours = served(fcpo.with_level(level), parts, group)
        others = [
            rival
            for name in best_rankers
            for rival in rivals(name, fitted[name], level, parts, group)
        ]
        name, theirs = max(others, key=lambda rival: rival[1].mean)
        gain, error = difference(ours.ndcg, theirs.ndcg, theirs.mean / 100).split(" +- ")
        print(
            f"  at most {100 * level:5.2f} %: fcpo {100 * ours.mean:.2f}, {name} "
            f"{100 * theirs.mean:.2f}, {gain} % +- {error}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default="sparse,baskets,trends")
    parser.add_argument("--seeds", default="21,22,23")
    options = parse(parser, kinds="trends", seeds="0")
    torch.set_num_threads(1)
    config = FcpoConfig(**(QUICK if options.small else {}))
    n_rankers = 1 if options.small else BEST_RANKERS
    sizes = f"{SMALL}," if options.small else ":"
    for seed in options.seeds.split(","):
        for kind in options.kinds.split(","):
            compare(f"synthetic-{kind}{sizes}seed={seed}", config, n_rankers)


if __name__ == "__main__":
    main()
