"""Trajectories of a policy over items: lines 6-13 of Algorithm 1, sampling items instead of W."""

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.learning.trajectories import MenuRecord, Trajectories
from fairhorizon.agents.fcpo.serving.opening import Opening
from fairhorizon.environment.dynamics import Feedback, Outcome, State, advance
from fairhorizon.environment.feedback import Scenario
from fairhorizon.policy.actor import GaussianActor
from fairhorizon.policy.menus import Menus
from fairhorizon.policy.softmax import ItemPolicy, allowed_by_slot, close_all, draw, rows_of


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
