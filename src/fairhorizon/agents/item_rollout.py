"""Trajectories of a policy over items: lines 6-13 of Algorithm 1, sampling items instead of W."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.agents.rollout import MenuRecord, Trajectories
from fairhorizon.environment import Feedback, Outcome, Scenario, State, advance
from fairhorizon.policy import GaussianActor, Menus
from fairhorizon.policy.softmax import ItemPolicy, allowed_by_slot, close_all, draw, rows_of

USERS_AT_ONCE = 1024


@dataclass(frozen=True)
class Opening:
    """The menus that users' episodes begin with; rankers that do not learn score them once."""

    users: Tensor  # (b,)
    menus: Menus

    def of(self, rows: Tensor) -> "Opening":
        return Opening(self.users[rows], self.menus.take(rows))


def open_menus(
    actor: GaussianActor, scenario: Scenario, users: Tensor, sensitive: Tensor, at_least: int = 0
) -> Opening:
    """For some users of a scenario, a few at a time: what is blocked for them is a wide table."""
    parts = []
    for some in users.split(max(1, 2**26 // len(sensitive))):
        state = scenario.state(some, sensitive.device)
        parts.append(actor.menus(state.users, state.queue, state.blocked, sensitive, at_least))
    return Opening(users, type(parts[0]).join(parts))


def liked_items(opening: Opening, scenario: Scenario) -> Tensor:
    """(b, C) bool: what of the menus the users like in the scenario."""
    items, parts = opening.menus.items, []
    for rows in torch.arange(len(items)).split(USERS_AT_ONCE):
        mask = scenario.positive.mask(opening.users[rows]).to(items.device)
        parts.append(mask.gather(1, items[rows].clamp(min=0)) & (items[rows] >= 0))
    return torch.cat(parts)


def some_users(scenario: Scenario, most: int, generator: torch.Generator) -> Tensor:
    """Those who like anything in the scenario, or so many of them drawn at random."""
    users = scenario.positive.indptr.diff().nonzero().squeeze(1)
    if len(users) > most:
        users = users[torch.randperm(len(users), generator=generator)[:most]]
    return users


@torch.no_grad()
def rollout_items(
    actor: GaussianActor,
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
    state, answers = scenario.begin(opening.users, sensitive.device)
    walk = _Walk(actor, state, opening.menus, answers, temperature)
    columns = []
    for _ in range(steps):
        index, open_items = walk.index, walk.open_items
        chosen = draw(walk.logits, open_items, generator)
        policy = ItemPolicy.of(walk.logits, allowed_by_slot(open_items, chosen))
        lists = walk.items.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, -1)
        outcome = advance(state, lists, answers, sensitive)
        shown = (lists >= 0) & sensitive[lists.clamp(min=0)]
        reward, cost = outcome.hits.float() @ attention, shown.float() @ attention
        columns.append(
            (index, policy.log_prob(chosen), lists, reward, cost[:, None], open_items, chosen)
        )
        walk.follow(outcome, chosen, sensitive)
        state = outcome.state
    index, log_probs, lists, rewards, costs, open_steps, places = (
        torch.stack(column, 1) for column in zip(*columns, strict=True)
    )
    menus = type(walk.passed[0]).join(walk.passed)
    in_group = (menus.items >= 0) & sensitive[menus.items.clamp(min=0)]
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


class _Walk:
    """Users on their way; who likes something is in a new state and gets a new menu."""

    def __init__(
        self,
        actor: GaussianActor,
        state: State,
        menus: Menus,
        answers: Feedback,
        temperature: float,
    ) -> None:
        self.actor, self.answers, self.temperature = actor, answers, temperature
        queues = actor.remember(state.queue)
        self.users, self.queues, self.passed = [state.users], [queues], [menus]
        self.items, self.open_items = menus.items.clone(), menus.items >= 0
        self.logits = self._logits(state.users, queues, menus)
        self.liked = [answers.answer(menus.items)]
        self.index = torch.arange(len(state.users)).to(state.users)
        self.n_states = len(state.users)

    def follow(self, outcome: Outcome, chosen: Tensor, sensitive: Tensor) -> None:
        self.open_items = close_all(self.open_items, chosen)
        rows = outcome.hits.any(1).nonzero().squeeze(1)
        if not len(rows):
            return
        state = outcome.state
        users, queue = state.users[rows], state.queue[rows]
        menus = self.actor.menus(users, queue, state.blocked[rows], sensitive)
        everybody = self.items.index_copy(0, rows, menus.items)
        self.liked.append(self.answers.answer(everybody)[rows])
        self.items = everybody
        self.open_items = self.open_items.index_copy(0, rows, menus.items >= 0)
        queue = self.actor.remember(queue)
        self.logits = self.logits.index_copy(0, rows, self._logits(users, queue, menus))
        first, self.n_states = self.n_states, self.n_states + len(rows)
        self.index = self.index.index_copy(0, rows, torch.arange(first, self.n_states).to(rows))
        self.users.append(users)
        self.queues.append(queue)
        self.passed.append(menus)

    def _logits(self, users: Tensor, queues: Tensor, menus: Menus) -> Tensor:
        """(b, K, C)"""
        weights = rows_of(self.actor(users, queues), self.actor.list_length)
        return menus.logits(weights) / self.temperature
