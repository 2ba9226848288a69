"""A policy at work in the long run: what it scores items by, and the record that it learns from."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learning.rollout import Recorder
from fairhorizon.fcpo.learning.trajectories import ShownRecord, Trajectories
from fairhorizon.policy.actor import Actor
from fairhorizon.policy.heads import SoftmaxHead
from fairhorizon.policy.softmax import explored, propensities
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.walk import Walk
from fairhorizon.simulation.dynamics import Outcome, State

MOST_STEPS = 20  # that an update learns from: the menus of every step are kept until then


class PolicyAtWork(Interface):
    """A policy in a long run. A step is `scores`, then `choose`, then `note` if it is to learn."""

    @property
    def propensities(self) -> Tensor | None:
        """(b, K) the chance of each item of the last lists; None of a policy that samples W."""

    @property
    def steps(self) -> int:
        """Noted since the last trajectories."""

    def scores(self, walk: Walk, state: State) -> Sequence[Tensor]:
        """(b, n_items) for each slot of the lists, -inf for blocked items."""

    def choose(
        self, walk: Walk, state: State, lists: Tensor, charges: Tensor, costs: Sequence[Tensor]
    ) -> None:
        """Record what the control made of the scores.

        charges: (K, n_items) what its prices took off them; costs: (n_items,) under each limit.
        """

    def note(self, lists: Tensor, outcome: Outcome) -> None:
        """Record the answers to the lists."""

    def trajectories(self, walk: Walk) -> Trajectories:
        """Of the steps noted since the last call."""


class GaussianAtWork:
    """W is sampled, and the items are those with the highest scores by it."""

    propensities = None

    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.recorder = generator, Recorder()

    @property
    def steps(self) -> int:
        return len(self.recorder.columns)

    def scores(self, walk: Walk, state: State) -> Sequence[Tensor]:
        self.begun_with = walk.index, walk.proposal
        self.sampled = walk.propose(self.generator)
        return _open_scores(walk, self.sampled, state)

    def choose(
        self,
        walk: Walk,  # noqa: ARG002
        state: State,  # noqa: ARG002
        lists: Tensor,
        charges: Tensor,  # noqa: ARG002
        costs: Sequence[Tensor],
    ) -> None:
        shown, items = lists >= 0, lists.clamp(min=0)
        spent = [(cost.to(lists.device)[items] * shown).sum(1) for cost in costs]
        self.costs = torch.stack(spent, dim=1) if spent else lists.new_zeros(len(lists), 0)

    def note(self, lists: Tensor, outcome: Outcome) -> None:
        index, proposal = self.begun_with
        self.recorder.note(index, proposal, self.sampled, lists, outcome.reward, self.costs)

    def trajectories(self, walk: Walk) -> Trajectories:
        recorded, self.recorder = self.recorder, Recorder()
        return recorded.trajectories(walk)


@dataclass(frozen=True)
class _ShownStep:
    """One step of all users: the menus that they were served from, and the lists."""

    users: Tensor  # (b,)
    queues: Tensor  # (b, N)
    menus: CandidateSet
    costs: Tensor  # (b, C, limits) of all items of the menus
    charges: Tensor  # (b, K, C)
    open_items: Tensor  # (b, C)
    chosen: Tensor  # (b, K) places on the menus
    propensities: Tensor  # (b, K)
    lists: Tensor  # (b, K)
    spent: Tensor  # (b, limits) what the lists cost


class SoftmaxAtWork:
    """Items are ordered by their logits, or drawn: with Gumbel noise of temperature `explore`.

    The propensity of an item is its chance given the prices of the step. The control shows the item
    with the highest logit + noise - charge; with the charges as they came out, that is item i with
    the chance softmax((logit - charge) / explore)_i over the open items, for longer lists given the
    items before it (Plackett-Luce). Prices depend on the noise of all users together, and on that
    of one user only where this user is the one at the margin of a budget. Without a limit that
    binds, charges are 0 and propensities unconditional. Without exploration all of them are 1.
    """

    def __init__(self, config: FcpoConfig, generator: torch.Generator, *, learns: bool) -> None:
        self.explore, self.candidates = config.explore, config.candidates
        self.attention = attention_of(config)
        self.generator, self.learns = generator, learns
        self.propensities: Tensor | None = None
        # the latest steps and their rewards (b,)
        self.noted: deque[tuple[_ShownStep, Tensor]] = deque(maxlen=MOST_STEPS)
        self.on_menus: Tensor | None = None  # (b, C) items of the present states
        self.moved: Tensor | None = None  # (b,) bool: users in a new state since the last step

    @property
    def steps(self) -> int:
        return len(self.noted)

    def scores(self, walk: Walk, state: State) -> Sequence[Tensor]:
        self.logits = _open_scores(walk, walk.outputs, state)
        if not self.explore:
            return self.logits
        return explored(self.logits, self.explore, self.generator)

    def choose(
        self, walk: Walk, state: State, lists: Tensor, charges: Tensor, costs: Sequence[Tensor]
    ) -> None:
        charges = charges.to(self.logits[0])
        self.propensities = torch.ones(lists.shape, device=lists.device)
        if self.explore:
            values = [slot - charge for slot, charge in zip(self.logits, charges, strict=True)]
            self.propensities = propensities(values, lists, self.explore)
        if self.learns:
            table = torch.stack([cost.to(charges) for cost in costs], dim=1)  # (n_items, limits)
            self.step = self._step(walk, state, lists, charges, table, self.propensities)

    def _step(
        self,
        walk: Walk,
        state: State,
        lists: Tensor,
        charges: Tensor,
        costs: Tensor,
        chances: Tensor,
    ) -> _ShownStep:
        menus = walk.signals.offer(self._items(walk, state), lists)
        at, empty = menus.items.clamp(min=0), lists < 0
        places = (menus.items[:, None, :] == lists[:, :, None]).int().argmax(2)
        return _ShownStep(
            state.users,
            walk.actor.items.remember(state.queue),
            menus,
            costs[at],
            charges[:, at].transpose(0, 1),
            (menus.items >= 0) & ~state.blocked_sets.contains(menus.items),
            places.masked_fill(empty, -1),
            chances,
            lists,
            costs[lists.clamp(min=0)].masked_fill(empty[:, :, None], 0.0).sum(1),
        )

    def _items(self, walk: Walk, state: State) -> Tensor:
        """The items of the menus: chosen anew for users in a new state, and after an update."""
        if self.on_menus is None:
            everybody = torch.arange(len(state.users)).to(state.users)
            self.on_menus = walk.signals.on_menus(everybody, state.blocked_sets, self.candidates)
        elif self.moved is not None and self.moved.any():
            rows = self.moved.nonzero().squeeze(1)
            fresh = walk.signals.on_menus(rows, state.blocked_sets, self.candidates)
            self.on_menus = self.on_menus.index_copy(0, rows, fresh)
        return self.on_menus

    def note(self, lists: Tensor, outcome: Outcome) -> None:
        """Of the feedback only `outcome.hits` is read: the answers to the items of the lists."""
        hits = outcome.hits & (lists >= 0)
        self.noted.append((self.step, hits.float() @ self.attention.to(lists.device)))
        self.moved = outcome.hits.any(1)

    def trajectories(self, walk: Walk) -> Trajectories:  # noqa: ARG002
        steps, rewards = zip(*self.noted, strict=True)
        self.noted.clear()
        self.on_menus = None  # the policy may learn
        n, T = len(steps[0].users), len(steps)

        def by_state(name: str) -> Tensor:
            """Step after step, all users of one together."""
            return torch.cat([getattr(step, name) for step in steps])

        def by_user(name: str) -> Tensor:
            return torch.stack([getattr(step, name) for step in steps], dim=1)

        menus = [step.menus for step in steps]
        index = torch.arange(n)[:, None] + n * torch.arange(T)
        return Trajectories(
            by_state("users"),
            by_state("queues"),
            index.to(steps[0].users),
            proposals=rewards[0].new_zeros(n, T, 0),
            log_probs=by_user("propensities").log().sum(2),
            lists=by_user("lists"),
            rewards=torch.stack(rewards, dim=1),
            costs=by_user("spent"),
            menus=ShownRecord(
                type(menus[0]).join(menus),
                by_state("costs"),
                by_state("charges"),
                by_user("open_items"),
                by_user("chosen"),
                by_user("propensities"),
            ),
        )


def _open_scores(walk: Walk, proposals: Tensor, state: State) -> Sequence[Tensor]:
    """(b, n_items) scores by each row of W, -inf for blocked items."""
    slots = walk.actor.scores(proposals, walk.signals)
    return [slot.masked_fill_(state.blocked, -torch.inf) for slot in slots]


def policy_at_work(
    actor: Actor, config: FcpoConfig, generator: torch.Generator, *, learns: bool
) -> PolicyAtWork:
    """The policy of the actor's head."""
    if isinstance(actor.head, SoftmaxHead):
        return SoftmaxAtWork(config, generator, learns=learns)
    return GaussianAtWork(generator)
