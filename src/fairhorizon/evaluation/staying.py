"""Who stays in a long run: likes, showings and presence of users since it began."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Staying:
    """Counts by user; all who were there at the start are counted, also after they have left.

    groups: (n_users,) bool of groups of users, whose presence is recorded apart.
    choosing: (n_users,) bool, users by whom settings are chosen: they count in no other figure.
    """

    def __init__(
        self,
        n_users: int,
        groups: Mapping[str, Tensor] | None = None,
        choosing: Tensor | None = None,
    ) -> None:
        self.likes = torch.zeros(n_users, dtype=torch.int64)
        self.showings = torch.zeros_like(self.likes)
        self.choosing = torch.zeros(n_users, dtype=torch.bool) if choosing is None else choosing
        counted = {name: inside & ~self.choosing for name, inside in (groups or {}).items()}
        self.groups = {name: inside for name, inside in counted.items() if inside.any()}

    def add(self, lists: Tensor, hits: Tensor, here: Tensor | None) -> dict[str, float]:
        """likes, showings: per user since the run began; here: the share still there after them.

        `likes of choosing`: of those who are not in these figures.
        """
        self.likes += hits.sum(1).cpu()
        self.showings += (lists >= 0).sum(1).cpu()
        present = torch.ones(len(self.likes)) if here is None else here.cpu()
        own = {
            f"here of {name}": float(present[inside].double().mean())
            for name, inside in self.groups.items()
        }
        if self.choosing.any():
            own["likes of choosing"] = float(self.likes[self.choosing].double().mean())
        counted = ~self.choosing
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
    order = torch.argsort(torch.argsort(counts, stable=True), stable=True)
    third = order * 3 // max(1, len(counts))
    return {name: third == n for n, name in enumerate(("light", "medium", "heavy"))}


def choosing_users(n_users: int) -> Tensor:
    """(n_users,) bool: a tenth of the users, always the same, for choosing settings."""
    drawn = torch.randperm(n_users, generator=torch.Generator().manual_seed(0))
    chosen = torch.zeros(n_users, dtype=torch.bool)
    chosen[drawn[: n_users // 10]] = True
    return chosen
