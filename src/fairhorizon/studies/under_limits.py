"""Serving under limits: one that counts showings by place or by list, or several."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.kept_by_lists import check_kept
from fairhorizon.limits.language import Limit
from fairhorizon.recommenders.base import Recommender


def served_under(model: Recommender, counting: Limit, share: float | None) -> Recommender:
    """The fitted model at this share of its own group, counted as by the limit."""
    limit = counting if share is None else replace(counting, share=share)
    return model.under([BoundLimit(limit, model.sensitive_.cpu().numpy())])


def all_or_none(
    model: Recommender, limits: Sequence[BoundLimit], group: NDArray[np.bool_]
) -> tuple[BoundLimit, ...]:
    """The limits, if lists of the model, which need not be fitted, can be made under all of them.

    group: (n_items,) that it is fitted for.
    """
    try:
        check_kept(model.method, model.kept_in_lists, limits, group)
    except ConfigError:
        return ()
    return tuple(limits)


def fingerprint(bound: BoundLimit) -> list[str]:
    """The same for the same limit on the same items."""
    return [str(bound), hashlib.sha256(bound.members.tobytes()).hexdigest()[:16]]
