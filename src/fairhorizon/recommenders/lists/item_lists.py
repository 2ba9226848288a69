"""Lists of users under limits, from the probabilities of the items that they may be shown.

From the probability that a user takes an item next follows the value of showing it
(probabilities.py). Of all lists that keep the limits, those with the highest total value are shown
(allocation/engine.py): for all users together, in blocks of them, item by item with feedback, or
one request after the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.candidates import NEVER, Candidates, not_finite
from fairhorizon.allocation.conflicts import Supply, check_together
from fairhorizon.allocation.engine import (
    Block,
    Blocks,
    BlocksHere,
    Totals,
    allocate,
    allocate_over,
    gini_over,
)
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.allocation.limit_matrix import Counts, Floats, GroupRule, LimitMatrix
from fairhorizon.allocation.one_list import Request, alone
from fairhorizon.data.splits import LATER
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import StepLimit, step_limit
from fairhorizon.limits.supported import gini_limits, is_multi_limit, is_single_limit
from fairhorizon.rankers.candidates import CandidateSet, ScoredCandidates
from fairhorizon.ranking import discount, rows_at_once
from fairhorizon.recommenders.base import RankedLists, ValuedItems, columns_of, joined
from fairhorizon.recommenders.interactive import serve_interactively
from fairhorizon.recommenders.lists.features import CandidateCache, Logits, initial_candidates
from fairhorizon.recommenders.lists.probabilities import (
    ItemProbabilities,
    LikelyItems,
    item_values,
)
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario

NO_LIMIT = PlaceRule(1.0)
ACCURATE = 0.9  # times the NDCG of the best ranker
VALUES_AT_ONCE = 2**22
VALUES_KEPT = 2**26  # of users times items: 768 MiB with probabilities and codes
FEW = 0.5  # of the items
SCORES_AT_ONCE = 2**22  # of users who are served one after the other
MOST_LENGTHS = 8  # of lists, whose limit matrices are kept


def by_steps(limits: Sequence[ResolvedLimit], *, feedback: bool) -> bool:
    """Whether lists are made place after place by the step control.

    The joint lists keep one limit on a group that counts in any way, and in whole lists, not in
    those that are made with feedback, one on the Gini index or several on all showings.
    """
    if feedback:
        return not is_single_limit(limits) or bool(gini_limits(limits))
    return not is_single_limit(limits) and not is_multi_limit(limits)


def step_limits(limits: Sequence[ResolvedLimit]) -> list[StepLimit]:
    """The limits as the step control keeps them in lists, where groups stay as they are."""
    return [step_limit(one, fixed=True) for one in limits]


@dataclass(frozen=True)
class GiniTarget:
    """A Gini index to aim at, between that of plain lists and that of single rankers."""

    share: float  # of the Gini index of the most even ranker
    rankers: tuple[int, ...] | None = None  # which to look at; None: all
    part: float = 1.0  # of the way from the Gini index of plain lists

    def between(self, own: float, least: float) -> float:
        """From the Gini index of plain lists and the smallest of a single ranker."""
        if self.rankers is not None:  # chosen as accurate, which the plain lists are too
            least = min(own, least)
        return own - self.part * max(0.0, own - self.share * least)

    def numbers(self, rankers: int) -> Sequence[int]:
        """Which of so many rankers to look at."""
        return range(rankers) if self.rankers is None else self.rankers


def accurate(ndcg: tuple[float, ...]) -> tuple[int, ...] | None:
    """The rankers that are nearly as accurate as the best; None where that is not known."""
    if not ndcg:
        return None
    return tuple(number for number, value in enumerate(ndcg) if value >= ACCURATE * max(ndcg))


@dataclass(frozen=True)
class ItemLists:
    """Item probabilities served under limits; `histories` (n_users,) counts items of users."""

    probabilities: ItemProbabilities
    sensitive: Tensor  # (n_items,) bool, the group that the rule is on
    histories: Tensor
    rule: PlaceRule  # by default at most alpha' of all showings
    spread: GiniTarget | None  # None: as the values have it
    gini_limit: float | None = None  # of whole lists, beside what `spread` aims at
    limits: tuple[ResolvedLimit, ...] = ()  # as they were asked for
    level: str = ""  # in words, where there are no limits
    candidate_cache: CandidateCache = field(default_factory=CandidateCache, compare=False)
    # by the length of a list
    _matrices: dict[int, LimitMatrix] = field(default_factory=dict, compare=False, init=False)

    def with_limits(self, limits: Sequence[ResolvedLimit], level: str = "") -> "ItemLists":
        """The same probabilities under other limits; without any, the lists as they are.

        limits: several on all showings, or at most one on a group and one on the Gini index.
        """
        named = replace(self, limits=tuple(limits), level=level)
        if not limits or is_multi_limit(limits):
            return named
        gini = next((one.limit.share for one in gini_limits(limits)), None)
        group = next((one for one in limits if not one.limit.is_gini), None)
        if group is None:
            return replace(named, rule=NO_LIMIT, gini_limit=gini)
        members = torch.from_numpy(group.members).to(self.sensitive.device)
        return replace(
            named, sensitive=members, rule=PlaceRule.from_limit(group.limit), gini_limit=gini
        )

    @cached_property
    def made_by_steps(self) -> bool:
        """Whether the limits on whole lists are not for this engine but for the step control."""
        return by_steps(self.limits, feedback=False)

    @cached_property
    def is_several(self) -> bool:
        """Whether there are several limits, all of them on all showings."""
        return is_multi_limit(self.limits)

    def rank(self, scenario: Scenario, length: int) -> RankedLists:
        """All users together, each with the whole list at once."""
        limits = self.matrix(length)
        # One user shares the limits with nobody: there is nothing to coordinate.
        if scenario.n_users == 1 and self.gini_limit is None and not limits.in_every_list:
            return self._rank_alone(scenario, limits)
        block = self.block(scenario, length, scenario.n_users)
        return self.serve_blocks(BlocksHere([block]), length)

    @torch.no_grad()
    def block(self, scenario: Scenario, length: int, users: int) -> "ServedBlock":
        """The users of a scenario, who may be some of so many `users`."""
        limits = self.matrix(length)
        if self.is_several:
            candidates, probabilities = self.offers(scenario, length, limits, users)
            return ServedBlock([candidates], limits, probabilities)
        candidate_set, probabilities, candidates = self.opened(scenario, length)
        tables = self._tables(candidate_set, candidates) if users > 1 else [candidates]
        return ServedBlock(tables, limits, probabilities)

    def serve_blocks(self, blocks: Blocks, length: int) -> RankedLists:
        """The lists of all users of the blocks, which keep the limits together."""
        made = self._make(blocks, length)
        prices = self._named(made.prices.tolist(), made.spread_price)
        return joined(blocks.map(ServedBlock.served, prices))

    def _rank_alone(self, scenario: Scenario, limits: LimitMatrix) -> RankedLists:
        """The list of the one user of a scenario."""
        (offer,) = self.likely_items(scenario, limits.length, every=self.is_several)
        request = Request(offer, limits)
        made = alone(request, np.zeros(len(limits)))
        columns, values = request.columns[made.at], request.values[made.at]
        return listed(offer, columns, values, limits.length, self._named(made.prices))

    def likely_items(
        self, scenario: Scenario, length: int, *, every: bool
    ) -> Iterator[LikelyItems]:
        """What each user may be shown, one user after the other.

        every: all items, whose groups may have prices of their own; else the best by some ranker.
        """
        at_once = rows_at_once(len(self._in_group), SCORES_AT_ONCE)
        if scenario.n_users <= at_once:
            yield from self._likely_items(scenario, length, every=every)
            return
        for rows in torch.arange(scenario.n_users).split(at_once):
            yield from self._likely_items(scenario.only(rows), length, every=every)

    def _likely_items(
        self, scenario: Scenario, length: int, *, every: bool
    ) -> Iterator[LikelyItems]:
        users = torch.arange(scenario.n_users) if scenario.codes is None else scenario.codes
        taken = self.histories[users] if scenario.taken is None else scenario.taken
        worth = [1.0] * scenario.n_users if scenario.worth is None else scenario.worth.tolist()
        queues = scenario.queue
        items = self.probabilities.items.logits(
            self._weights(users, queues),
            users,
            queues,
            scenario.blocked_table(),
            None if every else self._groups,
            length,
        )
        for (codes, logits), had, factor in zip(items, taken.tolist(), worth, strict=True):
            highest = float(logits.max(initial=NEVER))
            total = highest + math.log(float(np.exp(logits - highest).sum()) or 1.0)
            if not math.isfinite(total):
                raise not_finite()
            likes = max(1.0, had / (LATER - 1))
            yield LikelyItems(logits, codes, total, likes, factor, length)

    @torch.no_grad()
    def _weights(self, users: Tensor, queues: Tensor) -> Logits:
        """(b, features) of the items for users in these states."""
        if self._same_weights is not None:
            return np.repeat(self._same_weights[None], users.shape[0], axis=0)
        device = self.sensitive.device
        found = self.probabilities.weights(users.to(device), queues.to(device))
        return found.cpu().numpy()

    @cached_property
    def _same_weights(self) -> Logits | None:
        """The weights, where they are the same in all states."""
        return self.probabilities.same_weights()

    @cached_property
    def _in_group(self) -> np.ndarray:
        """(n_items,) whether an item is in the group."""
        return self.sensitive.cpu().numpy()

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """The items of the group, and the others."""
        return self._in_group.nonzero()[0], (~self._in_group).nonzero()[0]

    def matrix(self, length: int) -> LimitMatrix:
        """The limits on lists of a length; refused where no lists can keep several of them."""
        if length not in self._matrices:
            if len(self._matrices) >= MOST_LENGTHS:
                self._matrices.clear()
            self._matrices[length] = (
                possible_limits(self.limits, length)
                if self.is_several
                else self._on_group(self.rule, length)
            )
        return self._matrices[length]

    def _on_group(self, rule: PlaceRule, length: int) -> LimitMatrix:
        return LimitMatrix.from_rules([GroupRule(rule, self.sensitive.cpu().numpy())], length)

    def from_candidates(
        self, candidate_set: CandidateSet, users: Tensor, queues: Tensor, length: int
    ) -> Tensor:
        """(b, length) for some users."""
        candidates = self.candidates(candidate_set, users, queues, length)
        alone = replace(self, limits=())  # several limits need more than these candidates
        block = Block(self._tables(candidate_set, candidates), alone.matrix(length))
        alone._make(BlocksHere([block]), length)
        return torch.from_numpy(block.lists)

    def _make(self, blocks: Blocks, length: int) -> Totals:
        """The blocks make lists under the limits, as even as they are meant to be."""
        limits = self.matrix(length)
        plain = allocate_over(blocks, limits)
        aim = None if self.spread is None or self.is_several else self._even(blocks, length, plain)
        if aim is None and self.gini_limit is None:
            return plain
        blocks.map(Block.begin, limits)
        return allocate_over(blocks, limits, gini_limit=self.gini_limit, gini_aim=aim)

    def _even(self, blocks: Blocks, length: int, plain: Totals) -> float | None:
        """The Gini index to aim at, from that of the plain lists; None: nothing to compare with.

        A limit that does not bind changes nothing, nor what the rankers would do within it.
        """
        assert self.spread is not None
        tables = blocks.one(0, _tables_of)
        # the Gini index of a single list is the same whatever it shows
        if plain.users < 2 or tables < 2:
            return None
        limits = self._on_group(self.rule if plain.prices[0] > 0 else NO_LIMIT, length)
        own, least = gini_over(blocks), 1.0
        for number in self.spread.numbers(tables - 1):
            blocks.map(Block.begin, limits, 1 + number)
            allocate_over(blocks, limits)
            least = min(least, gini_over(blocks))
        return self.spread.between(own, least)

    def _tables(self, candidate_set: CandidateSet, candidates: Candidates) -> list[Candidates]:
        """Candidates by value, and where lists are to be even by the score of every ranker."""
        if self.spread is None or not isinstance(candidate_set, ScoredCandidates):
            return [candidates]
        items = candidate_set.items.cpu().numpy()
        features = candidate_set.features[..., :-1].cpu().unbind(2)
        return [candidates, *(Candidates.checked(items, one.numpy()) for one in features)]

    def _named(
        self, prices: Sequence[float] | Floats, spread_price: float = 0.0
    ) -> dict[str, float]:
        """The prices by the texts of the limits, or of the level where there are none."""
        found = list(map(float, prices))
        if self.is_several:
            return dict(zip(self._names, found, strict=True))
        named = dict.fromkeys(self._names, found[0])
        return named | dict.fromkeys(self._gini_names, spread_price)

    @cached_property
    def _gini_names(self) -> list[str]:
        return [str(one) for one in gini_limits(self.limits)]

    @cached_property
    def _names(self) -> list[str]:
        """Of the limits on groups, or of the level where there are no limits."""
        on_groups = [str(one) for one in self.limits if not one.limit.is_gini]
        return on_groups if self.limits else [self.level]

    @torch.no_grad()
    def interactive(self, scenario: Scenario, length: int) -> Tensor:
        """(n_users, length): item by item; liked items change what comes next.

        At every step the rest of all lists is planned within what is left of the limit, and every
        user is shown the first item of the plan.
        """
        users = torch.arange(scenario.n_users)
        lists, _ = serve_interactively(
            scenario,
            users,
            self.sensitive,
            lambda _, __: _PlannedSteps(self, scenario, users, length),
            length=length,
        )
        return lists.cpu()

    def guard(self, price: float = 0.0) -> ExposureGuard:
        """What keeps the limits over requests, before the first; price: of one limit."""
        if self.is_several:
            return ExposureGuard(rules_of(self.limits))
        return ExposureGuard(self.rule, price=price)

    def one_by_one(self, scenario: Scenario, length: int, guard: ExposureGuard) -> RankedLists:
        """One user at a time, in order of arrival, counted by the guard."""
        # Refuses limits that no lists can keep, as for all users together.
        self.matrix(length)
        group, made = None if self.is_several else self._in_group, []
        for offer in self.likely_items(scenario, length, every=self.is_several):
            columns = guard.answer(offer, length, group)
            made.append(listed(offer, columns, offer.values(columns), length, {}))
        if not made:
            return RankedLists(np.empty((0, length), dtype=np.int64))
        prices = MappingProxyType(self._named(guard.prices))
        return replace(joined(made), prices=prices)

    def candidates(
        self, candidate_set: CandidateSet, users: Tensor, queues: Tensor, length: int
    ) -> Candidates:
        """The candidates with the value of showing each."""
        taken = self.histories[users.to(self.histories.device)]
        return self._offered(
            candidate_set, self._probabilities(candidate_set, users, queues), taken, length
        )

    def opened(self, scenario: Scenario, length: int) -> tuple[CandidateSet, Tensor, Candidates]:
        """Candidates of all users, with probabilities and with values, in their initial states."""
        rows = torch.arange(scenario.n_users)
        users = scenario.codes_of(rows)
        candidate_set = self.candidate_cache.get(
            self.probabilities.items, scenario, self.sensitive, length
        )
        probabilities = self._probabilities(candidate_set, users, scenario.queue)
        taken = self.histories[users] if scenario.taken is None else scenario.taken
        return (
            candidate_set,
            probabilities,
            self._offered(candidate_set, probabilities, taken, length, scenario.worth),
        )

    def values_of_all(self, scenario: Scenario, rows: Tensor, length: int) -> ValuedItems:
        """All items, with probabilities and values, for the users in some rows of the scenario."""
        state = scenario.state(rows, self.sensitive.device)
        candidate_set = self.probabilities.items.all_candidates(
            state.users, state.queue, state.blocked, self.sensitive
        )
        probabilities = self._probabilities(candidate_set, state.users, state.queue)
        users = scenario.codes_of(rows)
        taken = self.histories[users] if scenario.taken is None else scenario.taken[rows]
        worth = None if scenario.worth is None else scenario.worth[rows]
        values = self._values(probabilities, taken, length, worth)
        return ValuedItems(candidate_set.items.cpu(), values, probabilities.cpu())

    def offers(
        self, scenario: Scenario, length: int, limits: LimitMatrix, users: int
    ) -> tuple[Candidates, Tensor]:
        """The value of showing each item, and the probabilities.

        users: how many there are in all, of whom these are some.
        Every class of items has its own price, so none of them may be left out; but no list needs
        more than `length` items of a class. No others are kept of many users times items, and where
        that leaves few: for every price that is tried, all that are kept are looked at.
        """
        kept: list[tuple[Tensor, ...]] = []
        n_items = len(self.sensitive)
        needed = np.minimum(np.bincount(limits.of_item), length).sum()
        only_best = users > 1 and (users * n_items > VALUES_KEPT or needed <= FEW * n_items)
        for rows in torch.arange(scenario.n_users).split(rows_at_once(n_items, VALUES_AT_ONCE)):
            some = self.values_of_all(scenario, rows, length)
            values = some.values.masked_fill(some.items < 0, -torch.inf)
            if only_best:
                at = _best_of_classes(values, limits)
                kept.append((values.gather(1, at), some.probabilities.gather(1, at), at))
            else:
                kept.append((values, some.probabilities))
        values, probabilities, *items = (torch.cat(tables) for tables in zip(*kept, strict=True))
        codes = items[0].numpy() if only_best else np.arange(n_items)[None]
        return Candidates.checked(codes, values.numpy()), probabilities

    def _probabilities(self, candidate_set: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:
        device = self.sensitive.device
        return self.probabilities.predict(candidate_set, users.to(device), queues.to(device))

    def _offered(
        self,
        candidate_set: CandidateSet,
        probabilities: Tensor,
        taken: Tensor,
        length: int,
        worth: Tensor | None = None,
    ) -> Candidates:
        values = self._values(probabilities, taken, length, worth)
        return Candidates.checked(candidate_set.items.cpu().numpy(), values.numpy())

    def _values(
        self, probabilities: Tensor, taken: Tensor, length: int, worth: Tensor | None
    ) -> Tensor:
        """(b, C) of showing each item; worth: (b,) by which a user's values are multiplied."""
        likes = (taken.to(self.sensitive.device) / (LATER - 1)).clamp(min=1.0)
        values = item_values(probabilities.detach(), likes, length).cpu()
        return values if worth is None else values * worth.to(values)[:, None]


