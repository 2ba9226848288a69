"""Whether the policy still fits rankers that were fitted again; the validation items decide.

The weights were learned with rankers that knew only the earlier part of the log. With short
histories they may not suit rankers of the whole log: then a single ranker can be better.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.candidates import ScoredCandidates, weights_by_cross_entropy
from fairhorizon.recommenders.lists.chances import WeightedChances
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.recommenders.lists.opening import liked_items, open_menus, some_users
from fairhorizon.recommenders.validation import ndcg_by_user
from fairhorizon.simulation.feedback import Scenario

CLEARLY = 1.02  # times the NDCG of the policy
BY_CHANCE = 1.0  # standard errors of a difference, paired over users
FEWEST_USERS, MOST_USERS = 200, 8192  # fewer are too noisy

Weights = tuple[float, ...]


@torch.no_grad()
def better_weights(
    lists: ItemLists, validation: Scenario, config: FcpoConfig, first: Weights, seed: int
) -> Weights | None:
    """Weights of the rankers that should replace the policy's; None to keep the policy.

    first: the weights that the training began with. Where they were chosen by their lists, on more
    than these items, the policy has to be better than they are by more than chance. Else a single
    ranker, which needs no weights, is preferred if it is within chance of the best option; and then
    weights learned on these items, if they are clearly better.
    """
    users = some_users(validation, MOST_USERS, torch.Generator().manual_seed(seed))
    if len(users) < FEWEST_USERS:
        return first if config.adapt else None
    opening = open_menus(lists.chances.items, validation, users, lists.sensitive)
    menus, queues = opening.menus, validation.queue[users]
    if not isinstance(menus, ScoredCandidates):
        return None
    under_limit = replace(lists, rule=PlaceRule(config.limit_in_training), spread=None)
    length = min(config.validation_length, len(lists.sensitive))

    def measured(weights: Weights | None) -> NDArray[np.float64]:
        chances = (
            lists.chances if weights is None else WeightedChances(lists.chances.items, weights)
        )
        shown = replace(under_limit, chances=chances).from_menus(menus, users, queues, length)
        return ndcg_by_user(shown, users, validation)

    if config.adapt:
        gain = measured(None) - measured(first)
        return None if gain.mean() > BY_CHANCE * _error(gain) else first
    liked = liked_items(opening, validation)
    present, together = measured(None), measured(refitted := _all_together(menus, liked))
    alone = [(measured(weights), weights) for weights in _each_alone(menus, liked)]
    best = max(present, together, *(values for values, _ in alone), key=np.mean)
    for values, weights in sorted(alone, key=lambda option: -option[0].mean()):
        if (best - values).mean() <= BY_CHANCE * _error(best - values):
            return weights
    gain = together - present
    clear = together.mean() > CLEARLY * present.mean() and gain.mean() > BY_CHANCE * _error(gain)
    return refitted if clear else None


def _error(differences: NDArray[np.float64]) -> float:
    return float(differences.std() / len(differences) ** 0.5)


def _all_together(menus: ScoredCandidates, liked: torch.Tensor) -> Weights:
    with torch.enable_grad():
        return weights_by_cross_entropy(menus, liked)


def _each_alone(menus: ScoredCandidates, liked: torch.Tensor) -> list[Weights]:
    rankers = menus.signals.shape[2] - 1
    options = []
    for ranker in range(rankers):
        alone = ScoredCandidates(menus.items, menus.signals[:, :, [ranker, rankers]])
        (weight,) = _all_together(alone, liked)
        options.append(tuple(weight if other == ranker else 0.0 for other in range(rankers)))
    return options
