"""How the settings of fcpo:tuned were chosen, one changed at a time; test items are not looked at.

    python benchmarks/choose_settings.py [--data ml-100k] [--rounds 30] [--level 0.36] [--small]

Trains on the earlier part of the training log and prints, of lists of 20 made at once, NDCG and
popularity rate on the later part, in percent: as served, by a sampled W, and by the mean. The last
line is what the design allows without any learning: W is the mean of the vectors of a user's last
five items, less a price on popular items that is chosen by these lists.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.recommenders.base import FitTask
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.simulation.feedback import evaluation_scenario
from shared import LENGTH, parse

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "fcpo:tuned": {},
    "PMF in place of ALS": {"embeddings": "pmf"},
    "ALS with 64 numbers": {"als_embeddings": {"dim": 64}},
    "episodes from the first items": {"starts": "first"},
    "no alternatives": {"alternatives": 0},
    "8 alternatives": {"alternatives": 8},
    "400 users a round": {"users_per_round": 400},
    "sigma by learning alone": {"std_decay": 1.0},
    "a trust region of 0.1": {"kl_limit": 0.1},
}


def outcomes(parts: Split, level: float, rounds: int) -> Iterator[str]:
    """A line for every change."""
    for name, changes in CHANGES.items():
        config = FcpoConfig.preset(
            "tuned", alpha_prime=level, rounds=rounds, patience=rounds, **changes
        )
        began = time.process_time()
        model = Fcpo(config, seed=0).fit(parts)
        seconds = time.process_time() - began
        scenario = evaluation_scenario(parts, model.queue_length, config.protocol)
        found = []
        for serve in ("sample", "mean"):
            model.config = config.model_copy(update={"serve": serve})
            lists = torch.from_numpy(
                model.recommend(scenario, length=min(LENGTH, parts.train.n_items))
            )
            ndcg = listed_ndcg(lists, torch.arange(len(lists)), scenario)
            popular = model.sensitive_[lists].double().mean()
            found.append(f"{serve} {100 * ndcg:5.2f} at {100 * popular:4.1f}")
        yield f"{name:30}  {'  '.join(found)}  {seconds:.0f} s"


def by_last_items(parts: Split, level: float) -> str:
    """Lists by a W that is not learned, at the lowest price that keeps the level."""
    training = Fcpo(FcpoConfig.preset("tuned"), seed=0).training(FitTask.from_split(parts))
    encoder, group = training.actor.encoder, training.sensitive.float()
    scenario = evaluation_scenario(parts, training.config.history, training.config.protocol)
    state, _ = scenario.begin(torch.arange(scenario.n_users))
    scores = encoder.item_vectors[state.queue].mean(1) @ encoder.item_vectors[:-1].T
    for price in torch.linspace(0, 4, 81) * scores.std():
        values = (scores - price * group).masked_fill(state.blocked, -torch.inf)
        lists = values.topk(min(LENGTH, parts.train.n_items)).indices
        if (popular := float(group[lists].mean())) <= level:
            break
    ndcg = listed_ndcg(lists, torch.arange(len(lists)), scenario)
    return f"{'the last five items as W':30}  {100 * ndcg:5.2f} at {100 * popular:4.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--level", type=float, default=0.36)
    options = parse(parser, rounds=1)
    torch.set_num_threads(1)
    parts = earlier_part(split(load(options.data)))
    for line in outcomes(parts, options.level, options.rounds):
        print(line, flush=True)
    print(by_last_items(parts, options.level))


if __name__ == "__main__":
    main()
