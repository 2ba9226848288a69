"""The value of showing an item to a user who can leave: the likes that it brings, now and later.

    value(u, i) = worth(s_u) P(u likes i) - loss 1[i would bore u]

worth(s) is learned by CPO (policy.py) from recorded runs: by critics of the likes to come after a
like and after none, and of what they will cost of the limit (critics.py). The control takes one
price off the value of items in the limited group. In likes of the moment that is price / worth(s):
the group is cheap for those whom a like keeps, and dear for those who would stay anyway. What bores
users is learned from who left (boredom.py).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.retention.boredom import Boredom
from fairhorizon.fcpo.retention.critics import (
    GROUP,
    AnswerCourse,
    AnsweredStep,
    ContinuationCritics,
    Run,
    gains,
    has_both_offers,
    more_after_a_like,
    restored,
    returns_after,
    spent,
    stored,
    usual_worth,
)
from fairhorizon.fcpo.retention.policy import HALVES, OfferedSteps, WorthActor, improve
from fairhorizon.recommenders.responses import (
    CHURN_FEATURES,
    CategoryExposure,
    LikeProbabilities,
    ResponseHistory,
    Shown,
)
from fairhorizon.storage import below


# ---- Recorded runs, as critics and rounds of CPO learn from them ---------------------------------
@dataclass(frozen=True)
class Recordings:
    """Runs, looked at with the present probabilities of a like."""

    runs: list[Run]
    states: list[Tensor]  # (T, b, size) of each
    probabilities: LikeProbabilities
    gamma: float
    share: float  # of the limit
    presence: float  # what it is worth that a user is there to be shown something, in likes
    going_on: int  # so many runs, the last ones, have not ended

    def latest(self, count: int) -> "Recordings":
        """The last runs alone."""
        return replace(self, runs=self.runs[-count:], states=self.states[-count:])

    def courses(self, *, of_limit: bool) -> list[AnswerCourse]:
        """What critics learn from: likes, or what showings cost of the limit."""
        return [self._course(n, of_limit=of_limit) for n in range(len(self.runs))]

    def _course(self, number: int, *, of_limit: bool) -> AnswerCourse:
        run, states = self.runs[number], self.states[number]
        ended = number < len(self.runs) - self.going_on
        shown, liked, stays = (
            torch.stack([getattr(step, name) for step in run])
            for name in ("shown", "liked", "stays")
        )
        probabilities = torch.stack(
            [self._chance(step, step.of_items[:, None])[:, 0] for step in run]
        )
        # For users who were shown nothing, that of the best item that could have been shown.
        probabilities = torch.where(shown, probabilities, states[:, :, CHURN_FEATURES])
        signal, expected = (liked + self.presence) * shown, probabilities + self.presence
        if of_limit:
            signal = expected = torch.stack([spent(step, self.share) for step in run])
        return AnswerCourse(states, probabilities, signal, expected, shown, liked, stays, ended)

    def _chance(self, step: AnsweredStep, of_items: Tensor) -> Tensor:
        """(b, C) of a like, by the present estimate, of items (b, C, ITEM_FEATURES) of a step."""
        return self.probabilities.of_recorded(step.of_users, of_items)

    @torch.no_grad()
    def offered(self, likes: nn.ModuleList, costs: nn.ModuleList) -> OfferedSteps | None:
        """The recorded steps with two offers, valued by the critics; None: there are none."""
        parts: list[list[Tensor]] = []
        for number, run in enumerate(self.runs):
            for t, (step, own) in enumerate(zip(run, self.states[number], strict=True)):
                rows = (has_both_offers(step) & step.shown).nonzero().squeeze(1)
                probabilities = self._chance(step, step.offers)[rows]
                known = BinaryChoices(own[rows], probabilities, self.gamma)
                advantages = known.advantages(likes, costs)
                usual = usual_worth(gains(likes, own[rows], self.gamma))
                more = [more_after_a_like(both, own[rows], self.gamma) for both in (likes, costs)]
                parts.append(
                    [
                        own[rows],
                        probabilities,
                        step.of_items[rows, 1],
                        torch.full((len(rows),), len(parts)),
                        torch.full((len(rows),), usual),
                        advantages,
                        torch.full((len(rows),), self.gamma**t),
                        torch.stack(more, dim=2).movedim(1, 0),
                    ]
                )
        joined = [torch.cat(part) for part in zip(*parts, strict=True)]
        if not len(joined[0]):
            return None
        joined[5] = joined[5].movedim(0, 2)  # advantages
        joined[7] = joined[7].movedim(0, 2)  # after a like
        return OfferedSteps(*joined)


@dataclass(frozen=True)
class BinaryChoices:
    """Two offers in each of n states."""

    states: Tensor  # (n, size)
    probabilities: Tensor  # (n, 2)
    gamma: float

    def advantages(self, likes: nn.ModuleList, costs: nn.ModuleList) -> Tensor:
        """(n, halves, 2, 2) in likes and in costs."""
        in_group = torch.zeros_like(self.probabilities)
        in_group[:, GROUP] = 1.0
        now = torch.stack([self.probabilities, in_group], dim=1)
        later = [self._to_come(both) for both in (likes, costs)]
        return now[:, None] + torch.stack(later, dim=2)

    def _to_come(self, both: nn.ModuleList) -> Tensor:
        """(n, halves, 2) discounted, by the critics of either half."""
        found = torch.stack([critics(self.states) for critics in both], dim=1)
        none, like = found[:, :, None].unbind(3)
        return self.gamma * torch.addcmul(none, self.probabilities[:, None], like - none)


def typed_states(run: Run, probabilities: LikeProbabilities) -> Tensor:
    """(T, b, CHURN_FEATURES + 1) with types by the present probabilities where none were known."""
    states = torch.stack([step.states for step in run])
    for step, own in zip(run, states, strict=True):
        # Steps from before the first fit were recorded without a probability of the best item; that
        # of the item shown stands in for it.
        if not own[:, CHURN_FEATURES].any():
            own[:, CHURN_FEATURES:] = probabilities.of_recorded(
                step.of_users, step.of_items[:, None]
            )
    return states


# ---- The model -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class ValuedItems:
    """What could be shown in a step, and what it was worth: answers are recorded with it."""

    scores: Tensor  # (b, n_items), -inf for what is not open
    in_group: Tensor  # (n_items,) 1 for items of the limited group, else 0
    of_users: Tensor  # (b, USER_FEATURES)
    best_probability: Tensor  # (b,) that the best item open is liked; 0 before anything was learned
    values: Tensor  # (b, n_items)

    def best_of_both(self, charged: Tensor) -> Tensor:
        """(b, 2) the best item of the group, and of the rest, less what was charged (n_items,)."""
        # At the prices of the step, so that the offers are what the control chose between.
        values, inside = self.values - charged, self.in_group.bool()
        sides = (values.masked_fill(side, -torch.inf).argmax(1) for side in (~inside, inside))
        return torch.stack(list(sides), dim=1)


STATES = CHURN_FEATURES + 1  # what tells of churn, and the chance that the best item open is liked
LATEST_RUNS = 2  # that rounds of CPO learn from; critics learn from all
NEWS = 0.01  # part of the answers that has to be new, for what they teach to be worth its time


class RetentionModel:
    """Learns from recorded runs, and while it serves. Never sees patience, nor who a user is.

    After `begin`, every step of a run is `valued`, and its answers are told to `note`; `learn` may
    come between any two steps.

    gamma: discount of likes to come; 0: likes of the moment.
    share: of the limit, on showings of the group.
    kinds: (n_items, kinds) the part that each kind has in an item, where they are known.
    """

    def __init__(
        self,
        gamma: float,
        *,
        settings: RetentionConfig | None = None,
        share: float = 1.0,
        kinds: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        self.gamma, self.settings = gamma, settings or RetentionConfig()
        self.share, self.kinds, self.seed = share, kinds, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.probabilities = LikeProbabilities()
        self.likes, self.costs = self._critics(), self._critics()  # of each half of the users
        self.actor = WorthActor(STATES, self.settings.hidden, seed)
        self.boredom: Boredom | None = None
        self.staying = 0.0  # what is to come from somebody who stays, in likes of usual worth
        self.runs: list[Run] = []  # earlier ones, and the present one
        self.learned_from = 0  # answers

    def _critics(self) -> nn.ModuleList:
        iterations = self.settings.critic_iterations
        return nn.ModuleList(
            ContinuationCritics(STATES, seed=self.seed, iterations=iterations)
            for _ in range(HALVES)
        )

    def begin(self, history: Tensor) -> None:
        """A new run, of users who had taken so many items (b,) before."""
        self.responses = ResponseHistory(history.cpu())
        self.shown_kinds = CategoryExposure(self.kinds, len(history))
        self.here = torch.ones(len(history), dtype=torch.bool)
        self.runs.append([])

    @torch.no_grad()
    def valued(self, scores: Tensor, in_group: Tensor) -> ValuedItems:
        """Items of the next step by scores (b, n_items), -inf for what is not open.

        Values are the scores themselves before anything was learned.
        """
        scores, group = scores.cpu(), in_group.cpu().float()
        of_users, unknown = self.responses.of_users(), torch.zeros(len(scores))
        items = ValuedItems(scores, group, of_users, unknown, values=scores)
        if not self.probabilities.is_fitted:
            return items
        tiring = self.shown_kinds.tiring(self.probabilities.of_fades)
        probabilities = self.probabilities.predict(of_users, scores, group, tiring)
        items = replace(items, best_probability=probabilities.amax(1))
        values = probabilities * self.worth(items)[:, None]
        if self.boredom is not None:
            values = values - self._boring(self.boredom)
        return replace(items, values=torch.where(scores > -torch.inf, values, scores))

    def worth(self, items: ValuedItems) -> Tensor:
        """(b,) what a like of each user is worth now, 1 in the mean over those who are here."""
        if not self.gamma or not self.actor.spread.any():
            return torch.ones(len(items.best_probability))
        with torch.no_grad():
            worth: Tensor = self.actor(self.states(items)).squeeze(1)
        # A common factor would only be one of the price; the mean is over those who can be served.
        return worth / worth[self.here].mean() if self.here.any() else worth

    def gains(self, items: ValuedItems) -> Tensor:
        """(b,) what a like is worth beyond itself by the critics.

        A step of policy improvement; what a record without offers lets one learn.
        """
        if not self.gamma or not self.actor.spread.any():
            return torch.zeros(len(items.best_probability))
        return gains(self.likes, self.states(items), self.gamma)

    def _boring(self, rule: Boredom) -> Tensor:
        """(b, n_items) what items lose that would bore the user."""
        above = self.shown_kinds.counts_by_kind(rule.window) > rule.most  # (b, kinds)
        main = self.shown_kinds.main
        boring = above[:, main.clamp(min=0)] & (main >= 0)
        return self.staying * rule.leaving * boring

    def states(self, items: ValuedItems) -> Tensor:
        """(b, STATES) of the users now, with the chance of the best item that was open."""
        return torch.cat([self.responses.churn(), items.best_probability[:, None]], dim=1)

    def note(
        self,
        items: ValuedItems,
        lists: Tensor,
        hits: Tensor,
        here: Tensor | None,
        charges: Tensor | None = None,
    ) -> None:
        """Record the answers to the lists (b, K) that were made of these items.

        charges: (n_items,) what prices took off the values.
        """
        lists, hits = lists.cpu(), hits.cpu()
        shown, at = lists[:, 0] >= 0, lists[:, 0].clamp(min=0)
        nothing = torch.zeros(len(items.in_group))
        offers = items.best_of_both(nothing if charges is None else charges.cpu().float())
        self.here = torch.ones_like(shown) if here is None else here.cpu()
        self.runs[-1].append(
            AnsweredStep(
                items.of_users,
                self._features(items, at[:, None])[:, 0].masked_fill(~shown[:, None], 0.0),
                self.states(items),
                self.shown_kinds.counts(at),
                self._features(items, offers),
                shown,
                hits[:, 0],
                self.here,
            )
        )
        self.responses.see(lists, hits)
        self.shown_kinds.see(lists)

    def _features(self, items: ValuedItems, at: Tensor) -> Tensor:
        """(b, C, ITEM_FEATURES) of items (b, C)."""
        own = torch.stack([items.scores.gather(1, at), items.in_group[at]], dim=2)
        return torch.cat([own, self.shown_kinds.of_items(at)], dim=2)

    @property
    def pretraining_runs(self) -> int:
        return self.settings.pretraining_runs

    @property
    def has_news(self) -> bool:
        """Whether enough was answered since the last learning to learn again.

        When nearly everybody has left, a step brings a handful of answers to those of all runs.
        """
        answers = _answers(self.runs)
        return answers - self.learned_from >= NEWS * answers

    def learn(self, *, going_on: int = 0) -> None:
        """Learn probabilities, critics and the policy from the runs recorded so far.

        going_on: how many of them, the last ones, have not ended: their users go on.
        """
        runs = [run for run in self.runs if run]
        steps = [step for run in runs for step in run]
        if not steps or not any(bool(step.liked.any()) for step in steps):
            return
        columns = [
            torch.cat([getattr(step, name)[step.shown] for step in steps])
            for name in ("of_users", "of_items", "liked")
        ]
        self.probabilities.fit(Shown(*columns))
        self.learned_from = _answers(runs)
        if not self.gamma:
            return
        states = [typed_states(run, self.probabilities) for run in runs]
        presence = self.settings.presence
        back = Recordings(
            runs, states, self.probabilities, self.gamma, self.share, presence, going_on
        )
        # Probabilities first, as states contain one; then critics, by states; then the policy, by
        # critics.
        self.actor.look_at(torch.cat([own.flatten(0, 1) for own in states]))
        self.likes, self.costs = self._critics(), self._critics()
        for both, of_limit in ((self.likes, False), (self.costs, True)):
            courses = back.courses(of_limit=of_limit)
            # Each half of the users has critics of its own, so that one can check the other.
            for half, critics in enumerate(both):
                assert isinstance(critics, ContinuationCritics)
                own_users = [course.of_half(half, HALVES) for course in courses]
                critics.learn(own_users, self.gamma)
        self._learn_boredom(back)
        offered = back.latest(LATEST_RUNS).offered(self.likes, self.costs)
        if offered is not None:
            improve(self.actor, offered, self.share, self.settings, self.generator)

    def _learn_boredom(self, back: Recordings) -> None:
        steps = [step for run in back.runs for step in run]
        of_kind, stays = (
            torch.cat([getattr(step, name)[step.shown] for step in steps])
            for name in ("of_kind", "stays")
        )
        self.boredom = Boredom.from_showings(of_kind, ~stays)
        if self.boredom is None:
            return
        after = []
        for run in back.courses(of_limit=False):
            came = returns_after(run, torch.zeros_like(run.probabilities), self.gamma, lam=1.0)
            after.append(came[run.shown & run.stays])
        self.staying = self.gamma * float(torch.cat(after).mean())

    def tensors(self) -> dict[str, Tensor]:
        """What was learned, the records, and the responses of the users of the present run."""
        rule = self.boredom
        parts = {
            "likes": self.likes.state_dict(),
            "costs": self.costs.state_dict(),
            "actor": self.actor.state_dict(),
            "responses": self.responses.tensors(),
            "kinds": self.shown_kinds.tensors(),
        }
        named = {f"{part}.{k}": v for part, some in parts.items() for k, v in some.items()}
        own = {
            "probabilities": self.probabilities.weights,
            "generator": self.generator.get_state(),
            "here": self.here,
            "learned_from": torch.tensor(self.learned_from),
            "boredom": torch.tensor([] if rule is None else [rule.most, rule.window, rule.leaving]),
            "staying": torch.tensor(self.staying),
        }
        everything = {**stored(self.runs), **named, **own}
        return {name: tensor.detach().clone() for name, tensor in everything.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name in ("likes", "costs", "actor"):
            getattr(self, name).load_state_dict(below(f"{name}.", tensors))
        self.probabilities.weights = tensors["probabilities"].clone()
        self.generator.set_state(tensors["generator"])
        self.here = tensors["here"].clone()
        self.learned_from = int(tensors["learned_from"])
        rule = tensors["boredom"].tolist()
        self.boredom = Boredom(int(rule[0]), int(rule[1]), rule[2]) if rule else None
        self.staying = float(tensors["staying"])
        users = len(self.here)
        self.responses = ResponseHistory(torch.zeros(users))
        self.responses.restore(below("responses.", tensors))
        self.shown_kinds = CategoryExposure(self.kinds, users)
        self.shown_kinds.restore(below("kinds.", tensors))
        self.runs = restored(tensors)


def _answers(runs: list[Run]) -> int:
    return sum(int(step.shown.sum()) for run in runs for step in run)
