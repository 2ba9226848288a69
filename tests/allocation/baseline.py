"""The stored instances that list engines are measured against, and how to measure lists.

`baseline.json` was written by benchmarks/list_baseline.py of commit eb15ceb. Reading it takes numpy
alone, nothing of the package: whatever makes lists can be held against it.

Arrays are {"dtype", "shape", "data"}: raw little-endian bytes in C order, the bytes of equal
significance of all numbers together (they compress better), then LZMA, then base 85. Flags are
packed eight to a byte before that.
"""

import base64
import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).with_name("baseline.json")
ROUNDING = 1e-9


@dataclass(frozen=True)
class StoredLimit:
    """At most (a floor: at least) a share of the showings for a group of items.

    scope: "all" showings together, every "list", or every "prefix" of a list.
    weights: what a showing at place k counts: "none" (1), "log" (1 / log2(1 + k)), or the weights
        of places 1, 2, ...; places beyond these count 0.
    first: only so many places of each list count; None: all of them.
    """

    name: str
    members: NDArray[np.bool_]  # (n_items,)
    share: float
    is_floor: bool
    scope: str
    weights: str | tuple[float, ...]
    first: int | None

    def place_weights(self, length: int) -> NDArray[np.float64]:
        """(length,) what a showing at each place counts."""
        places = np.arange(1, length + 1)
        if self.weights == "none":
            weights = np.ones(length)
        elif self.weights == "log":
            weights = 1 / np.log2(1 + places)
        else:
            weights = np.zeros(length)
            given = [float(weight) for weight in self.weights[:length]]
            weights[: len(given)] = given
        return np.where(places <= (length if self.first is None else self.first), weights, 0.0)


@dataclass(frozen=True)
class Results:
    """What lists make of an instance.

    value: sum over users and places of w_k v.
    shares: of each limit, as it counts. On every list or prefix: in the worst list, counting the
        group (of a floor, everything else) in the first K places as a share of K.
    prices: of a showing that counts 1, in value, for each limit; None where they were not stored.
        One floor alone has the price of a showing outside its group. One limit on every list or
        prefix has the value that a list loses on average.
    bound: no lists as long as these that keep the limits have a higher value; None: not known.
    gini: of the showings of all items of the catalogue.
    shown: filled places.
    """

    value: float
    shares: tuple[float, ...]
    kept: bool
    gini: float
    shown: int
    prices: tuple[float, ...] | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Instance:
    """Users with candidates, limits on their lists, and what was made of them.

    length: places to be filled.
    position_weights: (length,) of the value at these places.
    prefix: (b, t) items at the t places before these, which the limits count too.
    settled: showings besides, and those of the group among them, as the only limit weighs them.
    lists: (b, length) the lists behind the results, -1 at the end of short ones.
    """

    name: str
    length: int
    items: NDArray[np.int64]  # (b, C) item codes, -1 where there is none
    values: NDArray[np.float32]  # (b, C)
    limits: tuple[StoredLimit, ...]
    gini_limit: float | None
    position_weights: NDArray[np.float64]
    prefix: NDArray[np.int64]
    settled: tuple[float, float]
    results: Results
    lists: NDArray[np.int64]

    @property
    def n_items(self) -> int:
        return len(self.limits[0].members)


