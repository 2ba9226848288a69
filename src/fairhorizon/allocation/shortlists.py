"""Best items of every user by class, where scores of all users x items are too large to be held.

A user's shortlist has the `kept` best items of each class of items, as the classes were when the
user was last scored, and for each of these classes its floor: no other item of it has a higher
score. Classes change with the groups. An item that was of class d then, is of class c now, and is
not on the shortlist of user u scores at most

    bound[u, c] = max over d of min(floor[u, d], highest[d, c])

highest[d, c]: the highest score of such an item for anybody.  An item of c on the shortlist that
scores more is better than all of c that are not there. So the answers are exact: where too few
items score more, the user is scored anew. Whole rows of scores exist for one block of users at a
time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.allocation.item_classes import Query
from fairhorizon.ranking import first_highest, rows_at_once, top

KEPT = 64  # best items of each class
SCORES_AT_ONCE = 2**20  # of float32, 4 MiB: larger blocks are not faster
ON_LISTS_AT_ONCE = 2**20  # items of shortlists
TIMES = 64  # at which classes are remembered; whoever was scored before is scored anew

Scored = tuple[Tensor, Tensor]  # (b, C, count) scores and items, best first


class ClassShortlists:
    """The shortlists of all users.

    score: scores (len(rows), n_items) of the users at some rows in their present state; -inf for
        what will never be shown to them (or never again).
    at_least: how many items of each class are kept, if that is more than usual.
    """

    def __init__(
        self, score: Callable[[Tensor], Tensor], users: int, items: int, at_least: int = 0
    ) -> None:
        self.score, self.shape, self.kept = score, (users, items), max(KEPT, at_least)
        self.built = torch.full((users,), -1)  # under which classes; -1: not yet
        self.forget()

    def forget(self, rows: Tensor | None = None) -> None:
        """Some users, or all, are to be scored anew before they are asked for."""
        if rows is not None:
            self.built[rows] = -1
            return
        users, items = self.shape
        self.items = torch.zeros(users, 0, dtype=torch.int32)  # (b, W) ascending; -1 for none
        self.scores = torch.zeros(users, 0)
        self.floors = torch.zeros(users, 0)  # (b, C) by the classes of then
        # (b, C) of the items at the floor the last one that is kept: others have larger codes
        self.last = torch.zeros(users, 0, dtype=torch.int32)
        self.built = torch.full_like(self.built, -1)
        self.classes = torch.zeros(0, items, dtype=torch.int16)  # of the items, at several times
        self.highest = torch.full((items,), -torch.inf)  # for anybody

    def best(self, query: Query, count: int = 1) -> Scored:
        """The `count` best items of every class for all users; -inf where there are fewer.

        Equal to what whole rows of scores give; ties go to the smaller item code.
        """
        return self._answer(query, torch.arange(self.shape[0]), count, _Known.all_known)

    def best_of_own(self, query: Query, rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """(len(rows),) the highest score of one class for each of some users, and its item."""
        place = own[:, None, None]

        def certain(found: _Known, some: Tensor) -> Tensor:
            return found.known.gather(1, own[some, None]).squeeze(1)

        values, items = self._answer(query, rows, 1, certain)
        return values.gather(1, place)[:, 0, 0], items.gather(1, place)[:, 0, 0]

    def best_in_question(self, query: Query, cheaper: Tensor) -> Scored:
        """The best of every class that could be shown instead of the best item of all.

        Those are the classes `cheaper` (C, C) than its class in some way; others are left at -inf.
        """

        def certain(found: _Known, some: Tensor) -> Tensor:  # noqa: ARG001
            needed = cheaper[_kind_of_best(found.values, found.items)]
            return found.best_known & (found.known | ~needed).all(1)

        values, items = self._answer(query, torch.arange(self.shape[0]), 1, certain)
        kind = _kind_of_best(values, items)
        needed = cheaper[kind]
        needed[torch.arange(len(kind)), kind] = True
        return values.masked_fill(~needed[:, :, None], -torch.inf), items

    def tensors(self) -> dict[str, Tensor]:
        """To go on with exactly these shortlists."""
        names = ("items", "scores", "floors", "last", "built", "classes", "highest")
        return {name: getattr(self, name) for name in names}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            setattr(self, name, tensor.clone())

    def _answer(self, query: Query, rows: Tensor, count: int, certain: "Certain") -> Scored:
        values = torch.full((len(rows), query.n_classes, count), -torch.inf)
        items = torch.zeros(values.shape, dtype=torch.int64)
        doubtful = self.built[rows] < 0
        scored = (~doubtful).nonzero().squeeze(1)
        for some in _blocks(scored, self.items.shape[1], ON_LISTS_AT_ONCE):
            found = self._by_shortlists(query, rows[some], count)
            values[some], items[some] = found.values, found.items
            doubtful[some] = ~certain(found, some)
        at = doubtful.nonzero().squeeze(1)
        now = self._note_classes(query) if len(at) else -1
        for some in _blocks(at, self.shape[1], SCORES_AT_ONCE):
            scores = self.score(rows[some])
            self._build(rows[some], scores, query, now)
            open_scores = query.on_rows(rows[some], scores)
            values[some], items[some] = _best(open_scores, query.of_item[None], query, count)
        return values, items

    def _by_shortlists(self, query: Query, rows: Tensor, count: int) -> "_Known":
        items = self.items[rows].long()
        scores = query.on_shortlists(rows, items, self.scores[rows])
        values, at = _best(scores, query.of_item[items.clamp(min=0)], query, count)
        found = items.gather(1, at.flatten(1)).clamp(min=0).view(at.shape)
        return _Known(values, found, *self._bounds(query, rows))

    def _bounds(self, query: Query, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(b, C) bounds on the scores of items that are not on a shortlist; and up to which code
        an item with that score comes before them."""
        bounds = torch.full((len(rows), query.n_classes), -torch.inf)
        first = torch.full(bounds.shape, -1)
        built, n = self.built[rows], self.floors.shape[1]
        for then in built.unique().tolist():
            at = (built == then).nonzero().squeeze(1)
            moves = self.classes[then].long() * query.n_classes + query.of_item
            highest = torch.full((n * query.n_classes,), -torch.inf)
            highest = highest.scatter_reduce(0, moves, self.highest, "amax").view(n, -1)
            floors = self.floors[rows[at], :, None]
            by_then = torch.minimum(floors, highest)  # (b, C then, C now)
            bounds[at] = by_then.amax(1)
            # an item that is bound by what it scores for others may have any code
            last = self.last[rows[at], :, None].long().where(floors <= highest, -1)
            binding = by_then == bounds[at][:, None, :]
            first[at] = last.masked_fill(~binding, query.n_items).amin(1)
        return bounds, first

    def _note_classes(self, query: Query) -> int:
        """The number of the classes of now; those that no shortlist is of any more are dropped."""
        numbers, built = self.built.unique(return_inverse=True)
        self.built = built - int(numbers[0] < 0)
        self.classes = self.classes[numbers[numbers >= 0]]
        if len(self.classes) >= TIMES:
            self.built = (self.built - 1).clamp(min=-1)
            self.classes = self.classes[1:]
        now = query.of_item[None].to(self.classes)
        same = (self.classes == now).all(1).nonzero().squeeze(1)
        if len(same):
            return int(same[0])
        self.classes = torch.cat([self.classes, now])
        return len(self.classes) - 1

    def _build(self, rows: Tensor, scores: Tensor, query: Query, now: int) -> None:
        """The shortlists of some users from all their scores."""
        self.highest = torch.maximum(self.highest, scores.amax(0))
        count = min(self.kept, self.shape[1])
        values, items = _best(scores, query.of_item[None], query, count)
        # a class of which fewer are left is there as a whole: its floor is -inf
        floors = values[:, :, -1]
        at_floor = values == floors[:, :, None]
        last = items.masked_fill(~at_floor, -1).amax(2)
        items, order = items.masked_fill(values == -torch.inf, -1).flatten(1).sort(dim=1)
        self._widen(items.shape[1], query.n_classes)
        for table, part, rest in (
            (self.items, items, -1),
            (self.scores, values.flatten(1).gather(1, order), -torch.inf),
            (self.floors, floors, -torch.inf),
            (self.last, last, -1),
        ):
            table[rows] = rest
            table[rows, : part.shape[1]] = part.to(table)
        self.built[rows] = now

    def _widen(self, width: int, n_classes: int) -> None:
        pad = torch.nn.functional.pad
        more, classes = width - self.items.shape[1], n_classes - self.floors.shape[1]
        if more > 0:
            self.items = pad(self.items, (0, more), value=-1)
            self.scores = pad(self.scores, (0, more), value=-torch.inf)
        if classes > 0:
            self.floors = pad(self.floors, (0, classes), value=-torch.inf)
            self.last = pad(self.last, (0, classes), value=-1)


