"""Is a recommender as good for one group of users as for all others? Differences with intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from fairhorizon.metrics.significance import CONFIDENCE


@dataclass(frozen=True)
class GroupDifference:
    """The mean of a group of users, that of all others, and the difference with its interval.

    NaN: a side has fewer than two users.
    """

    group: str
    users: int
    mean: float
    others: float
    difference: float
    low: float
    high: float


def group_differences(values: ArrayLike, groups: ArrayLike) -> list[GroupDifference]:
    """Each group against all other users, in the order of the groups' names.

    The interval is Welch's, for two samples whose variances differ: with v = s^2 / n of each side,

        d -+ t(0.975, f) sqrt(v + w),    f = (v + w)^2 / (v^2 / (n - 1) + w^2 / (m - 1))

    values: (n_users,) a metric; NaN: no value, such as of a user without test items.
    groups: (n_users,) text; "": in no group. Both are left out.
    """
    found, names = np.asarray(values, dtype=np.float64), np.asarray(groups, dtype=object)
    if found.ndim != 1 or found.shape != names.shape:
        raise ValueError(f"values have shape {found.shape}, groups {names.shape}, not one per user")
    known = ~np.isnan(found) & (names != "")
    found, names = found[known], names[known]
    rows = []
    for name in sorted(set(names.tolist()), key=_in_order):
        inside = names == name
        rows.append(_difference(str(name), found[inside], found[~inside]))
    return rows


def _difference(
    name: str, own: NDArray[np.float64], others: NDArray[np.float64]
) -> GroupDifference:
    n, m = len(own), len(others)
    mean = float(own.mean())
    rest = float(others.mean()) if m else float("nan")
    if min(n, m) < 2:
        return GroupDifference(name, n, mean, rest, mean - rest, float("nan"), float("nan"))
    v, w = float(own.var(ddof=1)) / n, float(others.var(ddof=1)) / m
    half = 0.0
    # Without any spread on either side the difference is known exactly.
    if v + w > 0:
        freedom = (v + w) ** 2 / (v**2 / (n - 1) + w**2 / (m - 1))
        half = float(student.ppf((1 + CONFIDENCE) / 2, freedom)) * float(np.sqrt(v + w))
    d = mean - rest
    return GroupDifference(name, n, mean, rest, d, d - half, d + half)


THIRDS = 12  # values of a column of numbers, above which they are cut into three parts


def groups_of_values(cells: ArrayLike) -> NDArray[np.object_]:
    """(n_users,) the group of each cell: the cell, or a third of many numbers, as in "24 to 35"."""
    texts = np.array([str(cell).strip() for cell in np.asarray(cells).tolist()], dtype=object)
    try:
        numbers = np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return texts
    known = ~np.isnan(numbers)
    if len(np.unique(numbers[known])) <= THIRDS:
        return texts
    # Equal numbers are in one third, so the thirds may differ in size.
    third = np.searchsorted(np.quantile(numbers[known], [1 / 3, 2 / 3]), numbers)
    groups = np.full(len(texts), "", dtype=object)
    for part in range(3):
        inside = known & (third == part)
        if inside.any():
            groups[inside] = f"{numbers[inside].min():g} to {numbers[inside].max():g}"
    return groups


def _in_order(name: str) -> tuple[int, float, str]:
    """Numbers by size, and before words."""
    try:
        return 0, float(name.split(" to ")[0]), name
    except ValueError:
        return 1, 0.0, name
