"""Fairness of exposure: how showings are spread over items and over the two item groups.

counts: (n_items,) how often each item of the whole catalogue was shown (g in the paper).
popular: (n_items,) True for the popular group G0, False for the long tail G1.
An undefined number (a share of nothing) is NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics.accuracy import EMPTY, check_codes, discount, first_k
from fairhorizon.metrics.item_groups import membership
from fairhorizon.metrics.shares import ROUNDING, rounded_up, whole_showings


def exposure_counts(lists: NDArray[np.integer[Any]], n_items: int, k: int) -> NDArray[np.int64]:
    """How often each item is among the first k of a list."""
    shown = first_k(lists, k)
    check_codes(shown, n_items)
    return np.bincount(shown[shown != EMPTY], minlength=n_items).astype(np.int64)


def gini(counts: NDArray[Any]) -> float:
    """Gini index of exposure: 0 when all items are shown equally, 1 - 1/n when only one is shown.

    1/(2 n^2 mean(g)) sum_ij |g_i - g_j|  =  sum_i i (n - i) (g_(i+1) - g_(i)) / (n sum(g)),
    with g_(1) <= ... <= g_(n); the gaps are never negative, so nothing cancels.
    """
    g = _sorted_counts(counts)
    total = float(g.sum())
    if total == 0:  # nothing shown: all items alike
        return 0.0
    # (18): the double sum over pairs as a single sum over the gaps between sorted neighbours. The
    # gap above g_(i) lies between i items on one side and n - i on the other.
    i = np.arange(1, g.size, dtype=np.float64)
    return float(i * (g.size - i) @ np.diff(g)) / (g.size * total)


def lorenz_curve(counts: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of the catalogue, least shown first, and the shares of exposure they receive.

    Both run from 0 to 1 over n + 1 points; the Gini index is 1 - 2 * (area below the curve).
    """
    g = _sorted_counts(counts)
    catalogue = np.linspace(0, 1, g.size + 1)
    total = float(g.sum())
    if total == 0:  # nothing shown: all items alike
        return catalogue, catalogue.copy()
    return catalogue, np.append(0, np.cumsum(g)) / total


def most_shown_share(counts: NDArray[Any], most: int) -> float:
    """Share of all exposure that the `most` most shown items have: a point of the Lorenz curve."""
    g = _sorted_counts(counts)
    total = float(g.sum())
    return float(g[g.size - most :].sum()) / total if total else float("nan")


def popularity_rate(lists: NDArray[np.integer[Any]], popular: NDArray[np.bool_], k: int) -> float:
    """Share of the shown items that belong to G0."""
    shown = first_k(lists, k)
    n_shown = int((shown != EMPTY).sum())
    return int(_in_popular(shown, popular).sum()) / n_shown if n_shown else float("nan")


