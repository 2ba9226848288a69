"""Recorded runs as critics and rounds of CPO learn from them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.outlook.after import (
    AnswerCourse,
    by_kind,
    gains,
    more_after_a_like,
    usual_worth,
)
from fairhorizon.fcpo.outlook.chances import LikeChances
from fairhorizon.fcpo.outlook.offers import OfferedSteps
from fairhorizon.fcpo.outlook.record import (
    GROUP,
    AnsweredStep,
    Run,
    has_both_offers,
    spent,
)
from fairhorizon.fcpo.outlook.standing import MOODS


@dataclass(frozen=True)
class Lookback:
    """Runs, looked at with the present chances of a like."""

    runs: list[Run]
    states: list[Tensor]  # (T, b, size) of each
    chances: LikeChances
    gamma: float
    share: float  # of the limit
    presence: float  # what it is worth that a user is there to be shown something, in likes
    going_on: int  # so many runs, the last ones, have not ended

    def latest(self, count: int) -> "Lookback":
        """The last runs alone."""
        return replace(self, runs=self.runs[-count:], states=self.states[-count:])

    def courses(self, *, of_limit: bool) -> list[AnswerCourse]:
        """What critics learn from: likes, or what showings cost of the limit."""
        return [self._course(n, of_limit=of_limit) for n in range(len(self.runs))]

    def _course(self, number: int, *, of_limit: bool) -> AnswerCourse:
        run, states = self.runs[number], self.states[number]
        ended = number < len(self.runs) - self.going_on
        shown, liked, stays, kinds = (
            torch.stack([getattr(step, name) for step in run])
            for name in ("shown", "liked", "stays", "of_kinds")
        )
        chances = torch.stack([self._chance(step, step.of_items[:, None])[:, 0] for step in run])
        chances = torch.where(shown, chances, states[:, :, MOODS])  # of what could be shown
        signal, expected = (liked + self.presence) * shown, chances + self.presence
        if of_limit:
            signal = expected = torch.stack([spent(step, self.share) for step in run])
        known = torch.cat([states, kinds], dim=2)
        return AnswerCourse(known, chances, signal, expected, shown, liked, stays, ended)

    def _chance(self, step: AnsweredStep, of_items: Tensor) -> Tensor:
        """(b, C) of a like, by the present estimate, of items (b, C, 3) of a recorded step."""
        score, group, lately = of_items.unbind(2)
        return self.chances.of(step.of_users, score, group, lately)

    @torch.no_grad()
    def offered(self, likes: nn.ModuleList, costs: nn.ModuleList) -> OfferedSteps | None:
        """The recorded steps with two offers, valued by the critics; None: there are none."""
        parts: list[list[Tensor]] = []
        for number, run in enumerate(self.runs):
            for t, (step, own) in enumerate(zip(run, self.states[number], strict=True)):
                rows = (has_both_offers(step) & step.shown).nonzero().squeeze(1)
                chances = self._chance(step, step.offers)[rows]
                known = TwoOffers(own[rows], step.offer_kinds[rows], chances, self.gamma)
                advantages = known.advantages(likes, costs)
                usual = usual_worth(gains(likes, own[rows], self.gamma))
                more = [more_after_a_like(both, own[rows], self.gamma) for both in (likes, costs)]
                parts.append(
                    [
                        own[rows],
                        chances,
                        known.by_kind(likes) / usual,
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
        joined[6] = joined[6].movedim(0, 2)  # advantages
        joined[8] = joined[8].movedim(0, 2)  # after a like
        return OfferedSteps(*joined)


@dataclass(frozen=True)
class TwoOffers:
    """Two offers in each of n states."""

    states: Tensor  # (n, size)
    of_kinds: Tensor  # (n, 2, KIND_FEATURES)
    chances: Tensor  # (n, 2)
    gamma: float

    def advantages(self, likes: nn.ModuleList, costs: nn.ModuleList) -> Tensor:
        """(n, halves, 2, 2) in likes and in costs."""
        in_group = torch.zeros_like(self.chances)
        in_group[:, GROUP] = 1.0
        now = torch.stack([self.chances, in_group], dim=1)
        later = [self._to_come(both, self.of_kinds) for both in (likes, costs)]
        return now[:, None] + torch.stack(later, dim=2)

    def by_kind(self, likes: nn.ModuleList) -> Tensor:
        """(n, 2) what is to come by the kinds of the offers, against kinds not shown lately."""
        states = self.states[:, None].expand(-1, 2, -1)
        none, like = by_kind(likes, states, self.of_kinds).unbind(2)
        return self.gamma * torch.addcmul(none, self.chances, like - none)

    def _to_come(self, both: nn.ModuleList, of_kinds: Tensor) -> Tensor:
        """(n, halves, 2) discounted, by the critics of either half."""
        at = torch.cat([self.states[:, None].expand(-1, 2, -1), of_kinds], dim=2)
        none, like = torch.stack([critics(at) for critics in both], dim=1).unbind(3)
        return self.gamma * torch.addcmul(none, self.chances[:, None], like - none)


def typed_states(run: Run, chances: LikeChances) -> Tensor:
    """(T, b, MOODS + 1) with types by the present chances where none were known."""
    states = torch.stack([step.states for step in run])
    for step, own in zip(run, states, strict=True):
        if not own[:, MOODS].any():
            score, group, lately = step.of_items.T[:, :, None]
            own[:, MOODS:] = chances.of(step.of_users, score, group, lately)
    return states
