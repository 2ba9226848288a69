"""Exposure counts, and the item groups that follow from them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.limits.groups import PopularItems
from fairhorizon.vocabulary import Labels

Counts = NDArray[np.int64]
Weights = NDArray[np.float64]
Grouping = Callable[[Counts], NDArray[np.bool_]]  # counts of all items -> G0
KEPT = (Labels.FIRST, Labels.MOMENT, Labels.LAGGED)  # labels that a showing keeps for good


@dataclass(frozen=True)
class Churn:
    """The change that a new grouping made."""

    items: int  # that entered or left G0
    share: float  # of all exposure, the training counts included, that these items hold


class Exposure:
    """What was shown so far, and the group that follows from it.

    Counts begin with those of the training log. They rank the items, but are no showings. Showings
    are kept by place in the list, so that places can be weighed; and by label, because a showing
    may count under the label that its item had at that moment, at the beginning, some steps before,
    or under the one that it has now.

    history: (n_items,) counts of the training log, `parts.train.item_counts()`.
    grouping: counts of all items -> (n_items,) bool, the group; without it, the popular items.
    lag: how many steps back the labels are that lag behind.
    """

    def __init__(self, history: Counts, grouping: Grouping | None = None, lag: int = 0) -> None:
        self.grouping = grouping or PopularItems()
        self.counts = np.array(history, dtype=np.int64)  # (n_items,) training and showings
        self.shown = np.zeros_like(self.counts)  # showings alone
        self.sensitive = torch.from_numpy(self.grouping(self.counts))  # the present G0
        self.initial = self.sensitive.clone()
        self.lag = lag
        self.past: deque[Tensor] = deque(maxlen=lag)  # G0 in the last steps, oldest first
        self.at_place = np.zeros((0, self.n_items), dtype=np.int64)  # (K, n_items) showings
        self.in_group = dict.fromkeys(KEPT, _nothing())  # (K,) showings in G0, by label
        self.first_step, self.last_step = _nothing(), _nothing()  # (K,) showings of these steps
        self.shrunk = False  # some step had fewer showings than the one before

    @property
    def n_items(self) -> int:
        """The size of the catalogue."""
        return len(self.counts)

    @property
    def n_shown(self) -> int:
        """All showings so far."""
        return int(self.shown.sum())

    @property
    def n_sensitive(self) -> int:
        """Showings of items in G0 at that time."""
        return int(self.in_group[Labels.MOMENT].sum())

    def group(self, labels: Labels) -> Tensor:
        """(n_items,) bool: the items that are in G0 if they are shown now."""
        if labels is Labels.FIRST:
            return self.initial
        if labels is Labels.LAGGED:
            # Before `lag` steps have passed, the labels of `lag` steps ago are those of the
            # beginning.
            return self.past[0] if len(self.past) == self.lag > 0 else self.initial
        return self.sensitive

    def weighed(self, weights: Weights) -> float:
        """The sum over all showings so far of the weights of their places, (len(weights),)."""
        return float(weights @ self._places(self.at_place.sum(1), len(weights)))

    def weighed_in(self, members: NDArray[np.bool_], weights: Weights) -> float:
        """The same sum over the showings of some items, (n_items,) bool."""
        by_place = self.at_place[:, members].sum(1)
        return float(weights @ self._places(by_place, len(weights)))

    def weighed_in_group(self, labels: Labels, weights: Weights) -> float:
        """The same sum over the showings that are in G0 under these labels."""
        # All earlier showings move with their item, so they are summed anew over the present G0.
        # Other labels never change after the showing, and running counts by place are enough.
        if labels is Labels.RETROSPECTIVE:
            return self.weighed_in(self.sensitive.numpy(), weights)
        return float(weights @ self._places(self.in_group[labels], len(weights)))

    def rate(self, labels: Labels) -> float:
        """The share of all showings in G0 under these labels; NaN before the first."""
        weights = np.ones(len(self.at_place))
        total = self.n_shown
        return self.weighed_in_group(labels, weights) / total if total else float("nan")

    def lasting(self, showings: Counts) -> Counts:
        """(K,) how many showings every step has had, if the next one has `showings` (K,).

        0 if that step or an earlier one has fewer than the step before it: users have left, and
        more may leave.
        """
        if self.shrunk or showings.sum() < self.last_step.sum():
            return np.zeros_like(showings)
        return self.first_step if self.first_step.any() else showings

    def room(self, showings: int) -> Counts | None:
        """(n_items,) how often items outside G0 can be shown before one of them enters it.

        As long as none of them is shown more often, G0 stays as it is. There is always room for so
        many showings. None where showings do not change the groups.
        """
        # Groups by attribute stay as they are, whatever is shown.
        if not isinstance(self.grouping, PopularItems):
            return None
        return self.grouping.room(self.counts, self.sensitive.numpy(), showings)

    def list_prefix(self, n_users: int) -> Tensor:
        """(n_users, k) the places before those of the next step, in lists that grow by steps."""
        return torch.empty(n_users, 0, dtype=torch.int64)

    def list_length(self, step: int) -> int:
        """How long lists are in the end, if the next step has `step` places."""
        return step

    def add(self, lists: Tensor) -> None:
        """Count what the `lists` (b, K) of one step show; -1 is an empty slot."""
        # One place after the other: `step` is (K, n_items), the showings of each item at each
        # place.
        columns = lists.cpu().T.contiguous()
        step = np.stack([_counted(column, self.n_items) for column in columns])
        # Steps may show lists of different lengths; the table grows to the longest.
        missing = len(step) - len(self.at_place)
        if missing > 0:
            self.at_place = np.pad(self.at_place, ((0, missing), (0, 0)))
        self.at_place[: len(step)] += step
        times = step.sum(0)
        self.counts += times
        self.shown += times
        # The labels are read before `relabel`, so that a showing counts by the group of its own
        # moment.
        for labels in KEPT:
            inside = step[:, self.group(labels).cpu().numpy()].sum(1)
            so_far = self._places(self.in_group[labels], len(self.at_place))
            so_far[: len(inside)] += inside
            self.in_group[labels] = so_far
        made = step.sum(1)
        self.shrunk = self.shrunk or int(made.sum()) < int(self.last_step.sum())
        # A step without showings, as of users who have all left, is not the first step.
        self.first_step = self.first_step if self.first_step.any() else made
        self.last_step = made
        if self.lag:
            self.past.append(self.sensitive.clone())

    def relabel(self) -> Churn:
        """Group the items again, by the present counts; returns what changed."""
        fresh = torch.from_numpy(self.grouping(self.counts))
        changed = (fresh != self.sensitive).numpy()
        self.sensitive = fresh
        # A share of all counts, those of the training log included, as these decide who is popular.
        total = int(self.counts.sum())
        share = int(self.counts[changed].sum()) / total if total else 0.0
        return Churn(int(changed.sum()), share)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that showings have changed."""
        past = torch.stack(list(self.past)) if self.past else self.sensitive.new_zeros(0)
        # Arrays of different lengths cannot be stacked: all labels get the places of the longest
        # list.
        labelled = np.stack([self._places(self.in_group[k], len(self.at_place)) for k in KEPT])
        return {
            "counts": torch.from_numpy(self.counts),
            "shown": torch.from_numpy(self.shown),
            "sensitive": self.sensitive,
            "initial": self.initial,
            "at_place": torch.from_numpy(self.at_place),
            "in_group": torch.from_numpy(labelled),
            "first_step": torch.from_numpy(self.first_step),
            "last_step": torch.from_numpy(self.last_step),
            "shrunk": torch.tensor(self.shrunk),
            "past": past,
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `tensors` of another exposure of the same items and lag."""
        if missing := sorted(self.tensors().keys() - tensors.keys()):
            raise ModelError(
                f"the stored exposure has no {missing[0]}: it cannot be "
                "continued (start the run anew, without --resume)"
            )
        self.counts[:], self.shown[:] = tensors["counts"].numpy(), tensors["shown"].numpy()
        self.sensitive, self.initial = tensors["sensitive"], tensors["initial"]
        self.at_place = tensors["at_place"].numpy().copy()
        self.in_group = dict(zip(KEPT, tensors["in_group"].numpy().copy(), strict=True))
        self.first_step = tensors["first_step"].numpy().copy()
        self.last_step = tensors["last_step"].numpy().copy()
        self.shrunk = bool(tensors["shrunk"])
        self.past = deque(tensors["past"].unbind(), maxlen=self.lag)

    @staticmethod
    def _places(by_place: Counts, length: int) -> Counts:
        """A copy for lists of this length."""
        places = np.zeros(max(length, len(by_place)), dtype=np.int64)
        places[: len(by_place)] = by_place
        return places


class GrowingLists(Exposure):
    """What is shown in lists of the same users, which every step makes longer, under fixed groups.

    A showing counts at its place in the whole list, so that limits by place and limits on every
    list hold for the lists as users see them.

    group: (n_items,) bool, the group that stays.
    length: how long the lists are to be.
    """

    def __init__(self, group: NDArray[np.bool_], n_users: int, length: int) -> None:
        super().__init__(np.zeros(len(group), np.int64), lambda _: group)
        self.lists = torch.empty(n_users, 0, dtype=torch.int64)
        self.length = length

    def list_prefix(self, n_users: int) -> Tensor:  # noqa: ARG002  # the same in every step
        return self.lists

    def list_length(self, step: int) -> int:
        return max(self.length, self.lists.shape[1] + step)  # what is too long is cut

    def add(self, lists: Tensor) -> None:
        lists = lists.cpu()
        # The earlier places were counted by earlier steps. Empty slots stand in for them, so that
        # the new items are counted at their places in the whole list.
        counted = torch.cat([torch.full_like(self.lists, -1), lists], dim=1)
        super().add(counted)
        self.lists = torch.cat([self.lists, lists], dim=1)


def _nothing() -> Counts:
    return np.zeros(0, dtype=np.int64)


def _counted(items: Tensor, n_items: int) -> Counts:
    counted: Counts = np.bincount(items[items >= 0].numpy(), minlength=n_items)
    return counted
