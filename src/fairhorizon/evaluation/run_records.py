"""What a long run records of everything shown since it began: accuracy, who stays, its limit."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fairhorizon.histories import ItemSets
from fairhorizon.metrics.shares import exceeds
from fairhorizon.ranking import discount
from fairhorizon.simulation.feedback import Audience


class Accuracy:
    """NDCG and recall of each user's accumulated list, a step at a time.

    DCG adds up v_j times the value of the item shown at rank j of the whole list, the ideal DCG v_j
    times the value of the j-th best item, each when it is shown; v_j = 1 / log2(1 + j). Recall adds
    up values, of an item that is shown again the first one only.

    period: ranks after which the ideal list begins again with the best item, a multiple of K;
        None where no value counts twice.
    """

    def __init__(self, n_users: int, period: int | None = None) -> None:
        self.period = period
        # Double precision: hundreds of small terms are added up, one step at a time.
        self.dcg, self.ideal, self.found = torch.zeros(3, n_users, dtype=torch.float64)

    def add(
        self, values: Tensor, new_values: Tensor, audience: Audience, first: int
    ) -> dict[str, float]:
        """values: (b, K) of the items at ranks first + 1, ..., first + K; 0 for what earns nothing.
        new_values: the same, 0 also for items that were shown before.

        Means over the users with any item of positive value; NaN without any.
        """
        v = discount(torch.arange(first + 1, first + values.shape[1] + 1, dtype=torch.float64))
        # Where values can count again, the best list shows the best items again as soon as it may.
        best = first if self.period is None else first % self.period
        self.dcg += values @ v
        self.ideal += audience.best(best, best + values.shape[1]).cpu() @ v
        self.found += new_values.sum(1)
        total = audience.total().cpu()
        return {"ndcg": _mean_ratio(self.dcg, self.ideal), "recall": _mean_ratio(self.found, total)}

    def ndcg_of_users(self) -> Tensor:
        """(n_users,) of all that was shown so far; NaN for users without any item of value."""
        return torch.where(self.ideal > 0, self.dcg / self.ideal, torch.nan)

    def tensors(self) -> dict[str, Tensor]:
        return {"dcg": self.dcg, "ideal": self.ideal, "found": self.found}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.dcg, self.ideal, self.found = (
            tensors[name].clone() for name in ("dcg", "ideal", "found")
        )


def values_of(lists: Tensor, spent: ItemSets, audience: Audience) -> Tensor:
    """(b, K) relevance of the items shown; 0 for those in `spent`, and for an item that stands
    earlier in the same list."""
    worthless = spent.contains(lists)
    if lists.shape[1] > 1:
        same = lists[:, :, None] == lists[:, None, :]
        worthless |= torch.tril(same, diagonal=-1).any(dim=2)
    return audience.relevance(lists).masked_fill(worthless, 0.0).cpu()


def _mean_ratio(parts: Tensor, wholes: Tensor) -> float:
    """Mean of part / whole over the users whose whole is not 0; NaN without any."""
    present = wholes > 0
    return float((parts[present] / wholes[present]).mean()) if present.any() else float("nan")


class Staying:
    """Counts by user; all who were there at the start are counted, also after they have left.

    groups: (n_users,) bool of groups of users, whose presence is recorded apart.
    practice: (n_users,) bool, users for pretraining and for choosing settings: they count in no
        other figure.
    """

    def __init__(
        self,
        n_users: int,
        groups: Mapping[str, Tensor] | None = None,
        practice: Tensor | None = None,
    ) -> None:
        self.likes = torch.zeros(n_users, dtype=torch.int64)
        self.showings = torch.zeros_like(self.likes)
        self.practice = torch.zeros(n_users, dtype=torch.bool) if practice is None else practice
        counted = {name: inside & ~self.practice for name, inside in (groups or {}).items()}
        self.groups = {name: inside for name, inside in counted.items() if inside.any()}

    def add(self, lists: Tensor, hits: Tensor, here: Tensor | None) -> dict[str, float]:
        """likes, showings: per user since the run began; here: the share still there after them.

        `practice likes`: of those who are not in these figures.
        """
        self.likes += hits.sum(1).cpu()
        # Users who left are shown nothing and like nothing, so their counts simply stop.
        self.showings += (lists >= 0).sum(1).cpu()
        present = torch.ones(len(self.likes)) if here is None else here.cpu()
        own = {
            f"here of {name}": float(present[inside].double().mean())
            for name, inside in self.groups.items()
        }
        if self.practice.any():
            own["practice likes"] = float(self.likes[self.practice].double().mean())
        counted = ~self.practice
        return {
            "likes": float(self.likes[counted].double().mean()),
            "showings": float(self.showings[counted].double().mean()),
            "here": float(present[counted].double().mean()),
            **(own if here is not None else {}),
        }

    def tensors(self) -> dict[str, Tensor]:
        return {"likes": self.likes, "showings": self.showings}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.likes, self.showings = tensors["likes"], tensors["showings"]


def by_activity(counts: Tensor) -> dict[str, Tensor]:
    """Three groups of users of about the same size, by what they took in training."""
    # The rank of each user; ties are broken by user code, so that the thirds are equally large.
    order = torch.argsort(torch.argsort(counts, stable=True), stable=True)
    third = order * 3 // max(1, len(counts))
    return {name: third == n for n, name in enumerate(("light", "medium", "heavy"))}


def practice_users(n_users: int) -> Tensor:
    """(n_users,) bool: a third of the users, always the same, for pretraining and for choosing
    settings; they count in no figure that is reported."""
    # A fixed seed, whatever the seed of the run: a user for practice is never one that is reported
    # on.
    drawn = torch.randperm(n_users, generator=torch.Generator().manual_seed(0))
    chosen = torch.zeros(n_users, dtype=torch.bool)
    chosen[drawn[: n_users // 3]] = True
    return chosen


class LimitRecord:
    """How the running popularity rate, under the labels of the limit, keeps to it."""

    def __init__(self, alpha_prime: float, warm_up: int) -> None:
        self.alpha_prime, self.warm_up = alpha_prime, warm_up
        self.steps = 0  # since the warm-up
        self.broken = 0  # steps with a rate above the limit
        self.largest = 0.0  # overshoot

    def record(self, step: int, rate: float) -> dict[str, float]:
        """NaN, the rate when nothing was shown, breaks no limit."""
        # max(0.0, NaN) is 0.0: Python keeps the first argument if the comparison is False.
        violation = max(0.0, rate - self.alpha_prime)
        if step > self.warm_up:
            self.steps += 1
            self.broken += exceeds(rate, self.alpha_prime)
            self.largest = max(self.largest, violation)
        return {
            "violation": violation,
            "violation_share": self.broken / self.steps if self.steps else float("nan"),
            "largest_overshoot": self.largest,
        }

    def tensors(self) -> dict[str, Tensor]:
        return {
            "steps": torch.tensor(self.steps),
            "broken": torch.tensor(self.broken),
            "largest": torch.tensor(self.largest, dtype=torch.float64),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.steps, self.broken = int(tensors["steps"]), int(tensors["broken"])
        self.largest = float(tensors["largest"])
