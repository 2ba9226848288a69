"""Trajectory generation: lines 6-13 of the paper's Algorithm 1, for all users at once."""

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.trajectories import Trajectories
from fairhorizon.policy.actor import Actor, Proposal
from fairhorizon.ranking import users_at_once
from fairhorizon.recommenders.steps import step_by_step
from fairhorizon.recommenders.walk import Walk
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario


class Recorder:
    """Records the steps of a walk and turns them into trajectories."""

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
        """Record one step: the state and policy it began with, the action and its outcome."""
        log_prob = proposal.log_prob(sampled)
        self.columns.append((index, sampled, log_prob, lists, reward, costs))

    def trajectories(self, walk: Walk) -> Trajectories:
        """Of all steps recorded since the walk began or restarted."""
        index, proposals, log_probs, lists, rewards, costs = (
            torch.stack(column, 1) for column in zip(*self.columns, strict=True)
        )
        states = torch.cat(walk.users), torch.cat(walk.queues)
        signals = rewards.to(log_probs), costs.to(log_probs)  # in the precision of the actor
        return Trajectories(*states, index, proposals, log_probs, lists, *signals)


class _RecordedSteps:
    """Steps of a walk by sampled proposals; records all that learning needs."""

    def __init__(self, walk: Walk, generator: torch.Generator) -> None:
        self.walk, self.generator, self.recorder = walk, generator, Recorder()

    def choose(self, state: State) -> Tensor:
        walk = self.walk
        self.begun_with = walk.index, walk.proposal
        self.sampled = walk.propose(self.generator)
        return walk.choose(self.sampled, state.blocked)

    def follow(self, lists: Tensor, outcome: Outcome) -> None:
        self.walk.follow(outcome)
        cost = outcome.cost[:, None]  # of the only constraint
        index, proposal = self.begun_with
        self.recorder.note(index, proposal, self.sampled, lists, outcome.reward, cost)


@torch.no_grad()
def rollout(
    actor: Actor,
    scenario: Scenario,
    users: Tensor,
    sensitive: Tensor,
    *,
    steps: int,
    generator: torch.Generator,
) -> Trajectories:
    """One trajectory of `steps` lists for each of the users."""

    def recorded(some: Tensor) -> Trajectories:
        _, taken = step_by_step(
            scenario,
            some,
            sensitive,
            lambda state, _: _RecordedSteps(Walk(actor, state, sensitive), generator),
            length=steps * actor.list_length,
        )
        return taken.recorder.trajectories(taken.walk)

    chunks = users.split(users_at_once(len(sensitive)))
    return Trajectories.join([recorded(some) for some in chunks])