def weighed_share(
    lists: NDArray[np.integer[Any]],
    group: NDArray[np.bool_],
    k: int,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Share of exposure that the group has in the first k places, each showing weighed by place.

    weights: (k,) of places 1, 2, ...; without them 1 / log2(1 + place). An empty slot counts
    neither for the group nor for all.
    """
    shown = first_k(lists, k)
    # (n_users, K) bool @ (K,) sums the weights of the filled places of each list.
    counts = discount(np.arange(1, k + 1)) if weights is None else weights
    if counts.shape != (k,):
        raise ValueError(f"weights have shape {counts.shape}, expected ({k},)")
    total = float(((shown != EMPTY) @ counts).sum())
    return float((_in_popular(shown, group) @ counts).sum()) / total if total else float("nan")


def lists_above(
    lists: NDArray[np.integer[Any]], group: NDArray[np.bool_], share: float, k: int
) -> float:
    """Share of lists with more than ceil(share * k) items of the group in the first k places."""
    if not 0 <= share <= 1:
        raise ValueError(f"share = {share} is not between 0 and 1")
    inside = _in_popular(first_k(lists, k), group).sum(axis=1)
    return float((inside > rounded_up(share * k)).mean()) if len(inside) else float("nan")


def share_within_every_list(
    lists: NDArray[np.integer[Any]], group: NDArray[np.bool_], k: int, *, prefixes: bool = False
) -> float:
    """The smallest share s with at most ceil(s * k) items of the group in every list.

    n items are within ceil(s * k) for any s above (n - 1) / k: the share returned is just above
    that. prefixes: of the first 1, 2, ..., k places of every list too.
    """
    inside = np.cumsum(_in_popular(first_k(lists, k), group), axis=1)  # (n_users, k)
    if not len(inside):
        return float("nan")
    # The fullest list decides, for each prefix length by itself.
    most = inside.max(axis=0)  # (k,)
    places = np.arange(1, k + 1)
    # `rounded_up` forgives one ROUNDING, so the share has to clear the step by more than that.
    bounds = np.where(most > 0, (most - 1) / places + 2 * ROUNDING, 0.0)
    return float(bounds.max() if prefixes else bounds[-1])


def coverage(counts: NDArray[Any]) -> float:
    """Share of the catalogue shown at least once."""
    return float((_sorted_counts(counts) > 0).mean())


def exposure_ratio(counts: NDArray[Any], popular: NDArray[np.bool_]) -> float:
    """Exposure(G0) / Exposure(G1); infinite when only G0 is shown."""
    of_popular, of_tail = (float(group.sum()) for group in _groups(counts, popular))
    if of_tail == 0:
        return float("inf") if of_popular else float("nan")
    return of_popular / of_tail


def demographic_parity_gap(counts: NDArray[Any], popular: NDArray[np.bool_]) -> float:
    """Mean exposure per item of G0 minus that of G1: positive when G0 is favoured, 0 at parity."""
    of_popular, of_tail = _groups(counts, popular)
    if not of_popular.size or not of_tail.size:
        return float("nan")
    return float(of_popular.mean() - of_tail.mean())


def entropy(counts: NDArray[Any]) -> float:
    """Shannon entropy of exposure over its largest: 1 when all items are shown equally.

    - sum_i p_i log p_i / log n,  with p_i = g_i / sum(g): 0 when only one item is shown.

    counts: (n,) showings of items, or of groups of items.
    """
    g = _sorted_counts(counts)
    total = float(g.sum())
    if total == 0 or g.size == 1:
        return float("nan")
    p = g[g > 0] / total  # 0 log 0 = 0
    return float(-(p * np.log(p)).sum() / np.log(g.size))


def worst_off_share(counts: NDArray[Any], providers: NDArray[Any] | csr_array) -> float:
    """The max-min share, of the worst-off provider: 1 at parity, 0 if one is never shown.

    min over providers p of  (g_p / sum(g)) / (n_p / n),  with g_p the exposure of the n_p items
    of p among all n. Weighted by n_p / n these quotients have the mean 1, so that 1 is the most.

    providers: (n_items,) the provider of each item, as a whole number; or a group, True or False;
        or as from `membership`. Items of no provider do not count.
    """
    if counts.shape[0] != providers.shape[0]:
        raise ValueError(f"counts have shape {counts.shape}, providers {providers.shape}")
    parts = providers if isinstance(providers, csr_array) else membership(providers)
    exposure, items = parts.T @ counts.astype(np.float64), parts.sum(axis=0)
    total = float(exposure.sum())
    if total == 0:
        return float("nan")
    return float((exposure / total / (items / items.sum())).min())


def exact_k_violation_rate(
    lists: NDArray[np.integer[Any]], popular: NDArray[np.bool_], alpha_prime: float, k: int
) -> float:
    """Share of lists with more than alpha' k items of G0 among the first k."""
    if not 0 <= alpha_prime <= 1:
        raise ValueError(f"alpha_prime = {alpha_prime} is not a share between 0 and 1")
    shown = first_k(lists, k)
    if not len(shown):
        return float("nan")
    n_popular = _in_popular(shown, popular).sum(axis=1)
    return float((n_popular > whole_showings(alpha_prime * k)).mean())


def _in_popular(shown: NDArray[np.integer[Any]], popular: NDArray[np.bool_]) -> NDArray[np.bool_]:
    check_codes(shown, len(popular))
    # -1, the empty slot, indexes the appended False.
    inside: NDArray[np.bool_] = np.append(popular, False)[shown]
    return inside


def _groups(counts: NDArray[Any], popular: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    if counts.shape != popular.shape:
        raise ValueError(f"counts have shape {counts.shape}, groups {popular.shape}")
    return counts[popular], counts[~popular]


def _sorted_counts(counts: NDArray[Any]) -> NDArray[np.float64]:
    """The counts in ascending order; a ValueError if they are negative or not finite."""
    if counts.ndim != 1 or not counts.size:
        raise ValueError(f"counts have shape {counts.shape}, expected (n_items,), n_items >= 1")
    g = np.sort(counts.astype(np.float64))
    if not (g[0] >= 0 and np.isfinite(g[-1])):
        raise ValueError("counts must be finite and not negative")
    return g
