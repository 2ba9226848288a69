"""Trajectory generation: lines 6-13 of the paper's Algorithm 1, for all users at once."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from fairhorizon.environment import Outcome, Scenario, advance
from fairhorizon.metrics import mean_over_users, ndcg
from fairhorizon.policy import GaussianActor, Proposal


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
    costs: Tensor  # (b, T)

    def __len__(self) -> int:
        return len(self.rewards)

    def take(self, rows: Tensor) -> "Trajectories":
        """Some of the trajectories, with the states that they pass."""
        states, index = torch.unique(self.state_index[rows], return_inverse=True)
        per_step = (self.proposals, self.log_probs, self.lists, self.rewards, self.costs)
        return Trajectories(
            self.state_users[states],
            self.state_queues[states],
            index,
            *(part[rows] for part in per_step),
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
        }
        columns["state_index"] = torch.cat(
            [part.state_index + offset for part, offset in zip(parts, offsets, strict=False)]
        )
        return cls(**columns)


@dataclass(frozen=True)
class Step:
    """One list for every user of a walk."""

    proposals: Tensor  # (b, K d)
    lists: Tensor  # (b, K)
    outcome: Outcome


class Walk:
    """The actor at work on a batch of users; encodes a state again only when its queue changed."""

    def __init__(
        self, actor: GaussianActor, scenario: Scenario, users: Tensor, sensitive: Tensor
    ) -> None:
        self.actor, self.sensitive = actor, sensitive
        self.state, self.feedback = scenario.begin(users, sensitive.device)
        self.users, self.queues = [self.state.users], [self.state.queue]  # distinct states so far
        self.index = torch.arange(
            len(users), device=sensitive.device
        )  # the present one of each row
        self.proposal = Proposal.of(actor(self.state.users, self.state.queue))

    def step(self, generator: torch.Generator | None, *, feedback: bool) -> Step:
        """Lines 8-11 of Algorithm 1. W is sampled, or the mean without a generator."""
        sampled = self.proposal.mean if generator is None else self.proposal.sample(generator)
        lists = self.actor.choose(sampled, self.state.blocked)
        outcome = advance(self.state, lists, self.feedback, self.sensitive)
        if feedback:
            self.state = outcome.state
            self._encode((outcome.reward > 0).nonzero().squeeze(1))
        else:
            self.state = replace(self.state, blocked=outcome.state.blocked)
        return Step(sampled, lists, outcome)

    def _encode(self, rows: Tensor) -> None:
        """Rows whose queue has changed are in a state not met before."""
        if not len(rows):
            return
        users, queues = self.state.users[rows], self.state.queue[rows]
        fresh = Proposal.of(self.actor(users, queues))
        self.proposal = Proposal(
            self.proposal.mean.index_copy(0, rows, fresh.mean),
            self.proposal.log_std.index_copy(0, rows, fresh.log_std),
        )
        first = sum(map(len, self.users))
        self.index = self.index.index_copy(0, rows, torch.arange(first, first + len(rows)).to(rows))
        self.users.append(users)
        self.queues.append(queues)


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
        walk = Walk(actor, scenario, chunk, sensitive)
        columns = []
        for _ in range(steps):
            index, proposal = walk.index, walk.proposal
            step = walk.step(generator, feedback=True)
            log_prob = proposal.log_prob(step.proposals)
            outcome = step.outcome
            columns.append(
                (index, step.proposals, log_prob, step.lists, outcome.reward, outcome.cost)
            )
        stacked = (torch.stack(column, 1) for column in zip(*columns, strict=True))
        parts.append(Trajectories(torch.cat(walk.users), torch.cat(walk.queues), *stacked))
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
        walk = Walk(actor, scenario, chunk, sensitive)
        steps = -(-length // actor.list_length)
        shown = [walk.step(generator, feedback=feedback).lists for _ in range(steps)]
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
    lists = serve(
        actor, scenario, sensitive, length=length, generator=generator, feedback=False
    ).cpu()
    users, liked = torch.arange(len(lists)), scenario.positive
    hits = liked.mask(users).gather(1, lists.clamp(min=0)) & (lists >= 0)
    return mean_over_users(ndcg(hits.numpy(), liked.counts(users).numpy(), length))


def _chunk_size(n_items: int) -> int:
    """Users at once, such that a matrix of scores stays below 128 MiB."""
    return max(1, 2**25 // n_items)
