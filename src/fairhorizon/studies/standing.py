"""A method under a limit, and who is ours and who a rival."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.limits.kept_by_lists import ListLimits
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method, build
from fairhorizon.studies.rows import LevelRow


@dataclass(frozen=True)
class Standing:
    """A method under a limit: with which setting under each seed, None where none keeps it."""

    limit: Limit
    method: Method
    settings: tuple[Method | None, ...]


Found = tuple[Standing, LevelRow]  # and what it led to
NdcgOf = Callable[[Standing], NDArray[np.float64]]  # (n_users,) NaN: the user has no test items


def aims_at_level(method: Method) -> bool:
    """Served at the level itself; for others a setting is searched."""
    return method.abilities.aims_at_level


def is_ours(method: Method) -> bool:
    """Trained for limits and served at the level itself; all others are rivals."""
    return aims_at_level(method) and method.abilities.learns


def serves_counting(method: Method) -> bool:
    """Whether the method can keep one limit on a group as the limit counts."""
    kept = build(replace(method, level=None), {}, seed=0).kept_in_lists
    return kept in (ListLimits.JOINT, ListLimits.STEPS, ListLimits.ANY)


def best_rivals(found: Sequence[Found], limit: str, k: int) -> list[Found]:
    """The best of all rivals under a limit, and the best of those that are no policy of ours.

    The second is the same as the first unless that is our method without its training.
    """
    rivals = [
        (mean, row.method, (one, row))
        for one, row in found
        if row.limit == limit and not row.ours
        if (mean := row.spread(f"ndcg@{k}").mean) is not None
    ]
    others = [rival for rival in rivals if not aims_at_level(rival[2][0].method)]
    best = [max(some, key=lambda rival: rival[:2])[2] for some in (rivals, others) if some]
    return best if len(best) < 2 or best[0] is not best[1] else best[:1]
