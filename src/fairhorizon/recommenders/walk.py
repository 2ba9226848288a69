"""A policy that proposes W, step by step: lines 8-11 of the paper's Algorithm 1."""

import torch
from torch import Tensor

from fairhorizon.policy.actor import Actor, Proposal
from fairhorizon.ranking import users_at_once
from fairhorizon.recommenders.steps import listed_ndcg, step_by_step
from fairhorizon.simulation.dynamics import Feedback, Outcome, State
from fairhorizon.simulation.feedback import Scenario


class Walk:
    """The actor on a batch of users; a state is encoded again only when its queue changed."""

    def __init__(self, actor: Actor, state: State, sensitive: Tensor) -> None:
        self.actor = actor
        self.signals = actor.items.look(state.users, state.queue, sensitive)
        self.restart(state)

    @torch.no_grad()
    def restart(self, state: State) -> None:
        """Drop the recorded states and evaluate the actor again, which may have learned."""
        queues = self.actor.items.remember(state.queue)
        self.users, self.queues = [state.users], [queues]  # distinct states so far
        self.n_states = len(queues)
        self.index = torch.arange(len(state.users)).to(state.users)  # present state of each row
        self.outputs = self.actor(state.users, queues)  # in the present states

    @property
    def proposal(self) -> Proposal:
        """The distribution of W, of an actor with a Gaussian head."""
        return Proposal.of(self.outputs)

    def propose(self, generator: torch.Generator | None) -> Tensor:
        """Line 8 of Algorithm 1: W is sampled, or the mean without a generator.  (b, K signals)."""
        proposal = self.proposal
        return proposal.mean if generator is None else proposal.sample(generator)

    def choose(self, proposals: Tensor, blocked: Tensor) -> Tensor:
        """Line 9: the lists (b, K) of proposals."""
        return self.actor.choose(proposals, blocked, self.signals)

    @torch.no_grad()
    def follow(self, outcome: Outcome) -> None:
        """Line 11: rows with a changed queue enter a new state."""
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if not len(rows):
            return
        users, queues = outcome.state.users[rows], outcome.state.queue[rows]
        self.signals.refresh(rows, users, queues)
        queues = self.actor.items.remember(queues)
        self.outputs = self.outputs.index_copy(0, rows, self.actor(users, queues))
        first, self.n_states = self.n_states, self.n_states + len(rows)
        self.index = self.index.index_copy(0, rows, torch.arange(first, self.n_states).to(rows))
        self.users.append(users)
        self.queues.append(queues)


class ProposalSteps:
    """Serves by the proposals of a walk: sampled, or their means without a generator."""

    def __init__(self, walk: Walk, generator: torch.Generator | None, *, feedback: bool) -> None:
        self.walk, self.generator, self.feedback = walk, generator, feedback

    def choose(self, state: State) -> Tensor:
        return self.walk.choose(self.walk.propose(self.generator), state.blocked)

    def follow(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        if self.feedback:
            self.walk.follow(outcome)


def serve(
    actor: Actor,
    scenario: Scenario,
    sensitive: Tensor,
    *,
    length: int,
    generator: torch.Generator | None,
    feedback: bool,
) -> Tensor:
    """(n_users, length) items shown; without `feedback` the policy sees the first state only."""

    def begin(state: State, _: Feedback) -> ProposalSteps:
        return ProposalSteps(Walk(actor, state, sensitive), generator, feedback=feedback)

    chunks = torch.arange(scenario.n_users).split(users_at_once(len(sensitive)))
    return torch.cat(
        [step_by_step(scenario, some, sensitive, begin, length=length)[0] for some in chunks]
    )


def served_ndcg(
    actor: Actor,
    scenario: Scenario,
    sensitive: Tensor,
    *,
    length: int,
    generator: torch.Generator | None,
) -> float:
    """NDCG of the lists of the present actor; at most as long as the catalogue."""
    length = min(length, len(sensitive))
    lists = serve(actor, scenario, sensitive, length=length, generator=generator, feedback=False)
    return listed_ndcg(lists, torch.arange(len(lists)), scenario)
