"""Step control over the scores of one ranker: limits hold at every step.

`NAME+control` is by scores, `NAME+likes` in a long run by probabilities of a like (likes.py).

Rules of diversity may be added: kinds of items that a user was shown lately lose, or are closed.
Maximal marginal relevance (Carbonell & Goldstein, SIGIR 1998) takes off the score of an item what
it has in common with the items chosen before. Here these are all that the user was shown so far,
and they fade: with p_ik the part of kind k in item i,

    score(u, i) - mmr * sum_j forgetting^(steps between) sum_k p_ik p_jk,    j: shown to u before

The paper takes the most similar item; the sum counts how often a kind came up. With this sum the
rule has the form of satiation (simulation/churn.py), so that no better form is left to a rival.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ConfigError
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import PopularityLimit, StepLimit
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.base import RankedLists, ServingPlan
from fairhorizon.recommenders.interactive import serve_under_control
from fairhorizon.recommenders.likes import LikeModel
from fairhorizon.recommenders.lists.features import EnsembleFeatures, EnsembleItems
from fairhorizon.recommenders.lists.item_lists import step_limits
from fairhorizon.recommenders.online import OnlineRanker, Retraining
from fairhorizon.recommenders.ranked.calibration import FittedRanker
from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.likes import LikesControl
from fairhorizon.simulation.dynamics import Outcome, State, push_liked
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import below

# What closes an item, in standard deviations of the scores. It is finite so that limits come first:
# where a limit leaves nothing else, a closed item is shown.
CLOSED = 1e3


class DiversityRules:
    """The kinds of what each user was shown lately, and the handicaps that follow from them.

    kinds: (n_items, kinds) the part that each kind has in an item, rows that add up to 1, or to 0
        for items without a kind, which no rule is about.
    """

    lately: Tensor  # (b, kinds) the parts in what was shown, faded
    recent: Tensor  # (b, window - 1) items, newest last: with the next one a whole window

    def __init__(self, rules: StepControl, kinds: Tensor) -> None:
        self.rules, self.kinds = rules, kinds.float()
        self.main, self.has_kind = kinds.argmax(1), kinds.any(1)
        self._begin(0)

    def begin(self, users: int) -> None:
        """Start with nothing shown, unless these users were served before."""
        if len(self.lately) != users:
            self._begin(users)

    def observe(self, lists: Tensor) -> None:
        """These lists (b, K) were shown, -1 for none; a step is over."""
        self.lately = self.rules.forgetting * self.lately + self._of_kinds(lists)
        self.recent = push_liked(self.recent, lists, lists >= 0)

    def handicap(self, taken: Tensor) -> Tensor:
        """(b, n_items) what the rules take off the scores; taken (b, k): the lists so far."""
        handicap = torch.zeros(len(taken), len(self.kinds), device=taken.device)
        if self.rules.mmr > 0:
            # (b, kinds) @ (kinds, n_items): the sum over kinds of the part in the item times that
            # in the past.
            alike = (self.lately + self._of_kinds(taken)) @ self.kinds.T
            handicap.add_(alike, alpha=self.rules.mmr)
        if self.rules.kind_quota is not None:
            full = self._kinds_of(push_liked(self.recent, taken, taken >= 0))
            closed = (full >= self.rules.kind_quota)[:, self.main] & self.has_kind
            handicap.add_(closed, alpha=CLOSED)
        return handicap

    def tensors(self) -> dict[str, Tensor]:
        return {"lately": self.lately, "recent": self.recent}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.lately, self.recent = tensors["lately"].clone(), tensors["recent"].clone()

    def _begin(self, users: int) -> None:
        device = self.kinds.device
        self.lately = torch.zeros(users, self.kinds.shape[1], device=device)
        self.recent = torch.full((users, self.rules.window - 1), -1, device=device)

    def _of_kinds(self, lists: Tensor) -> Tensor:
        """(b, kinds) the parts of the kinds in lists, added up."""
        return (self.kinds[lists.clamp(min=0)] * (lists >= 0)[:, :, None]).sum(1)

    def _kinds_of(self, items: Tensor) -> Tensor:
        """(b, kinds) how many of the items (b, n) have each main kind."""
        at = items.clamp(min=0)
        counts = torch.zeros(len(items), self.kinds.shape[1], device=items.device)
        return counts.scatter_add_(1, self.main[at], ((items >= 0) & self.has_kind[at]).float())


def diversity_of(rules: StepControl, kinds: Tensor | None, method: str) -> DiversityRules | None:
    """The rules of a control; None where it has none about kinds of items."""
    if not rules.needs_kinds:
        return None
    if kinds is None:
        raise ConfigError(
            f"{method}: mmr and kind_quota are about kinds of items, of which nothing is known "
            "(give `kinds`, or leave them out)"
        )
    return DiversityRules(rules, kinds)


class OnlineControlled:
    """Serves by the standardised scores of a ranker, at the prices that keep the limits.

    What users like changes the scores of a ranker that reads histories at once. With `retraining`
    the ranker is fitted again at the first update after every round. With `diversity` the scores
    depend on the kinds of items that a user was shown lately. With `likes` values are probabilities
    of a like, learned in pretraining runs and, with `learn`, while it serves.
    """

    def __init__(
        self,
        ranker: Ranker[Any],
        limits: Sequence[StepLimit],
        *,
        list_length: int = 1,
        retraining: Retraining | None = None,
        diversity: DiversityRules | None = None,
        likes: LikeModel | None = None,
        learn: bool = True,
    ) -> None:
        if list_length < 1:
            raise ConfigError(f"list_length {list_length} must be at least 1")
        self._online = OnlineRanker(ranker, retraining)
        self.limits, self.control = tuple(limits), OnlineControl(limits)
        self.list_length, self.diversity = list_length, diversity
        self.likes, self.learns = likes, learn
        self.run_has_started = False  # the run of these users, in what `likes` records
        # Scores of the users, once they are served: an ensemble of one ranker with weight 1.
        self._features: EnsembleFeatures | None = None

    @property
    def ranker(self) -> Ranker[Any]:
        return self._online.now

    @property
    def queue_length(self) -> int:
        return max(1, self._online.given.queue_length)

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if self._features is None:
            self._features = self._look(state)
        (values,) = self._features.values
        if self.likes is not None:
            if not self.run_has_started:
                self.likes.begin(state.blocked_sets.counts())
                self.run_has_started = True
            # What is blocked now is no candidate of this step, and must not be recorded as one.
            scores = values.masked_fill(state.blocked, -torch.inf)
            values = self.likes.valued(scores, exposure.sensitive)
        # The same values at every place: the control keeps items from being shown twice.
        slots = [values.masked_fill(state.blocked, -torch.inf)] * self.list_length
        if self.diversity is None:
            return self.control.choose(slots, exposure)
        self.diversity.begin(len(state.users))
        return self.control.choose(slots, exposure, self.diversity.handicap)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        assert self._features is not None
        self._online.observe(lists, outcome)
        if self.diversity is not None:
            self.diversity.observe(lists)
        if self.likes is not None:
            self.likes.note(lists, outcome.hits)
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if self.ranker.queue_length and len(rows):
            state = outcome.state
            self._features.refresh(rows, state.users[rows], state.queue[rows])

    def update(self) -> None:
        """Fit the ranker again where a round is over, and learn from the responses."""
        if self._online.refit_when_due():
            self._features = None
        if self.likes is not None and self.learns:
            self.likes.learn()

    def notes(self) -> dict[str, float]:
        """The price of every limit in the last step."""
        return {f"price of {name}": price for name, price in self.control.prices.items()}

    def tensors(self) -> dict[str, Tensor]:
        parts = {"control": self.control.tensors()}
        if self._features is not None:
            # Computed again in other batches, they would differ in the last digits.
            parts["features"] = {"values": self._features.values[0]}
        if self.diversity is not None:
            parts["diversity"] = self.diversity.tensors()
        if self.likes is not None:
            parts["likes"] = self.likes.tensors()
        tensors = {
            f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()
        }
        tensors |= self._online.tensors()
        return {name: value.detach().clone() for name, value in tensors.items()}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        self.control.restore(below("control.", tensors))
        self._online.restore(tensors)
        if self.diversity is not None:
            self.diversity.restore(below("diversity.", tensors))
        if self.likes is not None:
            self.likes.restore(below("likes.", tensors))
            self.run_has_started = True
        self._features = None
        if "features.values" in tensors:
            self._features = self._look(state)
            self._features.values = [tensors["features.values"].clone()]

    def _look(self, state: State) -> EnsembleFeatures:
        check_table(*state.blocked_sets.shape, "serving step by step under limits")
        # Scores do not depend on the group here: the control looks the group up in the exposure.
        no_group = torch.zeros(state.blocked_sets.shape[1], dtype=torch.bool)
        items = EnsembleItems(Ensemble((self.ranker,), (1.0,)), 0, 0, priced=False)
        return items.features(state.users, state.queue, no_group.to(state.users.device))


@dataclass(frozen=True)
class ControlledLists:
    """Step control over the standardised scores of one ranker: `NAME+control`."""

    fitted: FittedRanker
    reranker: StepControl

    def serve(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool,
        seed: int,  # noqa: ARG002  # nothing is drawn
    ) -> RankedLists:
        if self.reranker.needs_kinds:
            raise ConfigError(
                f"{self._name}: mmr and kind_quota are rules of a long run (leave them out, or use "
                "longterm)"
            )
        limits = step_limits(self.fitted.limits) or [PopularityLimit(self.reranker.share)]
        online = OnlineControlled(self.fitted.ranker, limits)
        shown = serve_under_control(
            online, scenario, self.fitted.sensitive, length=length, feedback=feedback
        )
        texts = [str(one) for one in self.fitted.limits] or [self.fitted.level]
        # The prices of the last place, in units of standardised scores.
        prices = dict(zip(texts, online.control.prices.values(), strict=True))
        return RankedLists.from_tensors(shown, prices=prices)

    def in_blocks(self, *, feedback: bool, seed: int) -> None:
        """Every place of all lists depends on the places before it."""

    def online(self, plan: ServingPlan) -> OnlineControlled:
        return OnlineControlled(
            self.fitted.ranker,
            plan.limits,
            list_length=1 if plan.list_length is None else plan.list_length,
            retraining=plan.retraining(),
            diversity=diversity_of(self.reranker, plan.kinds, self._name),
            **self._likes(plan),
        )

    def _likes(self, plan: ServingPlan) -> dict[str, Any]:
        """How an `OnlineControlled` learns probabilities of a like, if it does."""
        rules = self.reranker
        if not isinstance(rules, LikesControl):
            return {}
        return {"likes": LikeModel(rules.since_like, rules.pretraining_runs), "learn": plan.learn}

    @property
    def _name(self) -> str:
        return f"{self.fitted.ranker.method}+{self.reranker.method}"

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""