class ServedBlock(Block):
    """Some users under limits, with the probabilities (b, n) of the first table's candidates."""

    def __init__(
        self, tables: Sequence[Candidates], limits: LimitMatrix, probabilities: Tensor
    ) -> None:
        super().__init__(tables, limits)
        self.probabilities = probabilities.cpu()

    def served(self, prices: Mapping[str, float]) -> RankedLists:
        """The lists that were made last."""
        return served_lists(self.lists, self.tables[0], self.probabilities, prices)


def listed(
    offer: LikelyItems, columns: Counts, values: Floats, length: int, prices: Mapping[str, float]
) -> RankedLists:
    """The list of one user, by the columns of its items among those on offer, with their values."""
    filled = len(columns)
    lists = np.full((1, length), -1, dtype=np.int64)
    lists[0, :filled] = offer.items(columns)
    numbers = np.full((2, 1, length), np.nan)
    numbers[0, 0, :filled], numbers[1, 0, :filled] = values, offer.probabilities(columns)
    return RankedLists(lists, numbers[0], numbers[1], prices)


def served_lists(
    lists: np.ndarray, candidates: Candidates, probabilities: Tensor, prices: Mapping[str, float]
) -> RankedLists:
    """Lists (b, L) with the values and probabilities (b, n) of their items among the candidates."""
    if candidates.same_items and np.array_equal(
        candidates.items[0], np.arange(candidates.items.shape[1])
    ):
        at = lists.clip(0)  # a column for every item of the catalogue
    else:
        at = columns_of(lists, candidates.codes)
    values, scores = (
        np.where(lists < 0, np.nan, np.take_along_axis(table, at, axis=1).astype(np.float64))
        for table in (candidates.values, probabilities.numpy())
    )
    return RankedLists(lists, values, scores, MappingProxyType(dict(prices)))


