"""The recommendation CMDP as pure functions over a whole batch of users.

State: the user and the queue of the N most recent liked items. Action: a list of K items.
"""

from dataclasses import dataclass, replace
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.histories import ItemSets


@dataclass(frozen=True)
class State:
    """The state of a batch of users, one row per user.

    blocked_sets: items that may not be shown now: what was shown, and the history if the protocol
        excludes it.
    returning: empty unless items are offered again. Then `returning[j]` (b, K) are those that may
        be shown again in j steps, -1 for none; those of `returning[0]` may be shown in this state.
    here: who is there, where users can leave; the others may be shown nothing.
    """

    users: Tensor  # (b,)
    queue: Tensor  # (b, N) item codes, newest last; n_items where the history is shorter
    blocked_sets: ItemSets
    returning: tuple[Tensor, ...] = ()
    here: Tensor | None = None  # (b,) bool; None: everybody

    @property
    def blocked(self) -> Tensor:
        """(b, n_items) bool: the blocked items as a table, for batches that are small enough."""
        table = self.blocked_sets.mask()
        return table if self.here is None else table | ~self.here[:, None]


class Feedback(Interface):
    """The feedback of a batch of users to what they are shown, step by step."""

    def answer(self, lists: Tensor) -> Tensor:
        """(b, K) bool: which items of the lists (b, K) get positive feedback; -1 gets none."""

    def notice(self, lists: Tensor, hits: Tensor) -> None:  # noqa: ARG002  # most stay anyway
        """What was shown, and which of it earned a reward: users may leave over it."""
        return

    @property
    def here(self) -> Tensor | None:
        """(b,) bool: who is there now; None: everybody, always."""
        return None


@dataclass(frozen=True)
class Outcome:
    """The outcome of showing one list to every user."""

    state: State
    hits: Tensor  # (b, K) bool: positive feedback
    reward: Tensor  # (b,)
    cost: Tensor  # (b,)


def advance(
    state: State,
    lists: Tensor,
    feedback: Feedback,
    sensitive: Tensor,
    spent: ItemSets | None = None,
) -> Outcome:
    """Show `lists` (b, K), -1 for an empty slot, and observe the feedback of the users.

    sensitive: (n_items,) bool, the items that have a cost.
    spent: items that earn no reward but have their cost; None: the blocked ones.
    """
    shown = lists >= 0
    items = lists.clamp(min=0)
    # Blocked items and repeats within a list earn nothing, so a policy cannot gain by showing an
    # item twice. They still cost: they were shown.
    unrewarded = state.blocked_sets if spent is None else spent
    fresh = shown & ~unrewarded.contains(lists) & ~_repeats(lists)
    # `answer` first: users answer by their state before this list, and react to it in `notice`.
    hits = fresh & feedback.answer(lists)
    feedback.notice(lists, hits)
    blocked, returning = state.blocked_sets.with_items(lists), state.returning
    if returning:
        returning = returning_after(state, lists)
        blocked = blocked.without_items(returning[0])
    return Outcome(
        State(state.users, push_liked(state.queue, items, hits), blocked, returning, feedback.here),
        hits,
        reward=hits.sum(1).float(),  # equation 8
        cost=(shown & sensitive[items]).sum(1).float(),  # equation 9
    )


def offered_again(
    state: State, after: int, recent: Tensor | None = None, list_length: int = 1
) -> State:
    """The state in a run in which items may be shown again `after` steps after they were shown.

    recent: (b, m K) the last m <= `after` lists, oldest first; none if the run begins.
    """
    # Empty lists (b, 0) stand for the steps before the run began.
    nothing = torch.empty(len(state.users), 0, dtype=torch.int64, device=state.users.device)
    lists = () if recent is None or not recent.shape[1] else recent.split(list_length, dim=1)
    return replace(state, returning=(nothing,) * (after - len(lists)) + lists)


def returning_after(state: State, lists: Tensor) -> tuple[Tensor, ...]:
    """`State.returning` after these lists were shown.

    A blocked item that is shown anyway returns later than it would have, or, if it is one of the
    history, never.
    """
    # One step has passed, so what was due in j steps is due in j - 1, and these lists come last.
    earlier = state.returning[1:]
    again = state.blocked_sets.contains(lists)
    if again.any():
        returns = torch.zeros_like(again)
        moved = []
        for some in earlier:
            # The item is struck from its earlier place in the queue: it returns with this list
            # instead.
            same = (some[:, :, None] == lists[:, None, :]) & again[:, None, :]  # (b, K, K)
            moved.append(some.masked_fill(same.any(2), -1))
            returns |= same.any(1)
        # A blocked item that was not due to return is one of the history: it stays blocked for
        # good.
        earlier, lists = tuple(moved), lists.masked_fill(again & ~returns, -1)
    return (*earlier, lists)


def push_liked(queue: Tensor, items: Tensor, hits: Tensor) -> Tensor:
    """Equation 13: each liked item, in list order, enters the queue and pushes the oldest out."""
    rows = hits.any(1).nonzero().squeeze(1)  # the others keep their queue
    line = torch.cat([queue[rows], items[rows]], dim=1)
    stays = torch.ones_like(line, dtype=torch.uint8)
    stays[:, queue.shape[1] :] = hits[rows]
    # A stable sort brings what does not enter to the front and keeps the order of the rest.
    order = torch.sort(stays, dim=1, stable=True).indices
    return queue.index_copy(0, rows, line.gather(1, order[:, items.shape[1] :]))


def _repeats(lists: Tensor) -> Tensor:
    """True where an item stands earlier in the same list."""
    if lists.shape[1] == 1:
        return torch.zeros_like(lists, dtype=torch.bool)
    same = lists[:, :, None] == lists[:, None, :]
    return torch.tril(same, diagonal=-1).any(dim=2)


def cost_limit(alpha_prime: float, list_length: int, gamma_c: float, horizon: int) -> float:
    """Equation 11: d, the discounted cost of showing alpha' K sensitive items a step."""
    # T terms, one for each step with a cost; docs/paper-map.md says how the paper's sums differ.
    return sum(gamma_c**t for t in range(horizon)) * alpha_prime * list_length
