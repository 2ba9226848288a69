"""Which settings and weights of rankers give the best lists of what users took later.

A part of the training log is held back, and what counts on it is what is measured in the end: the
NDCG of lists over all that users took next. Settings are searched for each ranker alone, weights
for all of them together.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.histories import UserItems, most_items_read
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import discount, rows_at_once, standardised, top, users_at_once
from fairhorizon.settings import Given, Settings, changed
from fairhorizon.vocabulary import Protocol

LENGTH = 20  # of the lists
FEWEST_ITEMS = 3  # of a history; where there are longer ones, shorter ones are left out
SCORES = 2**25  # of users times items, by whose lists is chosen
ENOUGH_USERS = 4096  # that many also where there are so many items that this is more scores
CANDIDATES = 3 * LENGTH  # best items of every ranker, from which lists are made
STEPS = (0.1, 0.2, 0.4, 0.8)  # of a weight; the largest is 1
BY_CHANCE = 0.5  # standard errors of a difference, paired over users
MOST_ROUNDS = 20
NO_SCORE = -1e9  # the score of no item; finite, as it is multiplied by a weight

# The search grid: what is tried for a ranker, one group of alternatives after the other. The first
# of each group is the default, and "no recency" is always among those about recency.
SEARCH_GRID: Mapping[str, tuple[tuple[Given, ...], ...]] = {
    "ease": (({"l2": 500.0}, {"l2": 100.0}, {"l2": 1000.0}, {"l2": 3000.0}),),
    "ease:recent": (
        (
            {"half_life": 3.0, "training_half_life": 10.0},
            {"half_life": 10.0, "training_half_life": 30.0},
            {"half_life": 30.0, "training_half_life": 100.0},
            {"half_life": None, "training_half_life": None},
        ),
        ({"l2": 300.0}, {"l2": 100.0}, {"l2": 1000.0}, {"l2": 3000.0}),
        ({"popularity": 0.0}, {"popularity": 0.1}, {"popularity": 0.2}, {"popularity": 0.4}),
    ),
    "itemknn": (({"neighbours": 20}, {"neighbours": 100}, {"neighbours": 500}),),
    "itemknn:recent": (
        ({"half_life": 2.0}, {"half_life": 10.0}, {"half_life": None}),
        ({"shrinkage": 5.0}, {"shrinkage": 50.0}, {"shrinkage": 200.0}),
        ({"popularity": 0.0}, {"popularity": 0.2}, {"popularity": 0.4}),
    ),
    "ridge": (
        ({"decays": (0.8, 0.97)}, {"decays": (0.93, 1.0)}, {"decays": (1.0,)}),
        ({"horizon": 5, "future": 0.85}, {"horizon": 20, "future": 1.0}),
        ({"l2": 6000.0}, {"l2": 2000.0}, {"l2": 700.0}, {"l2": 20_000.0}, {"l2": 60_000.0}),
        ({"popularity": 0.2}, {"popularity": 0.0}, {"popularity": 0.1}, {"popularity": 0.3}),
    ),
}


@dataclass(frozen=True)
class LaterBlock:
    """Some users of a later part, with a table of all items for each."""

    users: Tensor  # (b,)
    queue: Tensor  # (b, N) the items before
    blocked: Tensor  # (b, n_items) bool: may not be in a list
    liked: Tensor  # (b, n_items) bool: taken after

    @torch.no_grad()
    def scores(self, ranker: Ranker[Any]) -> Tensor:
        """(b, n_items)."""
        return ranker.scores(self.users, self.queue)

    def ndcg(self, scores: Tensor) -> Tensor:
        """(b,) NDCG of every user's list by these scores."""
        _, items = top(scores.masked_fill(self.blocked, -torch.inf), LENGTH)
        gains = discount(torch.arange(1, items.shape[1] + 1))
        return (self.liked.gather(1, items) * gains).sum(1) / ideal(self.liked)