def rules_of(limits: Sequence[ResolvedLimit]) -> tuple[GroupRule, ...]:
    """The limits as allocations keep them."""
    return tuple(map(GroupRule.from_limit, limits))


@lru_cache(maxsize=16)  # a call for one user would mostly wait for these
def possible_limits(limits: tuple[ResolvedLimit, ...], length: int) -> LimitMatrix:
    """What the limits ask of lists; refused where no lists of this length can keep them."""
    matrix = LimitMatrix.from_rules(rules_of(limits), length)
    items = np.bincount(matrix.of_item, minlength=matrix.n_classes)
    one_list = np.ones(length, dtype=np.int64)
    check_together(matrix, Supply(one_list, np.minimum(items, length)))
    return matrix


def _tables_of(block: Block) -> int:
    return len(block.tables)


def _best_of_classes(values: Tensor, limits: LimitMatrix) -> Tensor:
    """(b, C) the items with the highest values (b, n_items), as many of a class as a list has.

    In the order of the catalogue, so that of equal values the first item stays the first.
    """
    best = []
    for members in map(torch.from_numpy, limits.items_of_class):
        most = min(limits.length, len(members))
        best.append(members[values.index_select(1, members).topk(most, dim=1).indices])
    return torch.cat(best, dim=1).sort(1).values


