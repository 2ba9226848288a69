"""Trajectories and how they come about: lines 6-13 of Algorithm 1, for many users at once.

Line 8: W is sampled, or items are. Line 9: the list. Lines 10 and 11: users answer, and those who
liked something enter a new state.
"""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.networks import Actor
from fairhorizon.fcpo.policies import (
    ItemPolicy,
    Proposal,
    allowed_by_slot,
    close_all,
    draw,
    rows_of,
)
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.ranking import users_at_once
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.recommenders.lists.features import InitialCandidates
from fairhorizon.simulation.dynamics import Outcome, State, advance
from fairhorizon.simulation.feedback import LoggedFeedback, Scenario
from fairhorizon.storage import below


# ---- Trajectories --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Choices:
    """What items were chosen from, for a policy over items.

    In training, users' answers to all candidates are known: they are in `liked`. In a long run they
    are not; there the control charges prices, items may be shown by chance, and every step is a
    state of its own, as labels and prices change with every step.
    """

    candidates: CandidateSet  # C of each of the m distinct states
    costs: Tensor  # (m, C, constraints) what showing each candidate costs
    open_items: Tensor  # (b, T, C) bool: candidates that could be chosen
    chosen: Tensor  # (b, T, K) places among the candidates, -1 for an empty slot
    liked: Tensor | None = None  # (m, C) bool
    charges: Tensor | None = None  # (m, K, C) what the control takes off the logits
    propensities: Tensor | None = None  # (b, T, K) of the items shown, given those before

    def take(self, rows: Tensor, states: Tensor) -> "Choices":
        """Those of some trajectories, and of the states that they visit."""

        def some(values: Tensor | None, index: Tensor) -> Tensor | None:
            return None if values is None else values[index]

        return Choices(
            self.candidates.take(states),
            self.costs[states],
            self.open_items[rows],
            self.chosen[rows],
            some(self.liked, states),
            some(self.charges, states),
            some(self.propensities, rows),
        )

    @classmethod
    def join(cls, parts: "Sequence[Choices]") -> "Choices":
        """Those of several batches as one."""
        columns: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            if field.name == "candidates":
                columns[field.name] = type(values[0]).join(values)
            else:
                columns[field.name] = None if values[0] is None else torch.cat(values)
        return cls(**columns)


