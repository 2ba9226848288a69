"""Where a training of FCPO begins: from pretrained embeddings, or from rankers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.experts.later_part import earlier_part
from fairhorizon.agents.fcpo.experts.panel import Panel
from fairhorizon.agents.fcpo.learning.training import Training
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.policy.history import numbers_of_items, numbers_of_users
from fairhorizon.rankers.mf import Mf
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.vocabulary import OnEpoch

Fitted = Mapping[str, Ranker[Any]]  # by name


def check(split: Split, config: FcpoConfig) -> None:
    """Refuse a log that episodes cannot be made of."""
    if not len(split.train):
        raise DataError(
            f"{split.name or 'the split'} has nothing to train on",
            remedy="a user's last item is for validation and a fifth for test: give more",
        )
    if config.list_length * config.horizon > split.train.n_items:
        raise ConfigError(
            f"{config.horizon} lists of {config.list_length} need more than the "
            f"{split.train.n_items} items there are (set a smaller horizon or list_length)"
        )


def from_embeddings(
    split: Split, config: FcpoConfig, sensitive: Tensor, seed: int, on_epoch: OnEpoch | None
) -> Training:
    """As in the paper: random weights over the embeddings of a factorisation."""
    pmf = Mf(config.pmf, seed=seed).fit(split, on_epoch=on_epoch)
    return Training(
        split,
        config,
        vectors=(pmf.user_vectors_, pmf.item_vectors_),
        sensitive=sensitive,
        seed=seed,
        pretraining_rmse=pmf.validation_rmse_,
    )


def from_rankers(
    split: Split,
    config: FcpoConfig,
    sensitive: Tensor,
    seed: int,
    fitted: Fitted,
    on_epoch: OnEpoch | None,
) -> Training:
    """A warm start: from rankers, of the earlier part of the log if the rest is to be unseen.

    Those that are `fitted` already are taken as they are.
    """
    seen = earlier_part(split) if config.starts == "unseen" else split
    if not len(seen.train):
        raise DataError(
            f"{split.name or 'the split'} has no user with two training items, an earlier one "
            "for the rankers and a later one to learn from",
            remedy="give more, or fit fcpo:paper",
        )
    panel = Panel.fit(config.warm_start, seen, config.protocol, seed, fitted, on_epoch)
    taken = torch.from_numpy(split.train.item_counts())
    training = Training(
        split,
        config,
        vectors=(numbers_of_users(histories(split)), numbers_of_items(taken, sensitive)),
        sensitive=sensitive,
        seed=seed,
        pretraining_rmse=None,
        panel=panel,
    )
    training.weigh_rankers()
    return training


def histories(split: Split) -> Tensor:
    """(n_users,) how many training items each user has."""
    return torch.from_numpy(split.train.user_counts())
