"""Trajectory generation: lines 6-13 of the paper's Algorithm 1, for all users at once."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.environment import Outcome, Scenario, State, advance
from fairhorizon.metrics import mean_over_users, ndcg
from fairhorizon.policy import GaussianActor, Menus, Proposal


@dataclass(frozen=True)
class Trajectories:
    """b trajectories of T steps; a state that a user stays in is stored, and encoded, once."""

    state_users: Tensor  # (m,) distinct states
    state_queues: Tensor  # (m, N)
    state_index: Tensor  # (b, T) the distinct state of each step
    proposals: Tensor  # (b, T, K d) the sampled W
    log_probs: Tensor  # (b, T) under the policy that sampled them
    lists: Tensor  # (b, T, K)
    rewards: Tensor  # (b, T)
    costs: Tensor  # (b, T, constraints)
    menus: "MenuRecord | None" = None  # of a policy over items; its proposals are not sampled

    def __len__(self) -> int:
        return len(self.rewards)

    def take(self, rows: Tensor) -> "Trajectories":
        """Some of the trajectories, with the states that they pass."""
        states, index = torch.unique(self.state_index[rows], return_inverse=True)
        return Trajectories(
            self.state_users[states],
            self.state_queues[states],
            index,
            self.proposals[rows],
            self.log_probs[rows],
            self.lists[rows],
            self.rewards[rows],
            self.costs[rows],
            None if self.menus is None else self.menus.take(rows, states),
        )

    @classmethod
    def join(cls, parts: Sequence["Trajectories"]) -> "Trajectories":
        """Several batches as one."""
        if len(parts) == 1:
            return parts[0]
        offsets = itertools.accumulate((len(part.state_users) for part in parts), initial=0)
        columns = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name != "menus"
        }
        columns["state_index"] = torch.cat(
            [part.state_index + offset for part, offset in zip(parts, offsets, strict=False)]
        )
        records = [part.menus for part in parts if part.menus is not None]
        return cls(**columns, menus=MenuRecord.join(records) if records else None)


@dataclass(frozen=True)
class MenuRecord:
    """What the items of the trajectories were chosen from, and what any of them would have done."""

    menus: Menus  # of the m distinct states
    liked: Tensor  # (m, C) bool
    sensitive: Tensor  # (m, C) bool
    open_items: Tensor  # (b, T, C) bool: what a step could choose
    chosen: Tensor  # (b, T, K) places on the menu, -1 for an empty slot

    def take(self, rows: Tensor, states: Tensor) -> "MenuRecord":
        """Of some trajectories, and the states that they pass."""
        per_state = self.menus.take(states), self.liked[states], self.sensitive[states]
        return MenuRecord(*per_state, self.open_items[rows], self.chosen[rows])

    @classmethod
    def join(cls, parts: "Sequence[MenuRecord]") -> "MenuRecord":
        menus = [part.menus for part in parts]
        columns = (
            torch.cat([getattr(part, name) for part in parts])
            for name in ("liked", "sensitive", "open_items", "chosen")
        )
        return cls(type(menus[0]).join(menus), *columns)


class Walk:
    """The actor at work on a batch of users; encodes a state again only when its queue changed."""

    def __init__(self, actor: GaussianActor, state: State, sensitive: Tensor) -> None:
        self.actor = actor
        self.signals = actor.look(state.users, state.queue, sensitive)
        self.restart(state)

    @torch.no_grad()
    def restart(self, state: State) -> None:
        """Forget the states passed so far, and ask the actor, who may have learned, anew."""
        queues = self.actor.remember(state.queue)
        self.users, self.queues = [state.users], [queues]  # distinct states so far
        self.n_states = len(queues)
        self.index = torch.arange(len(state.users)).to(state.users)  # the present one of each row
        self.proposal = Proposal.of(self.actor(state.users, queues))

    def propose(self, generator: torch.Generator | None) -> Tensor:
        """Line 8 of Algorithm 1: W is sampled, or the mean without a generator.  (b, K signals)."""
        return self.proposal.mean if generator is None else self.proposal.sample(generator)

    def choose(self, proposals: Tensor, blocked: Tensor) -> Tensor:
        """Line 9: the lists (b, K) of proposals."""
        return self.actor.choose(proposals, blocked, self.signals)

    @torch.no_grad()
    def follow(self, outcome: Outcome) -> None:
        """Line 11: rows whose queue has changed are in a state not met before."""
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if not len(rows):
            return
        users, queues = outcome.state.users[rows], outcome.state.queue[rows]
        self.signals.refresh(rows, users, queues)
        queues = self.actor.remember(queues)
        fresh = Proposal.of(self.actor(users, queues))
        self.proposal = Proposal(
            self.proposal.mean.index_copy(0, rows, fresh.mean),
            self.proposal.log_std.index_copy(0, rows, fresh.log_std),
        )
        first, self.n_states = self.n_states, self.n_states + len(rows)
        self.index = self.index.index_copy(0, rows, torch.arange(first, self.n_states).to(rows))
        self.users.append(users)
        self.queues.append(queues)


class Recorder:
    """Collects the steps of a walk and makes trajectories of them."""

    def __init__(self) -> None:
        self.columns: list[tuple[Tensor, ...]] = []

    def note(
        self,
        index: Tensor,
        proposal: Proposal,
        sampled: Tensor,
        lists: Tensor,
        reward: Tensor,
        costs: Tensor,
    ) -> None:
        """One step: the state and the policy it began with, what was done and what came of it."""
        log_prob = proposal.log_prob(sampled)
        self.columns.append((index, sampled, log_prob, lists, reward, costs))

    def trajectories(self, walk: Walk) -> Trajectories:
        """Of all steps noted since the walk began or restarted."""
        index, proposals, log_probs, lists, rewards, costs = (
            torch.stack(column, 1) for column in zip(*self.columns, strict=True)
        )
        states = torch.cat(walk.users), torch.cat(walk.queues)
        return Trajectories(*states, index, proposals, log_probs, lists, rewards, costs)


@torch.no_grad()
def rollout(
    actor: GaussianActor,
    scenario: Scenario,
    users: Tensor,
    sensitive: Tensor,
    *,
    steps: int,
    generator: torch.Generator,
) -> Trajectories:
    """One trajectory of `steps` lists for each of the users."""
    parts = []
    for chunk in users.split(_chunk_size(len(sensitive))):
        state, feedback = scenario.begin(chunk, sensitive.device)
        walk, recorder = Walk(actor, state, sensitive), Recorder()
        for _ in range(steps):
            index, proposal = walk.index, walk.proposal
            sampled = walk.propose(generator)
            lists = walk.choose(sampled, state.blocked)
            outcome = advance(state, lists, feedback, sensitive)
            walk.follow(outcome)
            cost = outcome.cost[:, None]  # of the one constraint there is
            recorder.note(index, proposal, sampled, lists, outcome.reward, cost)
            state = outcome.state
        parts.append(recorder.trajectories(walk))
    return Trajectories.join(parts)


@torch.no_grad()
def serve(
    actor: GaussianActor,
    scenario: Scenario,
    sensitive: Tensor,
    *,
    length: int,
    generator: torch.Generator | None,
    feedback: bool,
) -> Tensor:
    """(n_users, length) items shown; without `feedback` the state stays as it began."""
    parts = []
    for chunk in torch.arange(scenario.n_users).split(_chunk_size(len(sensitive))):
        state, answers = scenario.begin(chunk, sensitive.device)
        walk, shown = Walk(actor, state, sensitive), []
        for _ in range(-(-length // actor.list_length)):
            lists = walk.choose(walk.propose(generator), state.blocked)
            outcome = advance(state, lists, answers, sensitive)
            if feedback:
                walk.follow(outcome)
            state = outcome.state
            shown.append(lists)
        parts.append(torch.cat(shown, dim=1)[:, :length])
    return torch.cat(parts)


def served_ndcg(
    actor: GaussianActor,
    scenario: Scenario,
    sensitive: Tensor,
    *,
    length: int,
    generator: torch.Generator | None,
) -> float:
    """NDCG of the lists that the actor would hand out now; a small catalogue has shorter ones."""
    length = min(length, len(sensitive))
    lists = serve(actor, scenario, sensitive, length=length, generator=generator, feedback=False)
    return listed_ndcg(lists, torch.arange(len(lists)), scenario)


def listed_ndcg(lists: Tensor, users: Tensor, scenario: Scenario) -> float:
    """NDCG of the lists (b, length) of some users, by what they like in the scenario."""
    return mean_over_users(ndcg_by_user(lists, users, scenario))


def ndcg_by_user(lists: Tensor, users: Tensor, scenario: Scenario) -> NDArray[np.float64]:
    """(b,) the same of every user; NaN for who likes nothing."""
    lists, liked, parts = lists.cpu(), scenario.positive, []
    for rows in torch.arange(len(lists)).split(_chunk_size(liked.n_items)):
        some, shown = users[rows], lists[rows]
        hits = liked.mask(some).gather(1, shown.clamp(min=0)) & (shown >= 0)
        parts.append(ndcg(hits.numpy(), liked.counts(some).numpy(), lists.shape[1]))
    return np.concatenate(parts)


def _chunk_size(n_items: int) -> int:
    """Users at once, such that a matrix of scores stays below 128 MiB."""
    return max(1, 2**25 // n_items)