@dataclass(frozen=True)
class LaterPart:
    """What users took before some moment, and what they took after it."""

    split: Split  # its training log is what was before
    users: Tensor  # (b,) who took something before and after
    before: UserItems
    later: UserItems
    protocol: Protocol

    @classmethod
    def from_split(
        cls, split: Split, later: UserItems, protocol: Protocol, *, seed: int
    ) -> "LaterPart":
        """After the training log of a split come the `later` items; of a sample of users."""
        before = UserItems.from_log(split.train)
        lengths = before.indptr.diff()
        # Users with hardly any history would choose settings for cold starts; they count only if
        # there are no others.
        some, enough = later.indptr.diff() > 0, lengths >= FEWEST_ITEMS
        users = (some & (enough if (some & enough).any() else lengths > 0)).nonzero().squeeze(1)
        most_users = max(ENOUGH_USERS, rows_at_once(before.n_items, SCORES))
        if len(users) > most_users:
            drawn = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
            users = users[drawn[:most_users]].sort().values
        return cls(split, users, before, later, protocol)

    @classmethod
    def from_training(cls, parts: Split, protocol: Protocol, *, seed: int) -> "LaterPart":
        """The last fifth of every user's training items, and the item before them."""
        inner = earlier_part(parts)
        later = UserItems.from_log(inner.validation, inner.test)
        return cls.from_split(inner, later, protocol, seed=seed)

    def blocks(self) -> Iterator[LaterBlock]:
        """All users, as many at a time as there is memory for their scores."""
        longest = most_items_read(self.before)
        for users in self.users.split(users_at_once(self.before.n_items)):
            known = self.before.mask(users)
            blocked = known if self.protocol is Protocol.STANDARD else torch.zeros_like(known)
            queue = self.before.only(users).last(longest)
            # An item that may not be shown cannot be found, so it does not count as liked.
            yield LaterBlock(users, queue, blocked, self.later.mask(users) & ~blocked)

    def ndcg(self, ranker: Ranker[Any]) -> Tensor:
        """(b,) NDCG of every user's list by a ranker."""
        return torch.cat([block.ndcg(block.scores(ranker)) for block in self.blocks()])


def ideal(liked: Tensor) -> Tensor:
    """(b,) DCG of a list with all liked items first."""
    gains = discount(torch.arange(1, LENGTH + 1))
    # Entry j is the DCG of j + 1 hits at the top.
    return gains.cumsum(0)[(liked.sum(1) - 1).clamp(0, LENGTH - 1)]


def frequent_part(parts: Split, *, most_users: int, most_items: int, seed: int) -> Split:
    """The split with only the most frequent items of its training log, and a sample of users."""
    train = parts.train
    items = np.sort(np.argsort(-train.item_counts(), kind="stable")[:most_items])
    users = np.arange(train.n_users)
    if len(users) > most_users:
        users = np.sort(np.random.default_rng(seed).permutation(users)[:most_users])
    logs = (parts.train, parts.validation, parts.test)
    return Split(*(_rows_of(log, users, items) for log in logs))


def _rows_of(log: Interactions, users: NDArray[np.int64], items: NDArray[np.int64]) -> Interactions:
    """The rows of some users and items, with codes of their own."""
    user_codes, item_codes = np.full(log.n_users, -1), np.full(log.n_items, -1)
    user_codes[users], item_codes[items] = np.arange(len(users)), np.arange(len(items))
    rows = log.take((user_codes[log.users] >= 0) & (item_codes[log.items] >= 0))
    return replace(
        rows,
        users=user_codes[rows.users],
        items=item_codes[rows.items],
        user_ids=log.user_ids[users],
        item_ids=log.item_ids[items],
        attributes={name: values[items] for name, values in log.attributes.items()},
        weights=rows.total_weights(),
        repeated=None,  # they are in the weights
    )


def select_settings(draft: Ranker[Any], part: LaterPart, given: Given) -> Settings:
    """The settings of a ranker that give the best lists on a later part.

    One group of the search grid after the other, each with the best of those before. Settings that
    are `given` stay, and all stay as they are where there is no difference.
    """
    groups = SEARCH_GRID.get(draft.method, ())
    best: Settings = draft.config
    # All fits are to the same log: what does not depend on a setting is computed once.
    shared: dict[Hashable, Any] = {}
    highest = _mean_ndcg(draft, best, part, shared) if groups else 0.0
    for alternatives in groups:
        before = best
        for alternative in alternatives:
            # Settings that the user gave are taken out of the alternatives.
            open_settings = {k: value for k, value in alternative.items() if k not in given}
            config = changed(before, open_settings)
            # A strictly better value: ties stay with what was tried first, which is the default.
            if config == before:
                continue
            if (value := _mean_ndcg(draft, config, part, shared)) > highest:
                best, highest = config, value
    return best


