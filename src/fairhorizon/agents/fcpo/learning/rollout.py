"""Trajectory generation: lines 6-13 of the paper's Algorithm 1, for all users at once."""

from dataclasses import replace

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.learning.team import ALONE, Batch, Team
from fairhorizon.agents.fcpo.learning.trajectories import TeamPlaces, Trajectories
from fairhorizon.agents.steps import step_by_step
from fairhorizon.agents.walk import Walk
from fairhorizon.environment.dynamics import Outcome, State
from fairhorizon.environment.feedback import Scenario
from fairhorizon.policy.actor import Actor, Proposal
from fairhorizon.policy.draws import Draws
from fairhorizon.ranking import users_at_once


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

    def __init__(self, walk: Walk, draws: Draws) -> None:
        self.walk, self.draws, self.recorder = walk, draws, Recorder()

    def choose(self, state: State) -> Tensor:
        walk = self.walk
        self.begun_with = walk.index, walk.proposal
        self.sampled = walk.propose(self.draws)
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
    team: Team = ALONE,
) -> Trajectories:
    """One trajectory of `steps` lists for each of the users, of a team for each of one's own."""

    def recorded(batch: Batch) -> Trajectories:
        _, taken = step_by_step(
            scenario,
            batch.users,
            sensitive,
            lambda state, _: _RecordedSteps(Walk(actor, state, sensitive), batch.draws),
            length=steps * actor.list_length,
        )
        trajectories = taken.recorder.trajectories(taken.walk)
        return replace(trajectories, places=_places(taken.walk, batch))

    batches = team.batches(users, users_at_once(len(sensitive)), generator)
    return Trajectories.join([recorded(batch) for batch in batches])


def _places(walk: Walk, batch: Batch) -> TeamPlaces:
    """In the order in which one who has all rows of the batch would record the states."""
    entered = [step * batch.size + batch.rows[rows.cpu()] for step, rows in enumerate(walk.entered)]
    return TeamPlaces(batch.rows, batch.size, torch.cat(entered), len(entered) * batch.size)
