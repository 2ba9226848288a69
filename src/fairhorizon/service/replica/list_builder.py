"""From requests to lists: values of the model or of the caller, prices, and a hard cap."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.guard import ExposureGuard, GuardedList
from fairhorizon.fcpo.retention.replay import FittedRetention, best_open
from fairhorizon.fcpo.retention.state import ResponseHistory, see_many
from fairhorizon.model.serving import RepeatRule, Requests
from fairhorizon.recommenders.base import ValuedItems
from fairhorizon.service.budget.leases import LeaseBalance
from fairhorizon.service.replica.requests import (
    BuiltList,
    Codes,
    ListRequest,
    NoModelError,
    UnknownItemsError,
    UserHistories,
)
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.vocabulary import Source
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.vocabulary import ListValue

MOST_NAMED = 3  # unknown items that a message names
OTHERS = 20  # items that a place may go to instead


class ListBuilder:
    """Makes the lists of one replica from one snapshot; what was learned of prices goes on."""

    def __init__(
        self,
        snapshot: ServingSnapshot,
        prices: NDArray[np.float64],
        settings: ServiceSettings,
        draws: np.random.Generator,
        before: "ListBuilder | None" = None,
    ) -> None:
        self.snapshot, self.settings, self.draws = snapshot, settings, draws
        self.guards: dict[Source, ExposureGuard]
        if before is not None and before.snapshot.rules is snapshot.rules:
            self.guards = before.guards
            return
        rules = snapshot.rules.group_rules
        self.guards = {
            Source.RECOMMEND: ExposureGuard(rules, price=prices),
            Source.RANK: ExposureGuard(rules),
        }
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: "ListBuilder") -> None:
        """What was learned of values and prices, where a rule is still the same."""
        names = [str(rule) for rule in self.snapshot.rules.group_rules]
        for source, guard in self.guards.items():
            old = before.guards[source]
            known = dict(zip(map(str, old.rules), old.prices.tolist(), strict=True))
            guard.spread, guard.requests = old.spread, old.requests
            guard.prices = np.array(
                [known.get(name, now) for name, now in zip(names, guard.prices, strict=True)],
                dtype=np.float64,
            )

    @property
    def prices(self) -> list[float]:
        """Of the model's values, by rule."""
        found: list[float] = self.guards[Source.RECOMMEND].prices.tolist()
        return found

    def build(
        self,
        requests: Sequence[ListRequest],
        users: UserHistories,
        balance: LeaseBalance,
    ) -> list[BuiltList | Exception]:
        """A list for each request, or why there is none; what lists use is spent from balance."""
        valued = self._valued([one for one in requests if one.candidates is None], users)
        built: list[BuiltList | Exception] = []
        for one in requests:
            try:
                if one.candidates is None:
                    built.append(self._recommended(one, valued, balance))
                else:
                    built.append(self._ranked(one, balance))
            except (NoModelError, UnknownItemsError) as error:
                built.append(error)
        return built

    @torch.inference_mode()
    def _valued(
        self, requests: Sequence[ListRequest], users: UserHistories
    ) -> dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """(n_items,) values and chances for each request, all those of one length at once."""
        state = self.snapshot.state
        if state is None:
            return {}
        found = {}
        for n in sorted({one.n for one in requests}):
            some = [one for one in requests if one.n == n]
            negative = self.settings.negative
            asking = [
                self.snapshot.requester(one.user, users.events.get(one.user, ()), negative)
                for one in some
            ]
            batch = Requests(
                [one.person for one in asking], self.snapshot.catalogue.shut, RepeatRule()
            )
            scenario = batch.scenario(state.people, state.n_items, state.free.queue_length)
            made = state.free.item_values(scenario, length=n)
            worth = self._worth(scenario, made, [one.user for one in some], users)
            weighed = made.values if worth is None else made.values * worth[:, None]
            values = weighed.masked_fill(made.items < 0, NEVER).float().numpy()
            chances = made.chances.float().numpy()
            for row, (one, who) in enumerate(zip(some, asking, strict=True)):
                values[row, who.refused] = NEVER
                found[id(one)] = (values[row], chances[row])
        return found

    def _worth(
        self, scenario: Scenario, made: ValuedItems, asking: Sequence[str], users: UserHistories
    ) -> Tensor | None:
        """(b,) what a like of those who ask is worth; None: nobody looks at it."""
        retention, state = self.snapshot.retention, self.snapshot.state
        if self.settings.value is not ListValue.LONG or retention is None:
            return None
        assert state is not None
        assert scenario.taken is not None
        negative = self.settings.negative
        answers = [users.answers(one, retention.until, negative) for one in asking]
        known = [None if one in self.snapshot.forgotten else one for one in asking]
        standing = standing_now(retention, known, scenario.taken, answers)
        return retention.worth(standing, best_open(made.items, made.chances, state.free.sensitive_))

    def _recommended(
        self,
        request: ListRequest,
        valued: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]],
        balance: LeaseBalance,
    ) -> BuiltList:
        if self.snapshot.state is None:
            raise NoModelError(
                "there is no model yet (promote one: POST /v1/models, or start with --run)"
            )
        values, chances = valued[id(request)]
        items = self.snapshot.catalogue
        for category in request.categories:
            values[~items.in_category(category)] = NEVER
        values[[items.codes[one] for one in request.exclude if one in items.codes]] = NEVER
        codes, chosen = self._chosen(request, values, None, balance)
        return self._built(request, codes, chosen, values[codes], chances[codes])

    def _ranked(self, request: ListRequest, balance: LeaseBalance) -> BuiltList:
        assert request.candidates is not None
        items, codes_of = self.snapshot.catalogue, self.snapshot.catalogue.codes
        unknown = [one for one in request.candidates if one not in items.rows]
        if unknown:
            more = ", ..." if len(unknown) > MOST_NAMED else ""
            raise UnknownItemsError(
                f"no item is called {', '.join(map(repr, unknown[:MOST_NAMED]))}{more}: its groups "
                "are not known (describe items first: POST /api/items)"
            )
        excluded = set(request.exclude)
        open_ones = {
            codes_of[one]: score
            for one, score in request.candidates.items()
            if one not in excluded
            and not items.shut[codes_of[one]]
            and all(category in items.rows[one].categories for category in request.categories)
        }
        codes = np.array(list(open_ones), dtype=np.int64)
        scores = np.array(list(open_ones.values()), dtype=np.float64)
        shown, chosen = self._chosen(request, scores, codes, balance)
        own = np.array([open_ones[code] for code in shown.tolist()])
        return self._built(request, shown, chosen, own, own)

    def _chosen(
        self,
        request: ListRequest,
        values: NDArray[np.floating[Any]],
        codes: Codes | None,
        balance: LeaseBalance,
    ) -> tuple[Codes, list[float] | None]:
        """The items of a list, counted, and their probabilities where lists are explored."""
        guard, length = self.guards[request.source], min(request.n, len(values))
        chosen = guard.decide(values, codes, balance.caps, length)
        items, chances = chosen.items, None
        if self.settings.explore:
            drawn = explored(chosen, self.settings.explore, self.draws)
            items, chances = drawn.items, drawn.propensities
        balance.spend(items)
        return items, chances

    def _built(
        self,
        request: ListRequest,
        codes: Codes,
        propensities: list[float] | None,
        values: NDArray[np.floating[Any]],
        scores: NDArray[np.floating[Any]],
    ) -> BuiltList:
        prices = self.guards[request.source].prices
        rules = self.snapshot.rules.group_rules
        return BuiltList(
            uuid.uuid4().hex,
            request.user,
            request.source,
            codes,
            [self.snapshot.catalogue.ids[code] for code in codes.tolist()],
            [float(score) for score in scores],
            [float(value) for value in values],
            propensities,
            self.snapshot.model_id if request.source is Source.RECOMMEND else None,
            request.begun,
            {str(rules[j]): float(prices[j]) for j in np.flatnonzero(prices > 0).tolist()},
        )


