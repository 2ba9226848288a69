"""The vectors of users and items that a policy without a warm start is built on; never trained."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.histories import UserItems
from fairhorizon.rankers.als import Als, least_squares
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
    als = Als(config.als_embeddings, seed=seed).fit(split, on_epoch=listener.epoch)
    items = als.item_vectors_
    # By the validated item vectors, which need not be those of the last half-step for users.
    users = least_squares(
        UserItems.from_log(split.train),
        items,
        config.als_embeddings.alpha,
        config.als_embeddings.l2,
    )
    # The length of an item's vector is mostly its popularity, and the policy shows the item with
    # the largest product. With the root of the length, it can also point at what few have taken.
    items = items / items.norm(dim=1, keepdim=True).clamp(min=SMALLEST).sqrt()
    return Embeddings(_standardised(users), _standardised(items))


SMALLEST = 1e-6  # length of an item that nobody took


def _standardised(vectors: Tensor) -> Tensor:
    """With numbers that are 1 in the root mean square, as a network expects them."""
    size = vectors.square().mean().sqrt()
    return vectors / size if size > 0 else torch.zeros_like(vectors)