@dataclass(frozen=True)
class Alternatives:
    """M further W of every step, drawn as the one that was shown, and what they would have brought.

    In training the log knows the answers to any list, so that a step can be learned from M + 1
    times. Users see none of these lists, and no state follows from them.
    """

    proposals: Tensor  # (b, T, M, K d)
    rewards: Tensor  # (b, T, M)
    costs: Tensor  # (b, T, M)

    def take(self, rows: Tensor) -> "Alternatives":
        """Those of some trajectories."""
        return Alternatives(self.proposals[rows], self.rewards[rows], self.costs[rows])

    @classmethod
    def join(cls, parts: "Sequence[Alternatives]") -> "Alternatives":
        """Those of several batches as one."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))


@dataclass(frozen=True)
class Trajectories:
    """b trajectories of T steps; a state that lasts several steps is stored and encoded once."""

    state_users: Tensor  # (m,) distinct states
    state_queues: Tensor  # (m, N)
    state_index: Tensor  # (b, T) the distinct state of each step
    proposals: Tensor  # (b, T, K d) the sampled W; d = 0 for a policy over items
    log_probs: Tensor  # (b, T) under the policy that sampled them
    lists: Tensor  # (b, T, K)
    rewards: Tensor  # (b, T)
    costs: Tensor  # (b, T, constraints)
    choices: Choices | None = None  # of a policy over items
    alternatives: Alternatives | None = None  # of a policy that samples W

    def __len__(self) -> int:
        return len(self.rewards)

    def take(self, rows: Tensor) -> "Trajectories":
        """Some of the trajectories, with the states that they visit."""
        # Only states that are visited are kept, numbered anew.
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
            None if self.choices is None else self.choices.take(rows, states),
            None if self.alternatives is None else self.alternatives.take(rows),
        )

    @classmethod
    def join(cls, parts: Sequence["Trajectories"]) -> "Trajectories":
        """Several batches as one."""
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name not in ("choices", "alternatives")
        }
        # States of a batch come after those of the batches before it.
        offsets = itertools.accumulate((len(part.state_users) for part in parts), initial=0)
        columns["state_index"] = torch.cat(
            [part.state_index + offset for part, offset in zip(parts, offsets, strict=False)]
        )
        choices = [part.choices for part in parts if part.choices is not None]
        others = [part.alternatives for part in parts if part.alternatives is not None]
        return cls(
            **columns,
            choices=Choices.join(choices) if choices else None,
            alternatives=Alternatives.join(others) if others else None,
        )


class ReplayBuffer:
    """D (line 4): the trajectories of the most recent rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds: deque[Trajectories] = deque(maxlen=rounds)

    def add(self, trajectories: Trajectories) -> None:
        self.rounds.append(trajectories)

    def sample(self, size: int, generator: torch.Generator) -> Trajectories:
        """Line 14: a minibatch of at most `size` trajectories, without replacement."""
        everything = Trajectories.join(list(self.rounds))
        if size >= len(everything):
            return everything
        return everything.take(torch.randperm(len(everything), generator=generator)[:size])

    def tensors(self) -> dict[str, Tensor]:
        """What later rounds sample from; on-policy training reuses nothing."""
        if self.rounds.maxlen == 1:
            return {}
        return {
            f"{position}.{name}": value
            for position, trajectories in enumerate(self.rounds)
            for name, value in vars(trajectories).items()
            if isinstance(value, Tensor)  # a policy over items, which has choices, is on-policy
        }

    def restore(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Continue from the `tensors` of another buffer."""
        self.rounds.clear()
        for position in range(self.rounds.maxlen or 0):
            if stored := below(f"{position}.", tensors):
                columns: dict[str, Any] = {name: v.to(device) for name, v in stored.items()}
                self.add(Trajectories(**columns))


# ---- A policy that samples W ---------------------------------------------------------------------
class PolicyState:
    """The actor on a batch of users; a state is encoded again only when its queue changed."""

    def __init__(self, actor: Actor, state: State, sensitive: Tensor) -> None:
        self.actor = actor
        self.features = actor.items.features(state.users, state.queue, sensitive)
        self.restart(state)

    @torch.no_grad()
    def restart(self, state: State) -> None:
        """Drop the recorded states and evaluate the actor again, which may have learned."""
        queues = self.actor.items.encoder_input(state.queue)
        self.users, self.queues = [state.users], [queues]  # distinct states so far
        self.n_states = len(queues)
        self.index = torch.arange(len(state.users)).to(state.users)  # present state of each row
        self.outputs = self.actor(state.users, queues)  # in the present states

    @property
    def proposal(self) -> Proposal:
        """The distribution of W, of an actor with a Gaussian head."""
        return Proposal.from_outputs(self.outputs)

    def open_scores(self, proposals: Tensor, state: State) -> list[Tensor]:
        """(b, n_items) scores by each row of W, -inf for blocked items."""
        slots = self.actor.scores(proposals, self.features)
        return [slot.masked_fill_(state.blocked, -torch.inf) for slot in slots]

    @torch.no_grad()
    def observe(self, outcome: Outcome) -> None:
        """Line 11: rows with a changed queue enter a new state."""
        # Without a like the queue, and so the state, is what it was: the actor's outputs stay
        # valid.
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if not len(rows):
            return
        users, queues = outcome.state.users[rows], outcome.state.queue[rows]
        self.features.refresh(rows, users, queues)
        queues = self.actor.items.encoder_input(queues)
        self.outputs = self.outputs.index_copy(0, rows, self.actor(users, queues))
        first, self.n_states = self.n_states, self.n_states + len(rows)
        self.index = self.index.index_copy(0, rows, torch.arange(first, self.n_states).to(rows))
        self.users.append(users)
        self.queues.append(queues)

    def trajectories(self, steps: Sequence[tuple[Tensor, ...]]) -> Trajectories:
        """Of all steps since it began or restarted.

        steps: for each (b,) index, (b, K d) W, (b,) its log-probability, (b, K) lists, (b,) rewards
        and (b, constraints) costs.
        """
        index, proposals, log_probs, lists, rewards, costs = (
            torch.stack(column, 1) for column in zip(*steps, strict=True)
        )
        states = torch.cat(self.users), torch.cat(self.queues)
        signals = rewards.to(log_probs), costs.to(log_probs)  # in the precision of the actor
        return Trajectories(*states, index, proposals, log_probs, lists, *signals)


@torch.no_grad()
def rollout(
    actor: Actor,
    scenario: Scenario,
    users: Tensor,
    sensitive: Tensor,
    *,
    steps: int,
    generator: torch.Generator,
    alternatives: int = 0,
) -> Trajectories:
    """One trajectory of `steps` lists for each of the users (b,), by sampled W.

    alternatives: further W of every step whose answers are looked up.
    """
    parts = []
    for some in users.split(users_at_once(len(sensitive))):
        state, feedback = scenario.begin(some, sensitive.device)  # line 6
        policy, taken = PolicyState(actor, state, sensitive), []
        others: list[Alternatives] = []
        for _ in range(steps):
            index, proposal = policy.index, policy.proposal
            if alternatives:
                # Before the list is shown: the log answers for the state in which it was drawn.
                others.append(look_up(policy, state, feedback, sensitive, alternatives, generator))
            W = proposal.sample(generator)  # line 8
            lists = actor.choose(W, state.blocked, policy.features)  # line 9
            outcome = advance(state, lists, feedback, sensitive)  # line 10
            cost = outcome.cost[:, None]  # of the only constraint
            taken.append((index, W, proposal.log_prob(W), lists, outcome.reward, cost))
            policy.observe(outcome)  # line 11
            state = outcome.state
        trajectories = policy.trajectories(taken)
        if others:
            columns = zip(*(vars(step).values() for step in others), strict=True)
            stacked = Alternatives(*(torch.stack(column, 1) for column in columns))
            trajectories = replace(trajectories, alternatives=stacked)
        parts.append(trajectories)
    return Trajectories.join(parts)


def look_up(
    policy: PolicyState,
    state: State,
    feedback: LoggedFeedback,
    sensitive: Tensor,
    count: int,
    generator: torch.Generator,
) -> Alternatives:
    """Of one step: (b, count, K d) W, and (b, count) what they would have brought."""
    blocked, drawn = state.blocked, []
    for _ in range(count):
        W = policy.proposal.sample(generator)
        lists = policy.actor.choose(W, blocked, policy.features)
        shown = (lists >= 0) & sensitive[lists.clamp(min=0)]
        drawn.append((W, feedback.answer(lists).sum(1).to(W), shown.sum(1).to(W)))
    return Alternatives(*(torch.stack(column, 1) for column in zip(*drawn, strict=True)))


def draws(config: FcpoConfig, seed: int) -> torch.Generator | None:
    """What W is sampled by when it serves; None: the mean is served."""
    return torch.Generator().manual_seed(seed) if config.serve == "sample" else None


@torch.no_grad()
def serve(
    actor: Actor,
    scenario: Scenario,
    sensitive: Tensor,
    *,
    length: int,
    generator: torch.Generator | None,
    feedback: bool,
) -> Tensor:
    """(n_users, length) items shown to all users of a scenario, whole lists at a time.

    generator: W is sampled; None: W is the mean.  feedback: if not, the policy sees the first state
    only.
    """
    parts = []
    for some in torch.arange(scenario.n_users).split(users_at_once(len(sensitive))):
        state, answers = scenario.begin(some, sensitive.device)
        policy, shown = PolicyState(actor, state, sensitive), []
        for _ in range(0, length, actor.list_length):
            proposal = policy.proposal
            W = proposal.mean if generator is None else proposal.sample(generator)
            lists = actor.choose(W, state.blocked, policy.features)
            outcome = advance(state, lists, answers, sensitive)
            if feedback:
                policy.observe(outcome)
            state = outcome.state
            shown.append(lists)
        parts.append(torch.cat(shown, dim=1)[:, :length])
    return torch.cat(parts)


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


# ---- A policy that samples items -----------------------------------------------------------------
@torch.no_grad()
def rollout_items(
    actor: Actor,
    scenario: Scenario,
    initial: InitialCandidates,
    sensitive: Tensor,
    *,
    steps: int,
    temperature: float,
    attention: Tensor,
    generator: torch.Generator,
) -> Trajectories:
    """One trajectory of `steps` lists for each user of the initial states, by sampled items.

    A hit or a sensitive item in slot k counts by the attention (K,) that the slot gets.
    """

    def logits_of(users: Tensor, queues: Tensor, candidates: CandidateSet) -> Tensor:
        weights = rows_of(actor(users, queues), actor.list_length)
        return candidates.logits(weights) / temperature  # (b, K, C)

    state, feedback = scenario.begin(initial.users, sensitive.device)
    candidates, queues = initial.candidate_set, actor.items.encoder_input(state.queue)
    items, open_items = candidates.items.clone(), candidates.items >= 0  # (b, C) of present states
    logits = logits_of(state.users, queues, candidates)
    index = torch.arange(len(state.users)).to(state.users)  # (b,) present state of each user
    # distinct states so far: their users, queues, candidates, and which of these are liked
    visited = [(state.users, queues, candidates, feedback.answer(items))]
    n_states, taken = len(queues), []
    for _ in range(steps):
        chosen = draw(logits, open_items, generator)  # line 8: (b, K) places
        lists = items.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, -1)
        outcome = advance(state, lists, feedback, sensitive)
        state = outcome.state
        # Before the chosen items are closed: each place by the items that were open for it.
        log_prob = ItemPolicy.from_logits(logits, allowed_by_slot(open_items, chosen)).log_prob(
            chosen
        )
        shown = (lists >= 0) & sensitive[lists.clamp(min=0)]
        reward, cost = outcome.hits.float() @ attention, shown.float() @ attention
        taken.append((index, log_prob, lists, reward, cost[:, None], open_items, chosen))

        # Line 11: a like leads to a new state, with new candidates.
        open_items = close_all(open_items, chosen)
        rows = outcome.hits.any(1).nonzero().squeeze(1)
        if not len(rows):
            continue
        users, queues = state.users[rows], state.queue[rows]
        candidates = actor.items.candidate_set(
            users, queues, state.blocked_sets.mask(rows), sensitive
        )
        items = items.index_copy(0, rows, candidates.items)
        open_items = open_items.index_copy(0, rows, candidates.items >= 0)
        queues = actor.items.encoder_input(queues)
        logits = logits.index_copy(0, rows, logits_of(users, queues, candidates))
        index = index.index_copy(0, rows, torch.arange(n_states, n_states + len(rows)).to(rows))
        visited.append((users, queues, candidates, feedback.answer(items)[rows]))
        n_states += len(rows)

    state_users, state_queues, sets, liked = zip(*visited, strict=True)
    every = type(sets[0]).join(sets)
    in_group = (every.items >= 0) & sensitive[every.items.clamp(min=0)]
    indices, log_probs, shown_lists, rewards, costs, open_steps, places = (
        torch.stack(column, 1) for column in zip(*taken, strict=True)
    )
    return Trajectories(
        torch.cat(state_users),
        torch.cat(state_queues),
        indices,
        proposals=rewards.new_zeros(*rewards.shape, 0),
        log_probs=log_probs,
        lists=shown_lists,
        rewards=rewards,
        costs=costs,
        choices=Choices(every, in_group[:, :, None], open_steps, places, torch.cat(liked)),
    )