@cache
def load(file: Path = FILE) -> tuple[Instance, ...]:
    """All instances, in the order of the file."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    tables = {name: _table(table) for name, table in stored["tables"].items()}
    return tuple(_instance(one, tables) for one in stored["instances"])


def _table(stored: dict[str, Any]) -> dict[str, Any]:
    groups = {name: unpacked(group) for name, group in stored["groups"].items()}
    items = unpacked(stored["items"]).astype(np.int64)
    return {"items": items, "values": unpacked(stored["values"]), "groups": groups}


def _instance(stored: dict[str, Any], tables: dict[str, dict[str, Any]]) -> Instance:
    table, length = tables[stored["table"]], stored["length"]
    limits = tuple(
        StoredLimit(
            **{**limit, "members": table["groups"][limit["members"]]}
            | ({"weights": tuple(limit["weights"])} if isinstance(limit["weights"], list) else {})
        )
        for limit in stored["limits"]
    )
    weights = stored["position_weights"]
    discount = 1 / np.log2(np.arange(2, length + 2))
    results = stored["results"]
    prices = results["prices"]
    # lists are stored by where their items stand among the candidates
    at = unpacked(stored["lists"]).astype(np.int64)
    known = np.take_along_axis(table["items"], np.maximum(at, 0), axis=1)
    prefix = np.empty((len(at), 0), np.int64)
    return Instance(
        name=stored["name"],
        length=length,
        items=table["items"],
        values=table["values"],
        limits=limits,
        gini_limit=stored["gini_limit"],
        position_weights=discount if weights is None else np.array(weights, dtype=np.float64),
        prefix=prefix if stored["prefix"] is None else np.array(stored["prefix"], dtype=np.int64),
        settled=tuple(stored["settled"]),
        results=Results(**results | {"shares": tuple(results["shares"]), "prices": tuple(prices)}),
        lists=np.where(at < 0, -1, known),
    )


def measured(instance: Instance, lists: NDArray[np.int64]) -> Results:
    """What lists (b, length), -1 for an empty place, make of an instance; prices are not known."""
    values = np.zeros(lists.shape)
    for place, column in enumerate(lists.T):
        found = (instance.items == column[:, None]) & (column >= 0)[:, None]
        if not (found.sum(1) == (column >= 0)).all():
            raise ValueError(f"{instance.name}: place {place + 1} has an item that is no candidate")
        values[:, place] = np.where(found, instance.values, 0).sum(1, dtype=np.float64)
    # an item at two places of a list would be counted twice
    ordered = np.sort(lists, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise ValueError(f"{instance.name}: an item is twice in a list")
    whole = np.concatenate([instance.prefix, lists], axis=1)
    found_shares = [_share(limit, whole, instance.settled) for limit in instance.limits]
    shown = lists[lists >= 0]
    return Results(
        value=float((values @ instance.position_weights).sum()),
        shares=tuple(share for share, _ in found_shares),
        kept=all(kept for _, kept in found_shares),
        gini=gini(np.bincount(shown, minlength=instance.n_items)),
        shown=len(shown),
    )


def _share(
    limit: StoredLimit, lists: NDArray[np.int64], settled: tuple[float, float]
) -> tuple[float, bool]:
    """The share that was reached, and whether the limit is kept."""
    length, filled = lists.shape[1], lists >= 0
    inside = limit.members[np.maximum(lists, 0)] & filled
    if limit.scope == "all":
        weights = limit.place_weights(length)
        total = settled[0] + float((filled @ weights).sum())
        group = settled[1] + float((inside @ weights).sum())
        excess = group - limit.share * total
        kept = (-excess if limit.is_floor else excess) <= 1e-7
        return (group / total if total else 0.0), kept
    # a floor is the limit of 1 - share on all other items
    counted = filled & ~inside if limit.is_floor else inside
    share = 1 - limit.share if limit.is_floor else limit.share
    first = length if limit.first is None else min(limit.first, length)
    prefixes = range(1, first + 1) if limit.scope == "prefix" else [first]
    kept = all(
        counted[:, :k].sum(1).max(initial=0) <= np.ceil(share * k - ROUNDING) for k in prefixes
    )
    most = float(counted[:, :first].sum(1).max(initial=0)) / first
    return (1 - most if limit.is_floor else most), kept


def gini(counts: NDArray[np.int64]) -> float:
    """Gini index of counts: 0 where all are equal."""
    ranked, n = np.sort(counts).astype(np.float64), len(counts)
    if not ranked.sum():
        return 0.0
    return float((2 * np.arange(1, n + 1) - n - 1) @ ranked / (n * ranked.sum()))


def unpacked(stored: dict[str, Any]) -> NDArray[Any]:
    """The array that was packed."""
    dtype, shape = np.dtype(stored["dtype"]), tuple(stored["shape"])
    raw = lzma.decompress(base64.b85decode(stored["data"]))
    if dtype == np.bool_:
        count = int(np.prod(shape))
        return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).reshape(shape) > 0
    parts = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1).T
    return np.ascontiguousarray(parts).view(dtype.newbyteorder("<")).astype(dtype).reshape(shape)
