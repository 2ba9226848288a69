"""How trajectories come about: lines 6-13 of Algorithm 1, for all users at once.

Line 8: W is sampled, or items are. Line 9: the list. Lines 10 and 11: users answer, and those who
liked something enter a new state.
"""

import torch
from torch import Tensor

from fairhorizon.fcpo.networks import Actor
from fairhorizon.fcpo.policies import (
    ItemPolicy,
    Proposal,
    allowed_by_slot,
    close_all,
    draw,
    rows_of,
)
from fairhorizon.fcpo.trajectories import MenuRecord, Trajectories
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.ranking import users_at_once
from fairhorizon.recommenders.interactive import listed_ndcg, serve_interactively
from fairhorizon.recommenders.lists.features import Opening
from fairhorizon.simulation.dynamics import Feedback, Outcome, State
from fairhorizon.simulation.feedback import Scenario


# ---- A policy that proposes W, step by step ------------------------------------------------------
class PolicyState:
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
    def observe(self, outcome: Outcome) -> None:
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
    """Serves by the proposals of a policy state: sampled, or their means without a generator."""

    def __init__(
        self, walk: PolicyState, generator: torch.Generator | None, *, feedback: bool
    ) -> None:
        self.walk, self.generator, self.feedback = walk, generator, feedback

    def choose(self, state: State) -> Tensor:
        return self.walk.choose(self.walk.propose(self.generator), state.blocked)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        if self.feedback:
            self.walk.observe(outcome)


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
        return ProposalSteps(PolicyState(actor, state, sensitive), generator, feedback=feedback)

    chunks = torch.arange(scenario.n_users).split(users_at_once(len(sensitive)))
    return torch.cat(
        [serve_interactively(scenario, some, sensitive, begin, length=length)[0] for some in chunks]
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


# ---- Episodes of a policy that samples W ---------------------------------------------------------
class Recorder:
    """Records the steps of a policy and turns them into trajectories."""

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

    def trajectories(self, walk: PolicyState) -> Trajectories:
        """Of all steps recorded since the policy state began or restarted."""
        index, proposals, log_probs, lists, rewards, costs = (
            torch.stack(column, 1) for column in zip(*self.columns, strict=True)
        )
        states = torch.cat(walk.users), torch.cat(walk.queues)
        signals = rewards.to(log_probs), costs.to(log_probs)  # in the precision of the actor
        return Trajectories(*states, index, proposals, log_probs, lists, *signals)


class _RecordedSteps:
    """Steps by sampled proposals; records all that learning needs."""

    def __init__(self, walk: PolicyState, generator: torch.Generator) -> None:
        self.walk, self.generator, self.recorder = walk, generator, Recorder()

    def choose(self, state: State) -> Tensor:
        walk = self.walk
        self.begun_with = walk.index, walk.proposal
        self.sampled = walk.propose(self.generator)
        return walk.choose(self.sampled, state.blocked)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        self.walk.observe(outcome)
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
        _, taken = serve_interactively(
            scenario,
            some,
            sensitive,
            lambda state, _: _RecordedSteps(PolicyState(actor, state, sensitive), generator),
            length=steps * actor.list_length,
        )
        return taken.recorder.trajectories(taken.walk)

    chunks = users.split(users_at_once(len(sensitive)))
    return Trajectories.join([recorded(some) for some in chunks])


# ---- Episodes of a policy that samples items -----------------------------------------------------
@torch.no_grad()
def rollout_items(
    actor: Actor,
    scenario: Scenario,
    opening: Opening,
    sensitive: Tensor,
    *,
    steps: int,
    temperature: float,
    attention: Tensor,
    generator: torch.Generator,
) -> Trajectories:
    """One trajectory of `steps` lists for each user of the opening.

    A hit or a sensitive item in slot k counts by the attention (K,) that the slot gets.
    """
    _, taken = serve_interactively(
        scenario,
        opening.users,
        sensitive,
        lambda state, feedback: _ItemSteps(
            _ItemWalk(actor, state, opening.menus, feedback, temperature),
            sensitive,
            attention,
            generator,
        ),
        length=steps * actor.list_length,
    )
    return taken.trajectories()


class _ItemSteps:
    """Steps by sampled items; records all that learning needs."""

    def __init__(
        self, walk: "_ItemWalk", sensitive: Tensor, attention: Tensor, generator: torch.Generator
    ) -> None:
        self.walk, self.sensitive = walk, sensitive
        self.attention, self.generator = attention, generator
        self.columns: list[tuple[Tensor, ...]] = []

    def choose(self, state: State) -> Tensor:  # noqa: ARG002  # the walk keeps its own
        walk = self.walk
        self.begun_with = walk.index, walk.open_items
        self.chosen = draw(walk.logits, walk.open_items, self.generator)
        policy = ItemPolicy.of(walk.logits, allowed_by_slot(walk.open_items, self.chosen))
        self.log_prob = policy.log_prob(self.chosen)
        items = walk.items.gather(1, self.chosen.clamp(min=0))
        return items.masked_fill(self.chosen < 0, -1)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        shown = (lists >= 0) & self.sensitive[lists.clamp(min=0)]
        reward, cost = outcome.hits.float() @ self.attention, shown.float() @ self.attention
        index, open_items = self.begun_with
        self.columns.append(
            (index, self.log_prob, lists, reward, cost[:, None], open_items, self.chosen)
        )
        self.walk.observe(outcome, self.chosen, self.sensitive)

    def trajectories(self) -> Trajectories:
        walk = self.walk
        index, log_probs, lists, rewards, costs, open_steps, places = (
            torch.stack(column, 1) for column in zip(*self.columns, strict=True)
        )
        menus = type(walk.passed[0]).join(walk.passed)
        in_group = (menus.items >= 0) & self.sensitive[menus.items.clamp(min=0)]
        return Trajectories(
            torch.cat(walk.users),
            torch.cat(walk.queues),
            index,
            proposals=rewards.new_zeros(*rewards.shape, 0),
            log_probs=log_probs,
            lists=lists,
            rewards=rewards,
            costs=costs,
            menus=MenuRecord(menus, torch.cat(walk.liked), in_group, open_steps, places),
        )


class _ItemWalk:
    """Users along their trajectories; a like leads to a new state with a new menu."""

    def __init__(
        self,
        actor: Actor,
        state: State,
        menus: CandidateSet,
        feedback: Feedback,
        temperature: float,
    ) -> None:
        self.actor, self.feedback, self.temperature = actor, feedback, temperature
        queues = actor.items.remember(state.queue)
        self.users, self.queues, self.passed = [state.users], [queues], [menus]
        self.items, self.open_items = menus.items.clone(), menus.items >= 0
        self.logits = self._logits(state.users, queues, menus)
        self.liked = [feedback.answer(menus.items)]
        self.index = torch.arange(len(state.users)).to(state.users)
        self.n_states = len(state.users)

    def observe(self, outcome: Outcome, chosen: Tensor, sensitive: Tensor) -> None:
        self.open_items = close_all(self.open_items, chosen)
        rows = outcome.hits.any(1).nonzero().squeeze(1)
        if not len(rows):
            return
        state = outcome.state
        users, queue = state.users[rows], state.queue[rows]
        menus = self.actor.items.menus(users, queue, state.blocked_sets.mask(rows), sensitive)
        items = self.items.index_copy(0, rows, menus.items)
        self.liked.append(self.feedback.answer(items)[rows])
        self.items = items
        self.open_items = self.open_items.index_copy(0, rows, menus.items >= 0)
        queue = self.actor.items.remember(queue)
        self.logits = self.logits.index_copy(0, rows, self._logits(users, queue, menus))
        first, self.n_states = self.n_states, self.n_states + len(rows)
        self.index = self.index.index_copy(0, rows, torch.arange(first, self.n_states).to(rows))
        self.users.append(users)
        self.queues.append(queue)
        self.passed.append(menus)

    def _logits(self, users: Tensor, queues: Tensor, menus: CandidateSet) -> Tensor:
        """(b, K, C)"""
        weights = rows_of(self.actor(users, queues), self.actor.list_length)
        return menus.logits(weights) / self.temperature
