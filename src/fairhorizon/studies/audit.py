"""An audit of the lists of any system: how accurate and how fair they are.

Users without a list are counted, and left out of all averages: accuracy is the mean over users that
have a list and test items, the exact-K violation is a share of the lists there are.
In an impression log every impression is exposure, also that of an item seen before; accuracy is
measured on the first K distinct items.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.recommendations import Recommendations
from fairhorizon.data.splits import Split
from fairhorizon.datasets import Dataset
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import EvaluationRow, relevance
from fairhorizon.limits.measured import Showings, limit_reached, verdicts_of
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.fairness import (
    coverage,
    demographic_parity_gap,
    exposure_ratio,
    gini,
    worst_off_share,
)
from fairhorizon.metrics.summary import ACCURACY, summarise
from fairhorizon.studies.audit_rows import (
    ALL,
    NO_RANKS,
    UNNAMED,
    AuditCounts,
    AuditResult,
    GroupExposure,
    ItemExposure,
)
from fairhorizon.studies.shown_by import (
    ItemNotes,
    exposure_by_rank,
    exposure_of_providers,
    families_of,
    shares,
)
from fairhorizon.vocabulary import Mode, Protocol

NO_NOTES = ItemNotes()
MOST = 10  # items that gain and that lose most


def audit(
    dataset: Dataset,
    shown: Recommendations,
    limits: Sequence[ResolvedLimit] = (),
    *,
    ks: Sequence[int] = (5, 10, 20),
    alpha_prime: float = 1.0,
    name: str = UNNAMED,
    notes: ItemNotes = NO_NOTES,
) -> AuditResult:
    """Measure what was shown against the test items and the item groups of the data.

    limits: measured on everything that was shown; a list has as many places as the longest.
    notes: providers and titles of the items, where they are known.

    The protocol is `standard` if no user is shown an item of their own history, else `paper`.
    """
    if not 0 <= alpha_prime <= 1:
        raise ConfigError(f"alpha' = {alpha_prime} is not a share (give one between 0 and 1)")
    ks = sorted(ks)
    counts = count(dataset, shown, ks)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    showings = showings_of(shown)
    reached = tuple(limit_reached(one, showings) for one in limits)
    row = EvaluationRow(
        dataset.split.name,
        name,
        Protocol.PAPER if counts.from_history else Protocol.STANDARD,
        Mode.ONE_SHOT,
        None,
        alpha_prime,
        metrics_of(dataset, shown, exposure, ks, alpha_prime),
        dataset.group_name,
        limits=reached,
    )
    over, under = most_changed(exposure, dataset)
    return AuditResult(
        row,
        counts,
        exposure,
        dataset.split.train.item_counts(),
        dataset.sensitive,
        exposure_by_group(exposure, dataset),
        exposure_of_items(over, exposure, dataset, notes),
        exposure_of_items(under, exposure, dataset, notes),
        verdicts_of(reached, families_of(limits)),
        NO_RANKS if shown.is_log else exposure_by_rank(dataset, showings, limits),
        notes.provider_column,
        exposure_of_providers(dataset, shown, notes),
    )


def showings_of(shown: Recommendations) -> Showings:
    """All showings with their places."""
    return Showings(shown.users, shown.places(), shown.items, int(shown.per_user().max()))


def count(dataset: Dataset, shown: Recommendations, ks: Sequence[int]) -> AuditCounts:
    """The counts that the metrics are based on."""
    parts, per_user = dataset.split, shown.per_user()
    served = per_user > 0
    return AuditCounts(
        kind="impressions" if shown.is_log else "lists",
        order=shown.order,
        users=shown.n_users,
        users_without_list=int((~served).sum()),
        users_measured=int((served & (parts.test.user_counts() > 0)).sum()),
        shown=len(shown),
        from_history=int(in_history(shown, parts).sum()),
        shorter_lists={k: int((served & (per_user < k)).sum()) for k in ks},
        unknown_rows=shown.oddities.unknown,
        duplicate_rows=shown.oddities.duplicates,
        negative_ranks=shown.oddities.negative_ranks,
        skipped_ranks=shown.oddities.skipped_ranks,
        gapped_lists=shown.oddities.gapped_lists,
    )


def metrics_of(
    dataset: Dataset,
    shown: Recommendations,
    exposure: NDArray[np.int64],
    ks: Sequence[int],
    alpha_prime: float,
) -> dict[str, float]:
    """The metrics of an evaluation; for an impression log also those of all impressions."""
    served, groups = shown.per_user() > 0, dataset.sensitive
    relevant, lists = relevance(dataset.split.test)[served], shown.first(max(ks))[served]
    metrics = summarise(lists, relevant, groups, ks=ks, alpha_prime=alpha_prime)
    if shown.is_log:
        lists = shown.distinct().first(max(ks))[served]
        distinct = summarise(lists, relevant, groups, ks=ks, alpha_prime=alpha_prime)
        metrics |= {f"{name}@{k}": distinct[f"{name}@{k}"] for k in ks for name in ACCURACY}
        metrics |= exposure_of_all(exposure, groups)
    return metrics


def exposure_of_all(exposure: NDArray[np.int64], sensitive: NDArray[np.bool_]) -> dict[str, float]:
    """The metrics of exposure that need no K, over every impression."""
    values = {
        "gini": gini(exposure),
        "popularity_rate": float(exposure[sensitive].sum() / exposure.sum()),
        "coverage": coverage(exposure),
        "exposure_ratio": exposure_ratio(exposure, sensitive),
        "demographic_parity_gap": demographic_parity_gap(exposure, sensitive),
        "worst_off": worst_off_share(exposure, sensitive),
    }
    return {f"{name}@{ALL}": value for name, value in values.items()}


def in_history(shown: Recommendations, parts: Split) -> NDArray[np.bool_]:
    """Which rows show an item that the user took before the test items, (n,)."""
    past = (parts.train, parts.validation)
    known = np.concatenate([part.users * part.n_items + part.items for part in past])
    return np.isin(shown.users * parts.train.n_items + shown.items, known)


def exposure_by_group(exposure: NDArray[np.int64], dataset: Dataset) -> tuple[GroupExposure, ...]:
    """G0 and G1: their shares of the catalogue, of the training log and of what is shown."""
    training = dataset.split.train.item_counts()
    return tuple(
        GroupExposure(
            group,
            int(inside.sum()),
            float(inside.mean()),
            float(shares(training)[inside].sum()),
            float(shares(exposure)[inside].sum()),
            float(exposure[inside].mean()) if inside.any() else math.nan,
        )
        for group, inside in (("G0", dataset.sensitive), ("G1", ~dataset.sensitive))
    )


def most_changed(
    exposure: NDArray[np.int64], dataset: Dataset, n: int = MOST
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The n items that are shown most beyond their share of the training log, and most below it."""
    change = shares(exposure) - shares(dataset.split.train.item_counts())
    over, under = np.argsort(-change, kind="stable")[:n], np.argsort(change, kind="stable")[:n]
    return over[change[over] > 0], under[change[under] < 0]


def exposure_of_items(
    items: NDArray[np.int64],
    exposure: NDArray[np.int64],
    dataset: Dataset,
    notes: ItemNotes = NO_NOTES,
) -> tuple[ItemExposure, ...]:
    """The exposure of single items, with their original ids and titles."""
    of_training, of_exposure = shares(dataset.split.train.item_counts()), shares(exposure)
    return tuple(
        ItemExposure(
            str(dataset.log.item_ids[item]),
            "G0" if dataset.sensitive[item] else "G1",
            int(exposure[item]),
            float(of_exposure[item]),
            float(of_training[item]),
            notes.title(int(item)),
        )
        for item in items
    )
