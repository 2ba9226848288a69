"""Signals of a panel for more users than there is room for: blocks of them are scored anew.

A table of scores exists for one block of users at a time. Kept are shortlists (for lists) and the
signals of the items on menus (for learning).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairhorizon.allocation.shortlisted import ShortlistedScores
from fairhorizon.allocation.shortlists import SCORES_AT_ONCE, ClassShortlists
from fairhorizon.environment.dynamics import State
from fairhorizon.histories import ItemSets, TableSets
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.ranking import rows_at_once
from fairhorizon.storage import below

if TYPE_CHECKING:
    from fairhorizon.agents.lists.items import ExpertSignals

Look = Callable[[Tensor, Tensor, Tensor], "ExpertSignals"]


class BlockSignals:
    """As `ExpertSignals`, without their tables.

    look: the signals of some users in their states, by users, queues and groups.
    """

    def __init__(
        self, look: Look, users: Tensor, queues: Tensor, sensitive: Tensor, *, priced: bool
    ) -> None:
        self._look, self.users, self.queues = look, users, queues.clone()
        self.priced, self.group = priced, sensitive.float()
        self.shortlists = WeightedShortlists(self._some_scores)
        self._known: SignalMenus | None = None  # of the last menus

    def scores(self, weights: Tensor) -> Tensor:
        return torch.cat([self._some_scores(rows, weights[rows]) for rows in self._blocks()])

    def slots(self, weights: Sequence[Tensor], state: State) -> list[ShortlistedScores]:
        return self.shortlists.slots(weights, state)

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:  # noqa: ARG002
        self.queues = self.queues.index_copy(0, rows, queues)
        self.shortlists.forget(rows)

    def relabel(self, sensitive: Tensor) -> None:
        group = sensitive.float()
        if self.priced and not torch.equal(group, self.group):
            self.shortlists.forget()
        self.group = group

    def on_menus(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:
        parts = [self._menus_of(some, blocked, count) for some in self._blocks(rows)]
        fresh = SignalMenus.join(parts)
        if self._known is None or len(rows) == len(self.users):
            self._known = fresh
        else:
            self._known = SignalMenus(
                self._known.items.index_copy(0, rows, fresh.items),
                self._known.signals.index_copy(0, rows, fresh.signals),
            )
        return fresh.items

    def offer(self, items: Tensor, shown: Tensor) -> SignalMenus:
        """Of the items of the last menus."""
        known = self._known
        assert known is not None
        assert torch.equal(known.items, items)
        more = shown.masked_fill((shown[:, :, None] == items[:, None, :]).any(2), -1)
        signals = known.signals.new_zeros(*more.shape, known.signals.shape[2])
        rows = (more >= 0).any(1).nonzero().squeeze(1)
        for some in self._blocks(rows):
            signals[some] = self._of(some).menus_of(more[some]).signals
        both = torch.cat([items, more], dim=1)
        signals = torch.cat([known.signals, signals], dim=1)
        if self.priced:  # the groups may have changed since
            signals[:, :, -1] = -self.group[both.clamp(min=0)]
        return SignalMenus(both, signals)

    def _menus_of(self, rows: Tensor, blocked: ItemSets, count: int) -> SignalMenus:
        signals = self._of(rows)
        sets = TableSets(blocked.mask(rows).to(rows.device))
        return signals.menus_of(signals.on_menus(torch.arange(len(rows)).to(rows), sets, count))

    def _some_scores(self, rows: Tensor, weights: Tensor) -> Tensor:
        return self._of(rows).scores(weights)

    def _of(self, rows: Tensor) -> "ExpertSignals":
        return self._look(self.users[rows], self.queues[rows], self.group > 0)

    def _blocks(self, rows: Tensor | None = None) -> Iterator[Tensor]:
        rows = torch.arange(len(self.users)).to(self.users) if rows is None else rows
        at_once = rows_at_once(len(self.group), SCORES_AT_ONCE)
        yield from rows.split(at_once) if len(rows) else ()


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
