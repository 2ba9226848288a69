"""Trajectory generation: lines 6-13 of the paper's Algorithm 1, for all users at once."""

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.learning.trajectories import Trajectories
from fairhorizon.agents.walk import Walk
from fairhorizon.environment.dynamics import advance
from fairhorizon.environment.feedback import Scenario
from fairhorizon.policy.actor import GaussianActor, Proposal
from fairhorizon.ranking import users_at_once


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
    for chunk in users.split(users_at_once(len(sensitive))):
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
