"""What was known, offered and answered in the steps of a run: what a policy looks back at."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

GROUP, REST = 0, 1  # the two offers of a step: the best item of the limited group, and of the rest


@dataclass(frozen=True)
class AnsweredStep:
    """One step of all users: what was known before it, and what came of it."""

    of_users: Tensor  # (b, USER_FEATURES)
    of_items: Tensor  # (b, 3) of the first item shown
    states: Tensor  # (b, MOODS + 1)
    of_kinds: Tensor  # (b, KIND_FEATURES) of the first item shown
    offers: Tensor  # (b, 2, 3) of_items of the two offers; a score of -inf: there is none
    offer_kinds: Tensor  # (b, 2, KIND_FEATURES)
    shown: Tensor  # (b,) bool
    liked: Tensor  # (b,) bool
    stays: Tensor  # (b,) bool: still there after it


FIELDS = tuple(field.name for field in fields(AnsweredStep))
Run = list[AnsweredStep]


def stored(runs: list[Run]) -> dict[str, Tensor]:
    """Runs by flat names."""
    return {
        f"run{n}.{name}": torch.stack([getattr(step, name) for step in run])
        for n, run in enumerate(runs)
        for name in FIELDS
        if run
    }


def restored(tensors: dict[str, Tensor]) -> list[Run]:
    """The runs of `stored`."""
    runs: list[Run] = []
    while f"run{len(runs)}.shown" in tensors:
        columns = [tensors[f"run{len(runs)}.{name}"].unbind() for name in FIELDS]
        # copies: products of numbers that begin elsewhere in memory are rounded in another way
        steps = ([part.clone() for part in step] for step in zip(*columns, strict=True))
        runs.append([AnsweredStep(*step) for step in steps])
    return runs


def spent(step: AnsweredStep, share: float) -> Tensor:
    """(b,) what a showing costs of the limit: 1 for an item of the group, and every showing earns
    the share of the limit."""
    return (step.of_items[:, 1] - share) * step.shown


def has_both_offers(step: AnsweredStep) -> Tensor:
    """(b,) whether there was an item of either side."""
    score, in_group, _ = step.offers.unbind(2)
    sides = (in_group[:, GROUP] > 0) & (in_group[:, REST] == 0)
    return sides & (score > -torch.inf).all(1)
