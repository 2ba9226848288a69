"""From requests to lists: values of the model or of the caller, prices, and a hard cap."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.candidates import NEVER, Offer
from fairhorizon.allocation.guard import ExposureGuard, GuardedList
from fairhorizon.errors import FairHorizonError
from fairhorizon.fcpo.retention.replay import FittedRetention, best_open
from fairhorizon.model.serving import RepeatRule, Requests
from fairhorizon.recommenders.likely_items import LikelyItems
from fairhorizon.recommenders.responses import ResponseHistory, see_many
from fairhorizon.service.budget.leases import LeaseBalance
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings, Source
from fairhorizon.service.store.feedback import MOST_SHOWN
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.vocabulary import ListValue

Codes = NDArray[np.int64]


class NoModelError(FairHorizonError):
    """There is no model to recommend with."""


class UnknownItemsError(FairHorizonError):
    """Candidates that nobody has described."""


@dataclass(frozen=True, eq=False)
class ListRequest:
    """A list for one user.

    categories: items have to be in all of them.
    candidates: of somebody else's recommender, with scores; None: those of the model.
    """

    user: str
    n: int
    categories: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    candidates: dict[str, float] | None = None
    started: float = field(default_factory=time.perf_counter)
    answer: "Future[BuiltList]" = field(default_factory=Future)
    waiter: "Waiter | None" = None  # of a coroutine, in place of `answer`

    def is_awaited(self) -> bool:
        """Whether somebody still waits for the list."""
        if self.waiter is not None:
            return not self.waiter.cancelled()
        return self.answer.set_running_or_notify_cancel()

    @property
    def source(self) -> Source:
        return Source.RECOMMEND if self.candidates is None else Source.RANK


@dataclass(frozen=True)
class UserHistories:
    """What the database knows of those who ask, by id.

    events: what they took or refused, oldest first.
    shown: their newest lists, oldest first; empty where nobody looks at them.
    """

    events: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    shown: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def answers(self, user: str, since: float, negative: Sequence[str]) -> list[bool]:
        """Whether each of the newest showings to a user was liked, oldest first.

        A like is feedback that names the list, and is neither `read` nor negative.
        """
        liked = {
            (row.list_id, row.item_id)
            for row in self.events.get(user, ())
            if row.list_id is not None and row.type not in negative
        }
        found = [
            (row.id, item) in liked
            for row in self.shown.get(user, ())
            if row.served_at > since
            for item in row.items
        ]
        return found[-MOST_SHOWN:]


@dataclass(frozen=True, eq=False)
class BuiltList:
    """A list as it will be recorded and answered."""

    id: str
    user: str
    source: Source
    codes: Codes  # of the items, by place
    items: list[str]
    scores: list[float]
    values: list[float]
    propensities: list[float] | None
    missing: int  # places that no item was found for, though there are items that were asked for
    model: int | None  # that the values are of
    started: float  # when its request came, by the clock of this process
    prices: dict[str, float] = field(default_factory=dict)


Waiter = asyncio.Future[BuiltList]
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
        # The limits are the same: prices go on as they are.
        if before is not None and before.snapshot.rules is snapshot.rules:
            self.guards = before.guards
            return
        rules = snapshot.rules.group_rules
        self.guards = {
            # Values of callers are in units of their own, so that they have prices of their own.
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
    ) -> dict[int, LikelyItems]:
        """What each request may be shown, all those of one length at once."""
        state = self.snapshot.state
        if state is None:
            return {}
        found = {}
        # Values depend on the length of a list, and requests of one length share a pass of the
        # model.
        for n in sorted({one.n for one in requests}):
            some = [one for one in requests if one.n == n]
            negative = self.settings.negative
            known = [
                self.snapshot.user_now(one.user, users.events.get(one.user, ()), negative)
                for one in some
            ]
            batch = Requests(
                [person for person, _ in known], self.snapshot.catalogue.hidden, RepeatRule()
            )
            scenario = batch.scenario(state.users, state.n_items, state.queue_length)
            offers = list(state.unlimited.likely_items(scenario, length=n))
            worth = self._worth(scenario, offers, [one.user for one in some], users)
            for one, offer, factor, (_, refused) in zip(some, offers, worth, known, strict=True):
                # Not in the history: what was refused says nothing of taste to a ranker.
                offer.order[refused] = NEVER
                found[id(one)] = offer if factor == 1 else replace(offer, worth=factor)
        return found

    def _worth(
        self,
        scenario: Scenario,
        offers: Sequence[LikelyItems],
        asking: Sequence[str],
        users: UserHistories,
    ) -> list[float]:
        """What a like of those who ask is worth; 1: nobody looks at it."""
        retention, state = self.snapshot.retention, self.snapshot.state
        if self.settings.value is not ListValue.LONG or retention is None:
            return [1.0] * len(offers)
        assert state is not None
        assert scenario.taken is not None
        negative = self.settings.negative
        answers = [users.answers(one, retention.until, negative) for one in asking]
        # The record may still have the responses of somebody who asked to be forgotten.
        known = [None if one in self.snapshot.forgotten else one for one in asking]
        responses = current_responses(retention, known, scenario.taken, answers)
        every = np.arange(len(offers[0].order))
        items = np.stack([np.where(one.order > NEVER, every, -1) for one in offers])
        chances = np.stack([one.probabilities(every) for one in offers]).astype(np.float32)
        best = best_open(
            torch.from_numpy(items), torch.from_numpy(chances), state.unlimited.sensitive_
        )
        worth: list[float] = retention.worth(responses, best).tolist()
        return worth

    def _recommended(
        self, request: ListRequest, valued: dict[int, LikelyItems], balance: LeaseBalance
    ) -> BuiltList:
        if self.snapshot.state is None:
            raise NoModelError(
                "there is no model yet (promote one: POST /v1/models, or start with --run)"
            )
        offer, items = valued[id(request)], self.snapshot.catalogue
        wanted = len(offer.order)
        if request.categories or request.exclude:
            kept = np.ones(wanted, dtype=np.bool_)
            for category in request.categories:
                kept &= items.in_category(category)
            # Ids that nobody knows are passed over: callers may exclude what is not here yet.
            kept[[items.codes[one] for one in request.exclude if one in items.codes]] = False
            offer.order[~kept] = NEVER
            wanted = int(kept.sum())
        codes, chosen = self._chosen(request, offer, balance)
        # A category of three items gives three places; a user who took everything is short of ten.
        missing = min(request.n, wanted) - len(codes)
        return self._built(
            request, codes, chosen, offer.values(codes), offer.probabilities(codes), missing
        )

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
            and not items.hidden[codes_of[one]]
            and all(category in items.rows[one].categories for category in request.categories)
        }
        codes = np.array(list(open_ones), dtype=np.int64)
        scores = np.array(list(open_ones.values()), dtype=np.float64)
        shown, chosen = self._chosen(request, Offer(scores, codes), balance)
        own = np.array([open_ones[code] for code in shown.tolist()])
        missing = min(request.n, len(codes)) - len(shown)
        return self._built(request, shown, chosen, own, own, missing)

    def _chosen(
        self,
        request: ListRequest,
        offer: Offer,
        balance: LeaseBalance,
    ) -> tuple[Codes, list[float] | None]:
        """The items of a list, counted, and their probabilities where lists are explored."""
        guard, length = self.guards[request.source], min(request.n, len(offer.order))
        chosen = guard.decide(offer, balance.caps, length)
        items, probabilities = chosen.items, None
        if self.settings.explore:
            items, probabilities = explored(chosen, self.settings.explore, self.draws)
        balance.spend(items)
        return items, probabilities

    def _built(
        self,
        request: ListRequest,
        codes: Codes,
        propensities: list[float] | None,
        values: NDArray[np.floating[Any]],
        scores: NDArray[np.floating[Any]],
        missing: int,
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
            missing,
            self.snapshot.model_id if request.source is Source.RECOMMEND else None,
            request.started,
            {str(rules[j]): float(prices[j]) for j in np.flatnonzero(prices > 0).tolist()},
        )


def explored(
    chosen: GuardedList, explore: float, draws: np.random.Generator
) -> tuple[Codes, list[float]]:
    """A list after its draw, and the probability of every showing in it.

    With the probability `explore`, one of the n places is drawn, and then one of m items: the one
    that was chosen for it and the best that are in the same groups and in no other place. So no
    limit counts anything else, and the probability of each showing is known:

        1 - explore (m - 1) / (n m)    of the item that was chosen for a place
        explore / (n m)                of each of the others
    """
    items, n = chosen.items.copy(), len(chosen.items)
    pools = [chosen.spares(kind, OTHERS) for kind in chosen.classes]
    probabilities = [1 - explore * len(pool) / (n * (len(pool) + 1)) for pool in pools]
    if n and draws.random() < explore:
        place = int(draws.integers(n))
        pool = pools[place]
        pick = int(draws.integers(len(pool) + 1))
        # 0 stays with the chosen item.
        if pick:
            items[place] = pool[pick - 1]
            probabilities[place] = explore / (n * (len(pool) + 1))
    return items, probabilities


def current_responses(
    retention: FittedRetention,
    users: Sequence[str | None],
    taken: Tensor,
    answers: list[list[bool]],
) -> ResponseHistory:
    """The responses of users with answers (b, ...) that came after the record.

    users: ids; None: somebody who asked to be forgotten.
    """
    responses = retention.responses_of(users, taken)
    width = max(map(len, answers), default=0)
    if width:
        shown = torch.tensor([len(own) for own in answers])[:, None] > torch.arange(width)
        liked = torch.tensor([own + [False] * (width - len(own)) for own in answers])
        see_many(responses, shown, liked)
    return responses