@dataclass(frozen=True, eq=False)
class Explored:
    """A list after its draw, and the probability of every showing in it."""

    items: Codes
    propensities: list[float]


def explored(chosen: GuardedList, explore: float, draws: np.random.Generator) -> Explored:
    """Explore a list that was chosen: with known probabilities, one place goes to another item.

    With the probability `explore`, one of the n places is drawn, and then one of m items: the one
    that was chosen for it and the best that are in the same groups and in no other place. So no
    limit counts anything else, and the probability of each showing is known:

        1 - explore (m - 1) / (n m)    of the item that was chosen for a place
        explore / (n m)                of each of the others
    """
    items, n = chosen.items.copy(), len(chosen.items)
    pools = [chosen.spares(kind, OTHERS) for kind in chosen.classes]
    chances = [1 - explore * len(pool) / (n * (len(pool) + 1)) for pool in pools]
    if n and draws.random() < explore:
        place = int(draws.integers(n))
        pool = pools[place]
        pick = int(draws.integers(len(pool) + 1))
        if pick:
            items[place] = pool[pick - 1]
            chances[place] = explore / (n * (len(pool) + 1))
    return Explored(items, chances)


def standing_now(
    retention: FittedRetention,
    users: Sequence[str | None],
    taken: Tensor,
    answers: list[list[bool]],
) -> ResponseHistory:
    """The responses of users with answers (b, ...) that came after the record.

    users: ids; None: somebody who asked to be forgotten.
    """
    standing = retention.standing_of(users, taken)
    width = max(map(len, answers), default=0)
    if width:
        shown = torch.tensor([len(own) for own in answers])[:, None] > torch.arange(width)
        liked = torch.tensor([own + [False] * (width - len(own)) for own in answers])
        see_many(standing, shown, liked)
    return standing
