"""The value of showing an item to a user who can leave: the likes that it brings, now and later.

    value(u, i) = worth(s_u) P(u likes i) + what is to come by the kind of i

worth(s) is learned by CPO (rounds.py) from recorded runs: by critics of the likes to come after a
like and after none, and of what they will cost of the limit (after.py). The control takes one price
off the value of items in the limited group. In likes of the moment that is price / worth(s): the
group is cheap for those whom a like keeps, and dear for those who would stay anyway.
"""

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.looking_ahead import LookingAhead
from fairhorizon.fcpo.outlook.actor import MoodActor
from fairhorizon.fcpo.outlook.after import AfterAnswers, by_kind, gains, usual_worth
from fairhorizon.fcpo.outlook.chances import LikeChances, Shown
from fairhorizon.fcpo.outlook.kinds import KIND_FEATURES, KindsSoFar
from fairhorizon.fcpo.outlook.lookback import Lookback, typed_states
from fairhorizon.fcpo.outlook.offers import HALVES
from fairhorizon.fcpo.outlook.record import AnsweredStep, Run, restored, stored
from fairhorizon.fcpo.outlook.rounds import improve
from fairhorizon.fcpo.outlook.standing import MOODS, AnswersSoFar
from fairhorizon.storage import below

STATES = MOODS + 1  # the mood, and the chance that the best item open is liked
NEWS = 0.01  # part of the answers that has to be new, for what they teach to be worth its time