class _PlannedSteps:
    """Plans the rest of all lists at every step and shows the first item of the plan."""

    def __init__(self, lists: ItemLists, scenario: Scenario, users: Tensor, length: int) -> None:
        self.lists, self.length, self.step = lists, length, 0
        candidate_set = initial_candidates(
            lists.probabilities.items, scenario, users, lists.sensitive, length
        ).candidate_set
        offers = lists.candidates(
            candidate_set, scenario.codes_of(users), scenario.queue[users], length
        )
        self.items, self.values = offers.codes, offers.values
        self.discounts = discount(torch.arange(1, length + 1)).tolist()
        self.prefix = self.items[:, :0]  # (b, step) what was shown so far

    def choose(self, state: State) -> Tensor:
        rule = GroupRule(self.lists.rule, self.lists.sensitive.cpu().numpy())
        limits = LimitMatrix.from_rules(
            [rule], self.length - self.step, start=self.step, discounts=self.discounts[self.step :]
        )
        plan = allocate(Candidates.checked(self.items, self.values), limits, prefix=self.prefix)
        return torch.from_numpy(plan.lists[:, :1]).to(state.queue)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        """New values for the users who liked what they were shown."""
        column, sensitive = lists.cpu().numpy(), self.lists.sensitive
        self.step += 1
        self.prefix = np.concatenate([self.prefix, column], axis=1)
        self.items = np.where(self.items == column, -1, self.items)
        rows = outcome.hits.any(1).nonzero().squeeze(1)
        if not len(rows):
            return
        state = outcome.state
        for some in rows.split(max(1, 2**26 // len(sensitive))):  # the table of blocked is wide
            users, queues = state.users[some], state.queue[some]
            candidate_set = self.lists.probabilities.items.candidate_set(
                users, queues, state.blocked_sets.mask(some), sensitive, self.length
            )
            offers = self.lists.candidates(candidate_set, users.cpu(), queues, self.length)
            at = some.cpu().numpy()
            self.items[at], self.values[at] = offers.codes, offers.values
