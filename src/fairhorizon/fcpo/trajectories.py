"""Trajectories, the actions of a policy and their outcomes, and the replay buffer."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.storage import below


# ---- Trajectories --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trajectories:
    """b trajectories of T steps; a state that lasts several steps is stored and encoded once."""

    state_users: Tensor  # (m,) distinct states
    state_queues: Tensor  # (m, N)
    state_index: Tensor  # (b, T) the distinct state of each step
    proposals: Tensor  # (b, T, K d) the sampled W
    log_probs: Tensor  # (b, T) under the policy that sampled them
    lists: Tensor  # (b, T, K)
    rewards: Tensor  # (b, T)
    costs: Tensor  # (b, T, constraints)
    # of a policy over items, whose proposals are not sampled: in training, or in the long run
    menus: "MenuRecord | ShownRecord | None" = None

    def __len__(self) -> int:
        return len(self.rewards)

    def take(self, rows: Tensor) -> "Trajectories":
        """Some of the trajectories, with the states that they visit."""
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
            None if self.menus is None else self.menus.take(rows, states),
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
            if field.name != "menus"
        }
        columns["state_index"] = torch.cat(
            [part.state_index + offset for part, offset in zip(parts, offsets, strict=False)]
        )
        records: list[Any] = [part.menus for part in parts if part.menus is not None]
        menus = type(records[0]).join(records) if records else None
        return cls(**columns, menus=menus)


@dataclass(frozen=True)
class MenuRecord:
    """The menus that items were chosen from, with reward and cost of every item on them."""

    menus: CandidateSet  # of the m distinct states
    liked: Tensor  # (m, C) bool
    sensitive: Tensor  # (m, C) bool
    open_items: Tensor  # (b, T, C) bool: items that could be chosen
    chosen: Tensor  # (b, T, K) places on the menu, -1 for an empty slot

    def take(self, rows: Tensor, states: Tensor) -> "MenuRecord":
        """The record of some trajectories, and of the states that they visit."""
        per_state = self.menus.take(states), self.liked[states], self.sensitive[states]
        return MenuRecord(*per_state, self.open_items[rows], self.chosen[rows])

    @classmethod
    def join(cls, parts: "Sequence[MenuRecord]") -> "MenuRecord":
        menus = [part.menus for part in parts]
        columns = (
            torch.cat([getattr(part, name) for part in parts])
            for name in ("liked", "sensitive", "open_items", "chosen")
        )
        return cls(type(menus[0]).join(menus), *columns)


@dataclass(frozen=True)
class ShownRecord:
    """The menus of a long run: the costs of all items on them, but no answers.

    Labels and prices change with every step, so that every step is a state of its own. What users
    answered to the items they were shown is in the rewards of the trajectories.
    """

    menus: CandidateSet  # of the m = b T steps
    costs: Tensor  # (m, C, limits) what showing each item costs
    charges: Tensor  # (m, K, C) what the control takes off the logits
    open_items: Tensor  # (b, T, C) bool: items that could be shown
    chosen: Tensor  # (b, T, K) places on the menu, -1 for an empty slot
    propensities: Tensor  # (b, T, K) chances of the items shown, given those before

    def take(self, rows: Tensor, states: Tensor) -> "ShownRecord":
        """The record of some trajectories, and of the states that they visit."""
        per_state = self.menus.take(states), self.costs[states], self.charges[states]
        return ShownRecord(
            *per_state, self.open_items[rows], self.chosen[rows], self.propensities[rows]
        )

    @classmethod
    def join(cls, parts: "Sequence[ShownRecord]") -> "ShownRecord":
        menus = [part.menus for part in parts]
        names = [field.name for field in fields(cls) if field.name != "menus"]
        columns = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        return cls(type(menus[0]).join(menus), *columns)


# ---- The replay buffer D (line 4) ----------------------------------------------------------------
class ReplayBuffer:
    """The trajectories of the most recent rounds."""

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
            if isinstance(value, Tensor)  # a policy over items, which has menus too, is on-policy
        }

    def restore(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Continue from the `tensors` of another buffer."""
        self.rounds.clear()
        for position in range(self.rounds.maxlen or 0):
            if stored := below(f"{position}.", tensors):
                columns: dict[str, Any] = {name: v.to(device) for name, v in stored.items()}
                self.add(Trajectories(**columns))