@dataclass(frozen=True)
class _Known:
    """What the shortlists of some users say."""

    values: Tensor  # (b, C, count)
    items: Tensor  # (b, C, count)
    bounds: Tensor  # (b, C) on the scores of all other items
    first: Tensor  # (b, C) up to this code, an item with that score comes before them

    @property
    def known(self) -> Tensor:
        """(b, C) bool: no other item is among the best of the class."""
        return self._before_others(self.values[:, :, -1], self.items[:, :, -1])

    @property
    def best_known(self) -> Tensor:
        """(b,) bool: no other item is the best of all."""
        best, kind = self.values[:, :, 0].max(1, keepdim=True)[0], self._kind
        item = self.items[:, :, 0].gather(1, kind)
        return self._before_others(best, item).all(1)

    @property
    def _kind(self) -> Tensor:
        return _kind_of_best(self.values, self.items)[:, None]

    def _before_others(self, values: Tensor, items: Tensor) -> Tensor:
        ahead = (values > self.bounds) | ((values == self.bounds) & (items <= self.first))
        return ahead | (self.bounds == -torch.inf)

    @staticmethod
    def all_known(found: "_Known", some: Tensor) -> Tensor:  # noqa: ARG004
        return found.known.all(1)


Certain = Callable[[_Known, Tensor], Tensor]  # (b,) bool: of some places among the rows asked for


