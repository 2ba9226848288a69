"""What is to come after a like and after none, estimated from recorded responses."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.networks import Critic

# ---- What was known, offered and answered in the steps of a run ----------------------------------
GROUP, REST = 0, 1  # the two offers of a step: the best item of the limited group, and of the rest


@dataclass(frozen=True)
class AnsweredStep:
    """One step of all users: what was known before it, and what came of it."""

    of_users: Tensor  # (b, USER_FEATURES)
    of_items: Tensor  # (b, ITEM_FEATURES) of the first item shown
    states: Tensor  # (b, CHURN_FEATURES + 1)
    of_kind: Tensor  # (b, REMEMBERED) of the last showings and this one, those of its kind
    offers: Tensor  # (b, 2, ITEM_FEATURES) of the two offers; a score of -inf: there is none
    shown: Tensor  # (b,) bool
    liked: Tensor  # (b,) bool
    stays: Tensor  # (b,) bool: still there after it


FIELDS = tuple(field.name for field in fields(AnsweredStep))
Run = list[AnsweredStep]


def stored(runs: list[Run]) -> dict[str, Tensor]:
    """Runs by flat names."""
    return {
        f"run{n}.{name}": torch.stack([getattr(step, name) for step in run])
        for n, run in enumerate(runs)
        for name in FIELDS
        if run
    }


def restored(tensors: dict[str, Tensor]) -> list[Run]:
    """The runs of `stored`."""
    runs: list[Run] = []
    while f"run{len(runs)}.shown" in tensors:
        columns = [tensors[f"run{len(runs)}.{name}"].unbind() for name in FIELDS]
        # Copies: products of numbers that begin elsewhere in memory may be rounded in another way.
        steps = ([part.clone() for part in step] for step in zip(*columns, strict=True))
        runs.append([AnsweredStep(*step) for step in steps])
    return runs


def spent(step: AnsweredStep, share: float) -> Tensor:
    """(b,) what a showing costs of the limit: 1 for an item of the group, and every showing earns
    the share of the limit."""
    return (step.of_items[:, 1] - share) * step.shown


def has_both_offers(step: AnsweredStep) -> Tensor:
    """(b,) whether there was an item of either side."""
    score, in_group = step.offers[:, :, 0], step.offers[:, :, 1]
    sides = (in_group[:, GROUP] > 0) & (in_group[:, REST] == 0)
    return sides & (score > -torch.inf).all(1)


# ---- Continuation: what is to come after an answer, 0 for those who leave over it ----------------
#     W_1(s) = E[(1 - left) V(s') | s, like],    W_0(s) = E[(1 - left) V(s') | s, none]
#     V(s) = r(s) + gamma (p W_1(s) + (1 - p) W_0(s)),    p the chance of a like in s
#
# Of two signals: likes, where r(s) = p, and what showings cost of the limit. Regressions on
# recorded answers, with those who left among them: a mean over those who stayed would say that a
# disappointment does no harm. The state has an estimate of how much the user likes in general;
# without it a like would mostly tell who likes a lot and stays anyway.
#
# What a step is learned from is partly what came and partly what the critics expect of the next
# state (TD(lambda)), whose probabilities of a like are known better than one answer tells them.

SWEEPS = 3  # the first learns from what came alone; those after it begin where it ended
ITERATIONS = 60  # of L-BFGS in the first sweep, half as many in those after it
GAE_LAMBDA = 0.8  # of later sweeps: part of what came, against what the critics expect
HIDDEN = (12, 12)  # widths of a critic's layers
MOST_ROWS = 300_000  # answers that a critic is fitted to, drawn at random if there are more


@dataclass(frozen=True)
class AnswerCourse:
    """A signal over the T steps of a run, and what it is learned from."""

    states: Tensor  # (T, b, size)
    probabilities: Tensor  # (T, b) of a like of what is shown, or could be
    signal: Tensor  # (T, b) what came
    expected: Tensor  # (T, b) what was to be expected of the same, given the state
    shown: Tensor  # (T, b) bool
    liked: Tensor  # (T, b) bool
    stays: Tensor  # (T, b) bool
    ended: bool  # nothing is counted after it; else those who are there go on

    def of_half(self, half: int, halves: int) -> "AnswerCourse":
        """The users half, half + halves, half + 2 halves, ...: one part of all users."""
        some = {name: getattr(self, name)[:, half::halves] for name in PER_STEP}
        return replace(self, **some)


PER_STEP = tuple(field.name for field in fields(AnswerCourse))[:-1]


class ContinuationCritics(nn.Module):
    """W_0 and W_1 of one signal: a critic each."""

    mean: Tensor
    spread: Tensor
    scale: Tensor

    def __init__(
        self,
        state_size: int,
        hidden: tuple[int, int] = HIDDEN,
        *,
        seed: int,
        iterations: int = ITERATIONS,
    ) -> None:
        super().__init__()
        self.iterations = iterations
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.critics = nn.ModuleList(Critic(state_size, hidden) for _ in range(2))
        self.register_buffer("mean", torch.zeros(state_size))
        self.register_buffer("spread", torch.ones(state_size))
        self.register_buffer("scale", torch.tensor(0.0))  # 0: nothing was learned yet

    @property
    def is_fitted(self) -> bool:
        return bool(self.scale)

    @torch.no_grad()
    def forward(self, states: Tensor) -> Tensor:
        """(..., 2) what is to come after none and after a like."""
        known = ((states - self.mean) / self.spread).flatten(0, -2)
        values = torch.stack([critic(known) for critic in self.critics], dim=1)
        return (values * self.scale).view(*states.shape[:-1], 2)

    def learn(self, runs: list[AnswerCourse], gamma: float, lam: float = GAE_LAMBDA) -> None:
        """From scratch; those who leave count, with nothing to come."""
        for sweep in range(SWEEPS):
            parts = []
            for run in runs:
                after = returns_after(run, self._values(run, gamma), gamma, lam if sweep else 1.0)
                own = run.shown
                parts.append((run.states[own], run.liked[own], after[own]))
            rows = [torch.cat(part) for part in zip(*parts, strict=True)]
            if len(rows[0]) > MOST_ROWS:
                draw = torch.Generator().manual_seed(sweep)
                some = torch.randperm(len(rows[0]), generator=draw)[:MOST_ROWS]
                rows = [part[some] for part in rows]
            states, liked, to_come = rows
            self.fit(states, liked, to_come, self.iterations // (2 if sweep else 1))

    def fit(
        self, states: Tensor, liked: Tensor, to_come: Tensor, iterations: int = ITERATIONS
    ) -> None:
        """Least squares; to_come: (n,) what came after each answer."""
        if not self.is_fitted:
            # The scale of the first sweep stays, so that later sweeps begin where it ended.
            self.mean.copy_(states.mean(0))
            self.spread.copy_(states.std(0).clamp(min=1e-3))
            self.scale.copy_(to_come.square().mean().sqrt().clamp(min=1e-3))
        known = (states - self.mean) / self.spread
        for answer, critic in enumerate(self.critics):
            assert isinstance(critic, Critic)
            own = liked == bool(answer)
            if own.any():
                # A critic is fitted to (b, T) steps; here every answer is a trajectory of one step.
                rows = torch.arange(int(own.sum()))[:, None]
                targets = (to_come[own] / self.scale)[:, None]
                critic.fit(known[own], rows, targets, torch.ones(1), iterations)

    def _values(self, run: AnswerCourse, gamma: float) -> Tensor:
        """(T, b) V of the states; 0 before the first fit."""
        if not self.is_fitted:
            return torch.zeros_like(run.probabilities)
        none, like = self(run.states).unbind(-1)
        return run.expected + gamma * torch.addcmul(none, run.probabilities, like - none)


@torch.no_grad()
def gains(both: nn.ModuleList, states: Tensor, gamma: float) -> Tensor:
    """(n,) gamma (W_1 - W_0), at least 0, in states (n, size): what a like is worth beyond itself,
    by critics of both halves."""
    return more_after_a_like(both, states, gamma).mean(0).clamp(min=0)


@torch.no_grad()
def more_after_a_like(both: nn.ModuleList, states: Tensor, gamma: float) -> Tensor:
    """(halves, n) gamma (W_1 - W_0) in states (n, size), by the critics of each half."""
    none, like = torch.stack([critics(states) for critics in both]).unbind(2)
    return gamma * (like - none)


def usual_worth(gained: Tensor) -> float:
    """What a like is worth in the mean over users, itself and beyond."""
    return 1 + float(gained.mean()) if len(gained) else 1.0


def returns_after(run: AnswerCourse, values: Tensor, gamma: float, lam: float) -> Tensor:
    """(T, b) of each answer: (1 - left) (lam G + (1 - lam) V) of the step after it.

    G is the discounted signal from that step on, in which values stand for what was not waited for.
    In a run that goes on, those who are there expect what they expected in their last state.
    """
    after = torch.zeros_like(values)
    following = torch.zeros_like(values[-1]) if run.ended else values[-1]  # of the step after
    for t in reversed(range(len(values))):
        after[t] = following * run.stays[t]
        came = run.signal[t] + gamma * after[t]
        mixed = lam * came + (1 - lam) * values[t]
        # Whoever was shown nothing in a step expects what they expected after it.
        following = torch.where(run.shown[t], mixed, following)
    return after
