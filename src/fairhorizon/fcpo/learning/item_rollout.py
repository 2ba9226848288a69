"""Trajectories of a policy over items: lines 6-13 of Algorithm 1, sampling items instead of W."""

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.trajectories import MenuRecord, Trajectories
from fairhorizon.policy.actor import Actor
from fairhorizon.policy.softmax import ItemPolicy, allowed_by_slot, close_all, draw, rows_of
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.lists.opening import Opening
from fairhorizon.recommenders.steps import step_by_step
from fairhorizon.simulation.dynamics import Feedback, Outcome, State
from fairhorizon.simulation.feedback import Scenario


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
    _, taken = step_by_step(
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
    """Steps of a walk by sampled items; records all that learning needs."""

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

    def follow(self, lists: Tensor, outcome: Outcome) -> None:
        shown = (lists >= 0) & self.sensitive[lists.clamp(min=0)]
        reward, cost = outcome.hits.float() @ self.attention, shown.float() @ self.attention
        index, open_items = self.begun_with
        self.columns.append(
            (index, self.log_prob, lists, reward, cost[:, None], open_items, self.chosen)
        )
        self.walk.follow(outcome, self.chosen, self.sensitive)

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

    def follow(self, outcome: Outcome, chosen: Tensor, sensitive: Tensor) -> None:
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