def _mean_ndcg(
    draft: Ranker[Any], config: Settings, part: LaterPart, shared: dict[Hashable, Any]
) -> float:
    ranker = type(draft)(config, seed=draft.seed)
    ranker.shared = shared
    return float(part.ndcg(ranker.fit(part.split)).mean())


@dataclass(frozen=True)
class Shortlists:
    """The best items of every ranker, each with the standardised scores of all of them."""

    features: Tensor  # (rankers, b, C), -1e9 where there is no item
    liked: Tensor  # (b, C) bool
    ideal: Tensor  # (b,)

    @classmethod
    def from_rankers(cls, rankers: Sequence[Ranker[Any]], part: LaterPart) -> "Shortlists":
        """Of all users of a later part, some at a time."""
        blocks = [
            cls.from_scores([block.scores(ranker) for ranker in rankers], block)
            for block in part.blocks()
        ]
        return cls(
            torch.cat([block.features for block in blocks], dim=1),
            torch.cat([block.liked for block in blocks]),
            torch.cat([block.ideal for block in blocks]),
        )

    @classmethod
    def from_scores(cls, scores: Sequence[Tensor], part: LaterBlock) -> "Shortlists":
        """From the scores (b, n_items) of every ranker."""
        features = [standardised(values) for values in scores]
        best = [
            top(values.masked_fill(part.blocked, -torch.inf), CANDIDATES) for values in features
        ]
        items = torch.cat([at.masked_fill(value == -torch.inf, -1) for value, at in best], dim=1)
        # The union of all rankers' best: repeats become neighbours and are closed.
        items = items.sort(dim=1).values
        closed = items < 0
        closed[:, 1:] |= items[:, 1:] == items[:, :-1]
        at = items.clamp(min=0)
        open_features = torch.stack([values.gather(1, at) for values in features])
        liked = part.liked.gather(1, at) & ~closed
        return cls(open_features.masked_fill(closed, NO_SCORE), liked, ideal(part.liked))

    def ndcg(self, weights: Tensor) -> Tensor:
        """(b,) NDCG of lists by the weighted sum of the features."""
        scores = torch.tensordot(weights, self.features, dims=1)
        best = scores.topk(min(LENGTH, scores.shape[1]), dim=1).indices
        gains = discount(torch.arange(1, best.shape[1] + 1))
        return (self.liked.gather(1, best) * gains).sum(1) / self.ideal


def select_weights(shortlists: Sequence[Shortlists]) -> Tensor:
    """(rankers,) weights of at least 0, 1 for the largest.

    Uphill from the best ranker alone, one weight at a time. A weight changes only if that helps
    more than chance would, so a ranker that adds nothing has no weight, and the sum is no worse
    than its best ranker.
    """

    def measured(weights: Tensor) -> Tensor:
        return torch.cat([some.ndcg(weights) for some in shortlists])

    alone = [(unit, measured(unit)) for unit in torch.eye(len(shortlists[0].features)).unbind()]
    best, value = max(alone, key=_mean)
    for _ in range(MOST_ROUNDS):
        trials = [(weights, measured(weights)) for weights in _neighbours(best)]
        if not trials:
            break
        weights, its_value = max(trials, key=_mean)
        # Paired over users, whose NDCG varies far more than the difference between two weights
        # does.
        gain = its_value - value
        # `not >` also stops at NaN, the deviation of a single user.
        if not gain.mean() > BY_CHANCE * gain.std() / len(gain) ** 0.5:
            break
        best, value = weights, its_value
    return best


def _mean(trial: tuple[Tensor, Tensor]) -> float:
    return float(trial[1].mean())


def _neighbours(weights: Tensor) -> list[Tensor]:
    """The weights with one of them changed, scaled so that the largest is 1."""
    found = []
    for number in range(len(weights)):
        for step in STEPS:
            for change in (step, -step):
                other = weights.clone()
                other[number] = max(0.0, float(other[number]) + change)
                if other.max() > 0 and not torch.equal(other, weights):
                    found.append(other / other.max())
    # Scaling may lead back to where it began.
    return [other for other in found if not torch.equal(other, weights)]