def _blocks(rows: Tensor, width: int, cells: int) -> tuple[Tensor, ...]:
    """Of at most so many cells each; none of no rows."""
    return rows.split(rows_at_once(width, cells)) if len(rows) else ()


def _best(scores: Tensor, kinds: Tensor, query: Query, count: int) -> Scored:
    """(b, C, count) best scores of each class, and their columns; `kinds` (b or 1, W)."""
    values = torch.full((len(scores), query.n_classes, count), -torch.inf)
    columns = torch.zeros(values.shape, dtype=torch.int64)
    for c in range(query.n_classes):
        of_class = scores.masked_fill(kinds != c, -torch.inf)
        if count == 1:
            best = first_highest(of_class)[:, None]
            values[:, c], columns[:, c] = of_class.gather(1, best), best
        else:
            found, best = top(of_class, count)
            values[:, c, : best.shape[1]], columns[:, c, : best.shape[1]] = found, best
    return values, columns


def _kind_of_best(values: Tensor, items: Tensor) -> Tensor:
    """(b,) the class of the best item of all; of equals, of the one with the smallest code."""
    best = values[:, :, 0].amax(1, keepdim=True)
    none = torch.iinfo(items.dtype).max
    return items[:, :, 0].masked_fill(values[:, :, 0] < best, none).argmin(1)
