"""The vectors of users and items that a policy without a warm start is built on; never trained."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.histories import UserItems
from fairhorizon.rankers.als import Als, AlsConfig, least_squares
from fairhorizon.rankers.mf import Mf
from fairhorizon.recommenders.progress import Listener


@dataclass(frozen=True)
class Embeddings:
    """Vectors of users (n_users, d) and items (n_items, d)."""

    users: Tensor
    items: Tensor
    rmse: float | None = None  # on the validation ratings, of PMF


def fit_embeddings(split: Split, config: FcpoConfig, seed: int, listener: Listener) -> Embeddings:
    """Fit the embeddings that the settings ask for."""
    listener.stage(
        f"{split.name}: pretraining the embeddings",
        metric="RMSE" if config.embeddings == "pmf" else "NDCG",
    )
    if config.embeddings == "pmf":
        pmf = Mf(config.pmf, seed=seed).fit(split, on_epoch=listener.epoch)
        listener.stage(f"PMF validation RMSE {pmf.validation_rmse_:.4f}")
        return Embeddings(pmf.user_vectors_, pmf.item_vectors_, pmf.validation_rmse_)
    items = Als(config.als_embeddings, seed=seed).fit(split, on_epoch=listener.epoch).item_vectors_
    # The length of an item's vector is mostly its popularity, and the policy shows the item with
    # the largest product. With the root of the length, it can also point at what few have taken.
    items = _standardised(items / items.norm(dim=1, keepdim=True).clamp(min=SMALLEST).sqrt())
    users = UserVectors(UserItems.from_log(split.train), items, config.als_embeddings)
    return Embeddings(users.of_log, items)


SMALLEST = 1e-6  # length of an item that nobody took


class UserVectors:
    """The vectors of users by what they have taken, by least squares over the vectors of items."""

    def __init__(self, items: UserItems, vectors: Tensor, settings: AlsConfig) -> None:
        """items: all that users took.  vectors: (n_items, d)."""
        self.items, self.vectors, self.settings = items, vectors, settings
        solved = self._solved(items)
        size = solved.square().mean().sqrt()
        self.scale = size if size > 0 else torch.ones_like(size)
        self.of_log = solved / self.scale  # (n_users, d)

    def before(self, positions: Tensor) -> Tensor:
        """(n_users, d) by the items before each user's position (n_users,) alone."""
        return self._solved(self.items.cut(positions)[0]) / self.scale

    def _solved(self, items: UserItems) -> Tensor:
        return least_squares(items, self.vectors, self.settings.alpha, self.settings.l2)


def _standardised(vectors: Tensor) -> Tensor:
    """With numbers that are 1 in the root mean square, as a network expects them."""
    size = vectors.square().mean().sqrt()
    return vectors / size if size > 0 else torch.zeros_like(vectors)
