"""Lists as they go out, with values and prices; those of blocks of users are joined."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.engine import Blocks
from fairhorizon.simulation.feedback import Scenario

Floats = NDArray[np.float64]
NO_PRICES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class RankedLists:
    """Lists of users, best first, with all that is known about their items.

    lists: (n_users, K) item codes, -1 where nothing is left that may be shown.
    values: (n_users, K) the value of each showing, in units of the user's NDCG
        (`recommenders/lists/chances.py`); None of a method that has none. NaN where there is no
        item.
    scores: (n_users, K) the calibrated chance that the user takes the item next, of a method that
        calibrates; the score of the ranker otherwise; None where neither is known. NaN where there
        is no item.
    prices: what a limit subtracts from the value of an item, by the text of the limit; empty where
        nothing is priced.
    """

    lists: NDArray[np.int64]
    values: Floats | None = None
    scores: Floats | None = None
    prices: Mapping[str, float] = field(default_factory=lambda: NO_PRICES)

    def __reduce__(self) -> tuple[object, ...]:
        """For other processes: a mapping that cannot change cannot be pickled."""
        return RankedLists, (self.lists, self.values, self.scores, dict(self.prices))

    @classmethod
    def of(
        cls,
        lists: Tensor,
        *,
        values: Tensor | None = None,
        scores: Tensor | None = None,
        prices: Mapping[str, float] = NO_PRICES,
    ) -> "RankedLists":
        """From tensors of any device."""

        def numbers(some: Tensor | None) -> Floats | None:
            return None if some is None else some.cpu().double().numpy()

        return cls(
            lists.cpu().numpy(), numbers(values), numbers(scores), MappingProxyType(dict(prices))
        )


@dataclass(frozen=True, eq=False)
class ValuedItems:
    """Items of some users (b, n), -1 where one may not be shown, with values and chances."""

    items: Tensor
    values: Tensor
    chances: Tensor


def columns_of(lists: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.int64]:
    """(b, K) where the items of lists (b, K) stand among the items (b, C) of their row.

    Every item of a list is among those of its row, which are different but for -1; any column where
    the list has no item.
    """
    order = np.argsort(items, axis=1)
    ordered = np.take_along_axis(items, order, axis=1)
    # Rows are put one behind the other, so that one search finds the items of all.
    width = np.int64(1 + max(int(items.max(initial=0)), int(lists.max(initial=0))) + 1)
    rows = np.arange(len(items))[:, None]
    at = np.searchsorted((ordered + rows * width).ravel(), (lists + rows * width).ravel())
    at = (at.reshape(lists.shape) - rows * items.shape[1]).clip(0, items.shape[1] - 1)
    return np.take_along_axis(order, at, axis=1)


def on_lists(lists: Tensor, items: Tensor, numbers: Tensor) -> Tensor:
    """(b, K) float64: the numbers (b, C) of the items (b, C) at the places of lists (b, K).

    NaN where the list has no item; items as in `columns_of`.
    """
    at = torch.from_numpy(columns_of(lists.numpy(), items.numpy()))
    return numbers.double().gather(1, at).masked_fill(lists < 0, float("nan"))


class BlockServing(Interface):
    """Serves blocks of users together."""

    def block(self, scenario: Scenario, length: int, users: int) -> Any:
        """The users of a scenario, who are some of so many `users`; made where they are served."""

    def serve_blocks(self, blocks: Blocks, length: int) -> RankedLists:
        """The lists of the users of all blocks."""


@dataclass(frozen=True)
class EachAlone:
    """Every user's list depends on nobody else: a block is its lists."""

    served: Callable[[Scenario, int], RankedLists]

    def block(self, scenario: Scenario, length: int, users: int) -> RankedLists:  # noqa: ARG002
        return self.served(scenario, length)

    def serve_blocks(self, blocks: Blocks, length: int) -> RankedLists:  # noqa: ARG002
        return joined(blocks.map(_itself))


def _itself(block: RankedLists) -> RankedLists:
    return block


def joined(parts: Sequence[RankedLists]) -> RankedLists:
    """The lists of all users, from those of blocks; the prices are the same in all."""

    def column(name: str) -> np.ndarray | None:
        tables = [getattr(part, name) for part in parts]
        return None if tables[0] is None else np.concatenate(tables)

    lists = np.concatenate([part.lists for part in parts])
    return RankedLists(lists, column("values"), column("scores"), parts[0].prices)