class Outlook:
    """Learns from recorded runs, and while it serves. Never sees patience, nor who a user is.

    gamma: discount of likes to come; 0: likes of the moment.
    share: of the limit, on showings of the group.
    kinds: (n_items, kinds) the part that each kind has in an item, where they are known.
    """

    def __init__(
        self,
        gamma: float,
        *,
        settings: LookingAhead | None = None,
        share: float = 1.0,
        kinds: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        self.gamma, self.settings = gamma, settings or LookingAhead()
        self.share, self.kinds, self.seed = share, kinds, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.chances = LikeChances()
        self.likes, self.costs = self._critics(), self._critics()  # of each half of the users
        self.actor = MoodActor(STATES, self.settings.hidden, seed)
        self.runs: list[Run] = []  # earlier ones, and the present one
        self.learned_from = 0  # answers

    def _critics(self) -> nn.ModuleList:
        hidden, iterations = self.settings.critic_hidden, self.settings.critic_iterations
        return nn.ModuleList(
            AfterAnswers(STATES + KIND_FEATURES, hidden, self.seed, iterations)
            for _ in range(HALVES)
        )

    def begin(self, history: Tensor) -> None:
        """A new run, of users who had taken so many items (b,) before."""
        self.standing = AnswersSoFar(history.cpu())
        self.shown_kinds = KindsSoFar(self.kinds, len(history))
        self.here = torch.ones(len(history), dtype=torch.bool)
        self.runs.append([])

    @torch.no_grad()
    def values(self, scores: Tensor, in_group: Tensor) -> Tensor:
        """(b, n_items) of scores (b, n_items), -inf for what is not open; the scores themselves
        before anything was learned."""
        self.scores, self.in_group = scores.cpu(), in_group.cpu().float()
        self._of_users, self.sated = self.standing.of_users(), self.shown_kinds.sated()
        self._types = torch.zeros(len(scores))
        values = self.scores
        if self.chances.is_fitted:
            chances = self.chances.of(self._of_users, self.scores, self.in_group, self.sated)
            self._types = chances.amax(1)
            values = chances * self.worth()[:, None]
            if self.shown_kinds.are_known and self.gamma and self.actor.spread.any():
                values = values + self._by_kind(chances)
            values = torch.where(self.scores > -torch.inf, values, self.scores)
        self._values = values
        return values

    def worth(self) -> Tensor:
        """(b,) what a like of each user is worth now, 1 in the mean over those who are here."""
        if not self.gamma or not self.actor.spread.any():
            return torch.ones(len(self._types))
        with torch.no_grad():
            worth: Tensor = self.actor(self._states()).squeeze(1)
        return worth / worth[self.here].mean() if self.here.any() else worth

    def gains(self) -> Tensor:
        """(b,) what a like is worth beyond itself by the critics.

        A step of policy improvement; what a record without offers lets one learn.
        """
        if not self.gamma or not self.actor.spread.any():
            return torch.zeros(len(self._types))
        return gains(self.likes, self._states(), self.gamma)

    def _by_kind(self, chances: Tensor) -> Tensor:
        """(b, n_items) how what is to come differs from that after a kind not shown lately, in
        likes of usual worth."""
        of_kinds = self.shown_kinds.features()  # (b, kinds, KIND_FEATURES)
        states = self._states()[:, None].expand(-1, of_kinds.shape[1], -1)
        changes = by_kind(self.likes, states, of_kinds)
        none, like = changes[:, self.shown_kinds.main].unbind(2)
        to_come = self.gamma * torch.addcmul(none, chances, like - none)
        return to_come / usual_worth(self.gains()[self.here])

    def _states(self) -> Tensor:
        return torch.cat([self.standing.moods(), self._types[:, None]], dim=1)

    def note(
        self, lists: Tensor, hits: Tensor, here: Tensor | None, charges: Tensor | None = None
    ) -> None:
        """Record the answers to the lists (b, K) that were made by the last values.

        charges: (n_items,) what prices took off the values.
        """
        lists, hits = lists.cpu(), hits.cpu()
        shown, at = lists[:, 0] >= 0, lists[:, 0].clamp(min=0)
        charged = torch.zeros(len(self.in_group)) if charges is None else charges.cpu().float()
        offers = _best_of_both(self._values - charged, self.in_group)
        self.here = torch.ones_like(shown) if here is None else here.cpu()
        self.runs[-1].append(
            AnsweredStep(
                self._of_users,
                self._of_items(at[:, None])[:, 0].masked_fill(~shown[:, None], 0.0),
                torch.cat([self.standing.moods(), self._types[:, None]], dim=1),
                self.shown_kinds.of_items(at[:, None])[:, 0],
                self._of_items(offers),
                self.shown_kinds.of_items(offers),
                shown,
                hits[:, 0],
                self.here,
            )
        )
        self.standing.see(lists, hits)
        self.shown_kinds.see(lists)

    def _of_items(self, items: Tensor) -> Tensor:
        """(b, C, 3) of items (b, C): score, in the group, showings of the kind lately."""
        sated = self.sated.expand(self.scores.shape)
        parts = [self.scores.gather(1, items), self.in_group[items], sated.gather(1, items)]
        return torch.stack(parts, dim=2)

    @property
    def has_news(self) -> bool:
        """Whether enough was answered since the last learning to learn again.

        When nearly everybody has left, a step brings a handful of answers to those of all runs.
        """
        answers = _answers(self.runs)
        return answers - self.learned_from >= NEWS * answers

    def learn(self, *, going_on: int = 0) -> None:
        """Chances, critics and the policy, from the runs recorded so far.

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
        self.chances.fit(Shown(*columns))
        self.learned_from = _answers(runs)
        if not self.gamma:
            return
        states = [typed_states(run, self.chances) for run in runs]
        presence = self.settings.presence
        back = Lookback(runs, states, self.chances, self.gamma, self.share, presence, going_on)
        self.actor.look_at(torch.cat([own.flatten(0, 1) for own in states]))
        self.likes, self.costs = self._critics(), self._critics()
        for both, of_limit in ((self.likes, False), (self.costs, True)):
            courses = back.courses(of_limit=of_limit)
            for half, critics in enumerate(both):
                assert isinstance(critics, AfterAnswers)
                own_users = [course.of_half(half, HALVES) for course in courses]
                critics.learn(own_users, self.gamma, self.settings.gae_lambda)
        offered = back.latest(self.settings.latest_runs).offered(self.likes, self.costs)
        if offered is not None:
            improve(self.actor, offered, self.share, self.settings, self.generator)

    def tensors(self) -> dict[str, Tensor]:
        """What was learned, the records, and the standing of the users of the present run."""
        parts = {
            "likes": self.likes.state_dict(),
            "costs": self.costs.state_dict(),
            "actor": self.actor.state_dict(),
            "standing": self.standing.tensors(),
            "kinds": self.shown_kinds.tensors(),
        }
        named = {f"{part}.{k}": v for part, some in parts.items() for k, v in some.items()}
        own = {
            "chances": self.chances.weights,
            "generator": self.generator.get_state(),
            "here": self.here,
            "learned_from": torch.tensor(self.learned_from),
        }
        everything = {**stored(self.runs), **named, **own}
        return {name: tensor.detach().clone() for name, tensor in everything.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name in ("likes", "costs", "actor"):
            getattr(self, name).load_state_dict(below(f"{name}.", tensors))
        self.chances.weights = tensors["chances"].clone()
        self.generator.set_state(tensors["generator"])
        self.here = tensors["here"].clone()
        self.learned_from = int(tensors["learned_from"])
        users = len(self.here)
        self.standing = AnswersSoFar(torch.zeros(users))
        self.standing.restore(below("standing.", tensors))
        self.shown_kinds = KindsSoFar(self.kinds, users)
        self.shown_kinds.restore(below("kinds.", tensors))
        self.runs = restored(tensors)


def _answers(runs: list[Run]) -> int:
    return sum(int(step.shown.sum()) for run in runs for step in run)


def _best_of_both(values: Tensor, in_group: Tensor) -> Tensor:
    """(b, 2) the best item of the group, and of the rest."""
    inside = in_group.bool()
    sides = (values.masked_fill(side, -torch.inf).argmax(1) for side in (~inside, inside))
    return torch.stack(list(sides), dim=1)
