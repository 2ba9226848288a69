"""From requests to lists: values of the model or of the caller, prices, and a hard cap."""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.fcpo.retention.replay import best_open
from fairhorizon.model.requests import RepeatRule, Requests
from fairhorizon.recommenders.served import ValuedItems
from fairhorizon.service.budget.purse import Purse
from fairhorizon.service.replica.exploring import explored
from fairhorizon.service.replica.recording import Codes, Decided
from fairhorizon.service.replica.requests import ListRequest, NoModelError, UnknownItemsError
from fairhorizon.service.replica.weighing import UsersSoFar, standing_now
from fairhorizon.service.replica.world import World
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.vocabulary import Source
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.vocabulary import ListValue

MOST_NAMED = 3  # unknown items that a message names


class Decider:
    """Decides the lists of one replica in one world; its prices go on to the next one."""

    def __init__(
        self,
        world: World,
        prices: NDArray[np.float64],
        settings: ServiceSettings,
        draws: np.random.Generator,
        before: "Decider | None" = None,
    ) -> None:
        self.world, self.settings, self.draws = world, settings, draws
        self.lists: dict[Source, ExposureGuard]
        if before is not None and before.world.rules is world.rules:
            self.lists = before.lists
            return
        rules = world.rules.group_rules
        self.lists = {
            Source.RECOMMEND: ExposureGuard(rules, price=prices),
            Source.RANK: ExposureGuard(rules),
        }
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: "Decider") -> None:
        """What was learned of values and prices, where a rule is still the same."""
        names = [str(rule) for rule in self.world.rules.group_rules]
        for source, lists in self.lists.items():
            old = before.lists[source]
            known = dict(zip(map(str, old.rules), old.prices.tolist(), strict=True))
            lists.spread, lists.requests = old.spread, old.requests
            lists.prices = np.array(
                [known.get(name, now) for name, now in zip(names, lists.prices, strict=True)],
                dtype=np.float64,
            )

    @property
    def prices(self) -> list[float]:
        """Of the model's values, by rule."""
        found: list[float] = self.lists[Source.RECOMMEND].prices.tolist()
        return found

    def decide(
        self,
        requests: Sequence[ListRequest],
        users: UsersSoFar,
        purse: Purse,
    ) -> list[Decided | Exception]:
        """A list for each request, or why there is none; what they use is spent from the purse."""
        valued = self._valued([one for one in requests if one.candidates is None], users)
        decided: list[Decided | Exception] = []
        for one in requests:
            try:
                if one.candidates is None:
                    decided.append(self._recommended(one, valued, purse))
                else:
                    decided.append(self._ranked(one, purse))
            except (NoModelError, UnknownItemsError) as error:
                decided.append(error)
        return decided

    @torch.inference_mode()
    def _valued(
        self, requests: Sequence[ListRequest], users: UsersSoFar
    ) -> dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """(n_items,) values and chances for each request, all those of one length at once."""
        state = self.world.state
        if state is None:
            return {}
        found = {}
        for n in sorted({one.n for one in requests}):
            some = [one for one in requests if one.n == n]
            negative = self.settings.negative
            asking = [
                self.world.person(one.user, users.events.get(one.user, ()), negative)
                for one in some
            ]
            batch = Requests(
                [one.person for one in asking], self.world.catalogue.shut, RepeatRule()
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
        self, scenario: Scenario, made: ValuedItems, asking: Sequence[str], users: UsersSoFar
    ) -> Tensor | None:
        """(b,) what a like of those who ask is worth; None: nobody looks at it."""
        outlook, state = self.world.outlook, self.world.state
        if self.settings.value is not ListValue.LONG or outlook is None:
            return None
        assert state is not None
        assert scenario.taken is not None
        negative = self.settings.negative
        answers = [users.answers(one, outlook.until, negative) for one in asking]
        known = [None if one in self.world.forgotten else one for one in asking]
        standing = standing_now(outlook, known, scenario.taken, answers)
        return outlook.worth(standing, best_open(made.items, made.chances, state.free.sensitive_))

    def _recommended(
        self,
        request: ListRequest,
        valued: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]],
        purse: Purse,
    ) -> Decided:
        if self.world.state is None:
            raise NoModelError(
                "there is no model yet (promote one: POST /v1/models, or start with --run)"
            )
        values, chances = valued[id(request)]
        items = self.world.catalogue
        for category in request.categories:
            values[~items.in_category(category)] = NEVER
        values[[items.codes[one] for one in request.exclude if one in items.codes]] = NEVER
        codes, chosen = self._chosen(request, values, None, purse)
        return self._decided(request, codes, chosen, values[codes], chances[codes])

    def _ranked(self, request: ListRequest, purse: Purse) -> Decided:
        assert request.candidates is not None
        items, codes_of = self.world.catalogue, self.world.catalogue.codes
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
        shown, chosen = self._chosen(request, scores, codes, purse)
        own = np.array([open_ones[code] for code in shown.tolist()])
        return self._decided(request, shown, chosen, own, own)

    def _chosen(
        self,
        request: ListRequest,
        values: NDArray[np.floating[Any]],
        codes: Codes | None,
        purse: Purse,
    ) -> tuple[Codes, list[float] | None]:
        """The items of a list, counted, and their probabilities where lists are explored."""
        lists, length = self.lists[request.source], min(request.n, len(values))
        chosen = lists.decide(values, codes, purse.caps, length)
        items, chances = chosen.items, None
        if self.settings.explore:
            drawn = explored(chosen, self.settings.explore, self.draws)
            items, chances = drawn.items, drawn.propensities
        purse.spend(items)
        return items, chances

    def _decided(
        self,
        request: ListRequest,
        codes: Codes,
        propensities: list[float] | None,
        values: NDArray[np.floating[Any]],
        scores: NDArray[np.floating[Any]],
    ) -> Decided:
        prices = self.lists[request.source].prices
        rules = self.world.rules.group_rules
        return Decided(
            uuid.uuid4().hex,
            request.user,
            request.source,
            codes,
            [self.world.catalogue.ids[code] for code in codes.tolist()],
            [float(score) for score in scores],
            [float(value) for value in values],
            propensities,
            self.world.model_id if request.source is Source.RECOMMEND else None,
            request.begun,
            {str(rules[j]): float(prices[j]) for j in np.flatnonzero(prices > 0).tolist()},
        )
