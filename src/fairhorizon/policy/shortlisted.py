"""Shortlists of all users by the scores of a policy, where a table of them would be too large."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from fairhorizon.allocation.shortlisted import ShortlistedScores
from fairhorizon.allocation.shortlists import ClassShortlists
from fairhorizon.environment.dynamics import State
from fairhorizon.storage import below


class WeightedShortlists:
    """For every slot of the lists, by the rows of W: scored anew are users whose row has changed.

    scores: (len(rows), n_items) of the users at some rows, from a row of W for each.
    """

    def __init__(self, scores: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.scores = scores
        self.lists: list[ClassShortlists] = []  # of each slot
        self.weights: list[Tensor] = []  # (b, signals) that they are by
        self.state: State | None = None

    def slots(self, weights: Sequence[Tensor], state: State) -> list[ShortlistedScores]:
        """The scores of each slot by its row of W (b, signals), for users in this state."""
        self.state = state
        if not self.lists:
            self._begin(len(weights), state)
            self.weights = [row.clone() for row in weights]
        for k, row in enumerate(weights):
            changed = (row != self.weights[k]).any(1)
            if changed.any():
                self.lists[k].forget(None if changed.all() else changed.nonzero().squeeze(1))
                self.weights[k] = row.clone()
        return [ShortlistedScores(lists, state.blocked_sets) for lists in self.lists]

    def forget(self, rows: Tensor | None = None) -> None:
        """What is scored of some users, or of all, has changed."""
        for lists in self.lists:
            lists.forget(rows)

    def tensors(self) -> dict[str, Tensor]:
        named = {f"{k}.weights": row for k, row in enumerate(self.weights)}
        for k, lists in enumerate(self.lists):
            named |= {f"{k}.{name}": tensor for name, tensor in lists.tensors().items()}
        return named

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Go on with the shortlists of another run."""
        slots = len({name.partition(".")[0] for name in tensors})
        self._begin(slots, state)
        parts = [below(f"{k}.", tensors) for k in range(slots)]
        self.weights = [part.pop("weights").clone() for part in parts]
        for lists, part in zip(self.lists, parts, strict=True):
            lists.restore(part)

    def _begin(self, slots: int, state: State) -> None:
        self.lists = [ClassShortlists(partial(self._open, k), *_shape(state)) for k in range(slots)]

    def _open(self, slot: int, rows: Tensor) -> Tensor:
        assert self.state is not None
        scores = self.scores(rows, self.weights[slot][rows]).detach()
        return scores.masked_fill(self.state.blocked_for_good(rows).to(scores.device), -torch.inf)


def _shape(state: State) -> tuple[int, int]:
    return state.blocked_sets.shape
