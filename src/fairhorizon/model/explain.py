"""Why somebody is shown what they are shown, and what the limits changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.fcpo.retention.replay import FittedRetention
from fairhorizon.model.serving import (
    RepeatRule,
    Requests,
    ServingState,
    UserHistory,
    request_scenario,
)
from fairhorizon.rankers.ensemble import Stack
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.feedback import Scenario

MOST = 3  # items of the history that are named

Codes = NDArray[np.int64]
Parts = list[tuple[Any, float]]  # names with their shares of a score, the largest first


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a user is shown the items of a list, and what the limits changed in it.

    user: the id.
    frame: a row per item of the list, then a row per item that the limits took out of it. Columns:
        rank (null for an item that was taken out), item, score, value, because (the items of the
        history that add most to the score, with their shares), parts (the share of each ranker),
        rank_without_limits (null for an item that came in because of the limits).
    prices: by the text of a limit, what it subtracts from the value of an item of its group.
    worth: what all values of this user were multiplied by, with value="long"; 1 is an average user.
        None: lists were made for what users like now.
    """

    user: Any
    frame: pl.DataFrame
    prices: Mapping[str, float]
    worth: float | None = None

    @property
    def text(self) -> str:
        """The explanation in words, a line per item."""
        lines = [self._line(row) for row in self.frame.to_dicts()]
        if self.worth is not None:
            lines.append(f"a like of this user counts {self.worth:.3g} times, by what follows it")
        return "\n".join([*lines, *self._limits()])

    def __str__(self) -> str:
        return self.text

    def _line(self, row: dict[str, Any]) -> str:
        if row["rank"] is None:
            rank = row["rank_without_limits"]
            return f" -. {row['item']}: left out by the limits, rank {rank} without them"
        parts = [f"{row['rank']:2d}. {row['item']}"]
        if row["because"]:
            parts.append(f"because of {row['because']}")
        if row["score"] is not None:
            parts.append(f"score {row['score']:.3g}")
        if row["parts"]:
            parts.append(row["parts"])
        if row["rank_without_limits"] is None:
            parts.append("came in because of the limits")
        elif row["rank_without_limits"] != row["rank"]:
            parts.append(f"rank {row['rank_without_limits']} without the limits")
        return parts[0] + (": " + "; ".join(parts[1:]) if len(parts) > 1 else "")

    def _limits(self) -> list[str]:
        return [
            f"{limit}: a price of {price:.3g} on the value of an item"
            if price
            else f"{limit}: costs nothing here"
            for limit, price in self.prices.items()
        ]


def explained(
    state: ServingState, user: UserHistory, length: int, retention: FittedRetention | None = None
) -> Explanation:
    """The list of one user under the limits, compared with the list without them."""
    scenario = request_scenario(state, Requests([user], None, RepeatRule()), retention)
    length = min(length, state.n_items)
    served = state.serving.rank(scenario, length=length)
    plain = without_limits(state.unlimited).rank(scenario, length=length).lists[0]
    lists = served.lists[0][served.lists[0] >= 0]
    # Items that the limits took out, in the order of the list without limits.
    out = np.array([item for item in plain if item >= 0 and item not in lists], dtype=np.int64)
    because, parts = map(_texts, reasons(state, scenario, lists))
    places = {int(item): place for place, item in enumerate(plain, start=1)}
    shown, gone = len(lists), len(out)

    def numbers(some: NDArray[np.float64] | None) -> list[float | None]:
        cells = [None] * shown if some is None else some[0][:shown].tolist()
        return [*cells, *([None] * gone)]

    frame = pl.DataFrame(
        {
            "rank": pl.Series([*range(1, shown + 1), *([None] * gone)], dtype=pl.Int64),
            "item": pl.Series(state.catalogue.ids[np.append(lists, out)].tolist()),
            "score": pl.Series(numbers(served.scores), dtype=pl.Float64),
            "value": pl.Series(numbers(served.values), dtype=pl.Float64),
            "because": pl.Series([*because, *([""] * gone)], dtype=pl.String),
            "parts": pl.Series([*parts, *([""] * gone)], dtype=pl.String),
            "rank_without_limits": pl.Series(
                [places.get(int(item)) for item in np.append(lists, out)], dtype=pl.Int64
            ),
        }
    )
    worth = None if scenario.worth is None else float(scenario.worth)
    return Explanation(user.id, frame, served.prices, worth)


def without_limits(model: Recommender) -> Recommender:
    """The same model without its own limit; as it is, where it has none."""
    if model.capabilities.level_is_share and model.alpha_prime < 1:
        return model.with_level(1.0)
    return model


def _members(model: Recommender, scenario: Scenario) -> list[tuple[Ranker[Any], float]]:
    """The rankers whose scores the list is made from, with their weights; an ensemble is opened."""
    found: list[tuple[Ranker[Any], float]] = []
    state = scenario.state(torch.arange(1), model.sensitive_.device)
    for ranker, weight in zip(model.rankers, model.ranker_weights(state), strict=True):
        inner = getattr(ranker, "inner", ranker)
        if isinstance(inner, Stack):
            pairs = zip(inner.ensemble_.rankers, inner.ensemble_.weights, strict=True)
            found += [(member, weight * share) for member, share in pairs]
        else:
            found.append((ranker, weight))
    return found


@torch.no_grad()
def reasons(
    state: ServingState, scenario: Scenario, lists: Codes
) -> tuple[list[Parts], list[Parts]]:
    """For each item of a list, the items of the history and the rankers that add most to it.

    scenario: the state of the one user whom the list is for.
    lists: (n,) codes of the items in the list.

    Returns for each item the ids of items of the history, and the names of rankers, each with its
    share of the score.
    """
    members, items = _members(state.unlimited, scenario), torch.from_numpy(lists)
    if not members or not len(lists):
        return [[] for _ in lists], [[] for _ in lists]
    queue, users = scenario.queue, scenario.codes_of(torch.arange(1))
    added, by_member = torch.zeros(queue.shape[1], len(items)), []
    for ranker, weight in members:
        scores = ranker.score_small_batch(users, queue)[0]
        within = items.clamp(max=len(scores) - 1)
        # Rankers have scales of their own: scores are compared in standard deviations. One that
        # scores all items alike has none, and adds nothing.
        spread = float(scores.float().std(correction=0)) or 1.0
        by_member.append(weight * (scores.float() - scores.float().mean())[within] / spread)
        own = ranker.contributions(queue[0], within)
        if own is not None:
            added += weight / spread * own
    names = [getattr(ranker, "inner", ranker).method for ranker, _ in members]
    history = [state.catalogue.ids[c] if c < state.catalogue.n_fitted else None for c in queue[0]]
    return _largest(history, added), _largest(names, torch.stack(by_member), most=len(names))


def _largest(names: Sequence[Any], added: Tensor, most: int = MOST) -> list[Parts]:
    """For each column, the names that add most to it and their shares of all that is added."""
    # What speaks against an item is left out: shares are of all that speaks for it.
    positive = added.clamp(min=0)
    shares = positive / positive.sum(0).clamp(min=1e-12)
    found = []
    for column in shares.T:
        best = column.argsort(descending=True, stable=True)[:most].tolist()
        found.append([(names[n], float(column[n])) for n in best if column[n] > 0])
    return found


def _texts(found: list[Parts]) -> list[str]:
    return [", ".join(f"{name} {100 * share:.0f} %" for name, share in parts) for parts in found]
