"""How a trained policy makes lists under any limit, and what is decided before it serves."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.limit_matrix import Floats
from fairhorizon.allocation.one_limit import GroupAndRest, gains
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.networks import Actor
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.lbfgs import minimise
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.interactive import listed_ndcg, ndcg_by_user
from fairhorizon.recommenders.lists.features import (
    FeatureSource,
    InitialCandidates,
    Logits,
    initial_candidates,
    liked_items,
    some_users,
)
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, GiniTarget, ItemLists
from fairhorizon.recommenders.lists.probabilities import (
    WeightedProbabilities,
    softmax_probabilities,
)
from fairhorizon.simulation.feedback import Scenario


# ---- The probabilities of items by a trained policy ----------------------------------------------
@dataclass(frozen=True)
class ActorProbabilities:
    """softmax(W features) over the candidates, W by the actor, the mean over its rows."""

    actor: Actor

    @property
    def items(self) -> FeatureSource:
        return self.actor.items

    def weights(self, users: Tensor, queues: Tensor) -> Tensor:
        return self._from_outputs(self.actor(users, self.items.encoder_input(queues)))

    @torch.no_grad()
    def same_weights(self) -> Logits | None:
        # What no round of CPO has changed: the head adds nothing of a state to its bias.
        if self.actor.head.weight.any():
            return None
        return self._from_outputs(self.actor.head.bias[None])[0].cpu().numpy()

    def _from_outputs(self, outputs: Tensor) -> Tensor:
        """(b, features) the mean over the rows of W."""
        weights = rows_of(outputs, self.actor.list_length).mean(1)
        if not self.items.priced:
            return weights
        # The price of the level, found for all users together, replaces the learned one.
        return torch.cat([weights[:, :-1], torch.zeros_like(weights[:, -1:])], dim=1)

    def predict(self, candidate_set: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:
        return softmax_probabilities(candidate_set, self.weights(users, queues)[:, None])


# ---- How even lists may be made: as much as accuracy on later items can afford -------------------
PARTS = (1.0, 0.75, 0.5, 0.25)  # of the way to the Gini index of the most even accurate ranker


@torch.no_grad()
def largest_gini_reduction(
    lists: ItemLists,
    gini_target: GiniTarget,
    initial: InitialCandidates,
    scenario: Scenario,
    *,
    length: int,
    limit: float,
    cost: float,
) -> float:
    """The largest part of the way that costs at most a share `cost` of NDCG; 0 if none does.

    Without a limit on the group, and with one.
    """

    def ndcg(rule: PlaceRule, spread: GiniTarget | None) -> float:
        some = replace(lists, rule=rule, spread=spread)
        queues = scenario.queue[initial.users]
        shown = some.from_candidates(initial.candidate_set, initial.users, queues, length)
        return listed_ndcg(shown, initial.users, scenario)

    rules = (NO_LIMIT, PlaceRule(limit))
    # What NDCG may fall to, for each rule by its own NDCG without any spread.
    least = {rule: (1 - cost) * ndcg(rule, None) for rule in rules}
    for part in PARTS:
        spread = replace(gini_target, part=part)
        if all(ndcg(rule, spread) >= lowest for rule, lowest in least.items()):
            return part
    return 0.0


# ---- First prices of a limit, for requests, which come one after the other -----------------------
# Lists that are made together keep a limit exactly, at a price found on them. A guard of requests
# (allocation/guard.py) does not know what comes next; it begins at the price at which the lists of
# the validation states would have had the share of the limit.

LEVELS = 101  # 0, 0.01, ..., 1
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # a price is for lists of one length
MOST_USERS = 8192
USERS_AT_ONCE = 1024  # users


@dataclass(frozen=True)
class PriceTable:
    """Prices for some lengths of lists and some levels; in between they are interpolated."""

    lengths: Tensor  # (m,) float64, rising
    levels: Tensor  # (n,) float64, rising
    prices: Tensor  # (m, n) float64 in units of the values, never rising with the level

    def price(self, alpha_prime: float, length: int) -> float:
        """What a level takes off the value of a showing; it never rises with the level."""
        levels, logarithms = self.levels.numpy(), self.lengths.log().numpy()
        at_level = [np.interp(alpha_prime, levels, row) for row in self.prices.numpy()]
        return float(np.interp(np.log(max(length, 1)), logarithms, at_level))

    def tensors(self) -> dict[str, Tensor]:
        """As they are stored."""
        parts = {"lengths": self.lengths, "levels": self.levels, "prices": self.prices}
        return {f"price_table.{name}": tensor for name, tensor in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "PriceTable":
        return cls(*(tensors[f"price_table.{name}"] for name in ("lengths", "levels", "prices")))


def calibrate(lists: ItemLists, scenario: Scenario, seed: int) -> PriceTable:
    """The prices of a policy by level, from the users of a scenario or a random sample of them."""
    users = torch.arange(scenario.n_users)
    if len(users) > MOST_USERS:
        drawn = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
        users = drawn[:MOST_USERS]
    group = lists.sensitive.cpu().numpy()
    lengths = [length for length in LENGTHS if length <= len(group)]
    found: dict[int, list[Floats]] = {length: [] for length in lengths}
    shown = np.zeros(len(lengths), dtype=np.int64)
    for by_length in _offers(lists, scenario, users, lengths):
        for number, (length, offers) in enumerate(zip(lengths, by_length, strict=True)):
            in_group = group[offers.items]
            sides = GroupAndRest.from_candidates(offers, in_group, length)
            gained = gains(sides, discount(np.arange(1, length + 1)))
            # An item without which the list would be shorter is shown at any price.
            found[length].append(np.where(sides.forced, np.inf, gained).ravel())
            shown[number] += sides.sizes.sum()
    levels = np.linspace(0, 1, LEVELS)
    rows = [
        prices_at(levels, np.concatenate(parts), int(total))
        for parts, total in zip(found.values(), shown, strict=True)
    ]
    return PriceTable(
        torch.tensor(lengths, dtype=torch.float64),
        torch.from_numpy(levels),
        torch.from_numpy(np.stack(rows)),
    )


def prices_at(levels: Floats, gains: Floats, shown: int) -> Floats:
    """(n,) prices at which lists with these gains, `shown` items in all, have the shares (n,).

    0 where the lists have less of the group anyway.
    """
    falling = -np.sort(-gains[gains > 0])
    # Infinite gains are of items that fill a list: no price needs to be above the finite ones.
    finite = falling[np.isfinite(falling)]
    falling = np.minimum(falling, finite[0] if len(finite) else 0.0)
    # With n showings allowed, the price is the gain of the first that is refused, number n + 1.
    allowed = np.array([whole_showings(level * shown) for level in levels])
    prices: Floats = np.append(falling, 0.0)[np.minimum(allowed, len(falling))]
    return prices


@torch.no_grad()
def _offers(
    lists: ItemLists, scenario: Scenario, users: Tensor, lengths: Sequence[int]
) -> Iterator[list[Candidates]]:
    """Candidates of the users, a batch at a time; their values depend on the length."""
    for some in users.split(USERS_AT_ONCE):
        queues, candidate_set, offers = scenario.queue[some], None, []
        for length in lengths:
            # Longer lists need more candidates, and probabilities depend on the candidates.
            if candidate_set is None or length > lists.probabilities.items.least_per_group:
                candidate_set = initial_candidates(
                    lists.probabilities.items, scenario, some, lists.sensitive, length
                ).candidate_set
            codes = scenario.codes_of(some)
            offers.append(lists.candidates(candidate_set, codes, queues, length))
        yield offers


# ---- Whether the policy still fits rankers that were fitted again --------------------------------
# The weights were learned with rankers that knew only the earlier part of the log. With short
# histories they may not suit rankers of the whole log: then a single ranker can be better.

BY_CHANCE = 1.0  # standard errors of a difference, paired over users
FEWEST_USERS = 200  # fewer are too noisy
VALIDATION_LENGTH = 20  # of the lists by which rounds and weights are judged

Weights = tuple[float, ...]


@torch.no_grad()
def better_weights(
    lists: ItemLists, validation: Scenario, config: FcpoConfig, first: Weights, seed: int
) -> Weights | None:
    """Weights of the rankers that should replace the policy's; None to keep the policy.

    first: the weights that the training began with. They were chosen by their lists, on more than
    these items, so the policy has to be better than they are by more than chance.
    """
    users = some_users(validation, MOST_USERS, torch.Generator().manual_seed(seed))
    if len(users) < FEWEST_USERS:
        return first
    initial = initial_candidates(lists.probabilities.items, validation, users, lists.sensitive)
    candidate_set, queues = initial.candidate_set, validation.queue[users]
    under_limit = replace(lists, rule=PlaceRule(config.limit_in_training), spread=None)
    length = min(VALIDATION_LENGTH, len(lists.sensitive))

    def measured(weights: Weights | None) -> NDArray[np.float64]:
        probabilities = (
            lists.probabilities
            if weights is None
            else WeightedProbabilities(lists.probabilities.items, weights)
        )
        shown = replace(under_limit, probabilities=probabilities).from_candidates(
            candidate_set, users, queues, length
        )
        return ndcg_by_user(shown, users, validation)

    gain = measured(None) - measured(first)
    return None if exceeds_chance(gain) else first


def exceeds_chance(differences: NDArray[np.float64]) -> bool:
    """Whether a mean of paired differences (users,) is more than its standard error above 0."""
    error = float(differences.std() / len(differences) ** 0.5)
    return bool(differences.mean() > BY_CHANCE * error)


# ---- Whether rounds of CPO can add anything ------------------------------------------------------
FIT_ITERATIONS = 20  # of L-BFGS: enough for what is there to see, too few to learn users by heart


def gain_of_states(
    actor: Actor,
    lists: ItemLists,
    initial: InitialCandidates,
    scenario: Scenario,
    *,
    length: int,
    seed: int,
) -> NDArray[np.float64]:
    """(users,) NDCG that weights by state add to the first weights, on users not learned from.

    What rounds of CPO can do beyond the first weights is to weigh the rankers differently in
    different states. So a copy of the actor is fitted, by cross-entropy, to what one half of the
    users took in the later part of the log, and judged by the lists of the other half; and the
    other way round.

    actor: before its first round.  lists: how it makes lists, under the limit of the training.
    initial: users and their candidates where the episodes of the scenario begin.
    """
    users, liked = initial.users, liked_items(initial, scenario)

    def ndcg(judged: Actor, rows: Tensor) -> NDArray[np.float64]:
        own, some = users[rows], replace(lists, probabilities=ActorProbabilities(judged))
        with torch.no_grad():
            shown = some.from_candidates(
                initial.candidate_set.take(rows), own, scenario.queue[own], length
            )
        return ndcg_by_user(shown, own, scenario)

    order = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
    halves, gains = order.tensor_split(2), np.zeros(len(users))
    for learned_from, judged_on in (halves, halves[::-1]):
        # A fresh copy for each half: nothing learned from one half may judge the same half.
        fitted = copy.deepcopy(actor)
        own = users[learned_from]
        _fit_by_cross_entropy(
            fitted,
            own,
            scenario.queue[own],
            initial.candidate_set.take(learned_from),
            liked[learned_from],
        )
        gains[judged_on.numpy()] = ndcg(fitted, judged_on) - ndcg(actor, judged_on)
    return gains


def _fit_by_cross_entropy(
    actor: Actor, users: Tensor, queues: Tensor, candidate_set: CandidateSet, liked: Tensor
) -> None:
    """Make the items that users liked (b, C) most likely; all users who liked any count alike."""
    some = liked.any(1).nonzero().squeeze(1)
    targets = liked[some].float()
    targets = targets / targets.sum(1, keepdim=True)
    candidate_set, probabilities = candidate_set.take(some), ActorProbabilities(actor)

    def loss() -> Tensor:
        found = probabilities.predict(candidate_set, users[some], queues[some])
        return -(found.clamp(min=1e-30).log() * targets).sum(1).mean()

    minimise(actor.parameters(), loss, iterations=FIT_ITERATIONS)
