"""The value of showing an item to a user who can leave: the likes that it brings, now and later.

    value(u, i) = P(u likes i) (1 + gamma (W_1(s_u) - W_0(s_u)))

up to what no choice of an item changes. The control takes one price off the value of items in the
limited group. In likes of the moment that is price / (1 + gamma (W_1 - W_0)): the group is cheap
for those whom a like keeps, and dear for those who would stay anyway.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.outlook.after import AfterAnswers
from fairhorizon.agents.fcpo.outlook.chances import LikeChances, Shown
from fairhorizon.agents.fcpo.outlook.standing import MOODS, AnswersSoFar

SWEEPS = 2  # the first takes the last step for the end of the world, the second goes on from it
FORGETTING = 0.9  # of showings of a kind, per step


@dataclass(frozen=True)
class AnsweredStep:
    """One step of all users: what was known before it, and what came of it."""

    of_users: Tensor  # (b, USER_FEATURES)
    of_items: Tensor  # (b, 3) of the first item shown
    states: Tensor  # (b, MOODS + 1)
    shown: Tensor  # (b,) bool
    liked: Tensor  # (b,) bool
    stays: Tensor  # (b,) bool: still there after it


FIELDS = tuple(AnsweredStep.__dataclass_fields__)


class Outlook:
    """Learns from recorded runs, and while it serves. Never sees patience, nor who a user is.

    kinds: (n_items, kinds) the part that each kind has in an item, where they are known.
    """

    def __init__(self, gamma: float, *, kinds: Tensor | None = None, seed: int = 0) -> None:
        self.gamma, self.kinds, self.seed = gamma, kinds, seed
        self.chances, self.after = LikeChances(), AfterAnswers(seed)
        self.runs: list[list[AnsweredStep]] = []  # earlier ones, and the present one

    def begin(self, history: Tensor) -> None:
        """A new run, of users who had taken so many items (b,) before."""
        self.standing = AnswersSoFar(history.cpu())
        n_kinds = 0 if self.kinds is None else self.kinds.shape[1]
        self.lately = torch.zeros(len(history), n_kinds)
        self.runs.append([])

    @torch.no_grad()
    def values(self, scores: Tensor, in_group: Tensor) -> Tensor:
        """(b, n_items) of scores (b, n_items), -inf for what is not open; the scores themselves
        before anything was learned."""
        self._look(scores, in_group)
        if not self.chances.is_fitted:
            return scores
        chances = self.chances.of(self._of_users, self.scores, self.in_group, self.sated)
        self._types = chances.amax(1)
        worth = (1 + self.gains())[:, None]
        return torch.where(self.scores > -torch.inf, chances * worth, self.scores)

    def gains(self) -> Tensor:
        """(b,) gamma (W_1 - W_0), at least 0: what a like is worth beyond itself."""
        if not self.gamma or not float(self.after.scale):
            return torch.zeros(len(self._types))
        to_come: Tensor = self.after(self._states())
        return self.gamma * (to_come[:, 1] - to_come[:, 0]).clamp(min=0)

    def _look(self, scores: Tensor, in_group: Tensor) -> None:
        self.scores, self.in_group = scores.cpu(), in_group.cpu().float()
        self._of_users = self.standing.of_users()
        self.sated = torch.zeros(1, 1) if self.kinds is None else self.lately @ self.kinds.T
        self._types = torch.zeros(len(scores))

    def _states(self) -> Tensor:
        """(b, MOODS + 1): the mood, and the chance that the best item open is liked."""
        return torch.cat([self.standing.moods(), self._types[:, None]], dim=1)

    def note(self, lists: Tensor, hits: Tensor, here: Tensor | None) -> None:
        """Record the answers to the lists (b, K) that were made by the last values."""
        lists, hits = lists.cpu(), hits.cpu()
        shown, at = lists[:, 0] >= 0, lists[:, 0].clamp(min=0)
        rows = torch.arange(len(at))
        sated = self.sated.expand(self.scores.shape)[rows, at]
        items = [self.scores[rows, at].masked_fill(~shown, 0.0), self.in_group[at], sated]
        stays = torch.ones_like(shown) if here is None else here.cpu()
        self.runs[-1].append(
            AnsweredStep(
                self._of_users,
                torch.stack(items, dim=1),
                self._states(),
                shown,
                hits[:, 0],
                stays,
            )
        )
        self.standing.see(lists, hits)
        if self.kinds is not None:
            of_kinds = self.kinds[lists.clamp(min=0)] * (lists >= 0)[:, :, None]
            self.lately = FORGETTING * self.lately + of_kinds.sum(1)

    def learn(self) -> None:
        """Chances and values anew, from all runs recorded so far and from nothing else."""
        runs = [run for run in self.runs if run]
        steps = [step for run in runs for step in run]
        if not steps or not any(bool(step.liked.any()) for step in steps):
            return
        shown = [torch.cat([getattr(s, name)[s.shown] for s in steps]) for name in FIELDS]
        self.chances.fit(Shown(shown[0], shown[1], shown[4]))
        if not self.gamma:
            return
        states = [self._with_types(run) for run in runs]
        self.after = AfterAnswers(self.seed)
        for _ in range(SWEEPS):
            parts = [
                (own[t][step.shown], step.liked[step.shown], to_come[step.shown])
                for run, own in zip(runs, states, strict=True)
                for t, (step, to_come) in enumerate(
                    zip(run, self._to_come(run, own[-1]), strict=True)
                )
            ]
            self.after.fit(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _with_types(self, run: list[AnsweredStep]) -> list[Tensor]:
        """The states, with types by the present chances where none were known when recorded."""
        states = []
        for step in run:
            own = step.states.clone()
            if not own[:, MOODS].any():
                score, group, lately = step.of_items.T[:, :, None]
                own[:, MOODS:] = self.chances.of(step.of_users, score, group, lately)
            states.append(own)
        return states

    def _to_come(self, run: list[AnsweredStep], last: Tensor) -> list[Tensor]:
        """(b,) of each step: discounted likes after its answer, 0 for those who left over it.

        At the end of the record, those who are there go on as their last state lets expect.
        """
        later = torch.zeros(len(last))
        if float(self.after.scale):
            none, like = self.after(last).unbind(1)
            chance = last[:, MOODS]
            later = chance * (1 + self.gamma * like) + (1 - chance) * self.gamma * none
        to_come = []
        for step in reversed(run):
            after = later * step.stays
            to_come.append(after)
            later = torch.where(step.shown, step.liked + self.gamma * after, later)
        return to_come[::-1]

    def tensors(self) -> dict[str, Tensor]:
        """What was learned, the records, and the standing of the users of the present run."""
        records = {
            f"run{n}.{name}": torch.stack([getattr(step, name) for step in run])
            for n, run in enumerate(self.runs)
            for name in FIELDS
            if run
        }
        learned = {f"after.{k}": v for k, v in self.after.state_dict().items()}
        standing = {f"standing.{k}": v for k, v in self.standing.tensors().items()}
        own = {"chances": self.chances.weights, "lately": self.lately}
        parts = {**records, **learned, **standing, **own}
        return {name: tensor.detach().clone() for name, tensor in parts.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        after = {k.removeprefix("after."): v for k, v in tensors.items() if k.startswith("after.")}
        self.after.load_state_dict(after)
        self.chances.weights = tensors["chances"].clone()
        self.standing = AnswersSoFar(torch.zeros(len(tensors["lately"])))
        prefix = "standing."
        self.standing.restore(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
        self.lately = tensors["lately"].clone()
        self.runs = []
        while f"run{len(self.runs)}.shown" in tensors:
            n = len(self.runs)
            columns = [tensors[f"run{n}.{name}"].unbind() for name in FIELDS]
            # copies: products of numbers that begin elsewhere in memory are rounded in another way
            steps = ([part.clone() for part in step] for step in zip(*columns, strict=True))
            self.runs.append([AnsweredStep(*step) for step in steps])
