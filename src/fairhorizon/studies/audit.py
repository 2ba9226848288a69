"""An audit of the lists of any system: how accurate and how fair they are.

Users without a list are counted, and left out of all averages: accuracy is the mean over users that
have a list and test items, the exact-K violation is a share of the lists there are.
In an impression log every impression is exposure, also that of an item seen before; accuracy is
measured on the first K distinct items.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.atomic_files import columns_beside
from fairhorizon.data.interactions import Interactions, MissingValuesWarning
from fairhorizon.data.loading import is_named, item_columns
from fairhorizon.data.log_files import first_file
from fairhorizon.data.recommendations import ListColumns, Recommendations, read_recommendations
from fairhorizon.data.splits import Split
from fairhorizon.data.tables import columns_of, title_among
from fairhorizon.datasets import DataPlace, Dataset, DataSpec, item_attribute
from fairhorizon.errors import ConfigError, DataError, NoColumnError
from fairhorizon.evaluation.short_term import EvaluationRow, measured_lists
from fairhorizon.limits.groups import attribute_values, values_of_items
from fairhorizon.limits.measured import Showings, Verdict, families_of, limit_reached, verdicts_of
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.fairness import (
    coverage,
    demographic_parity_gap,
    exposure_ratio,
    gini,
    worst_off_share,
)
from fairhorizon.metrics.spread import strict_json
from fairhorizon.metrics.summary import ACCURACY, OF_HITS, summarise
from fairhorizon.studies.rows import SampleLists, sample_items, typical_user
from fairhorizon.vocabulary import Mode, Protocol

UNNAMED = "audit"  # the name of an audited system without a name
ALL = "all"  # in place of K: every impression of a log
MOST = 10  # items that gain and that lose most
RANKS = 50  # reported one by one
OTHER = "other"
SAMPLED = 10  # places of the lists of one user


# ---- Providers and titles: who is behind the items that were shown -------------------------------


@dataclass(frozen=True, eq=False)
class ItemNotes:
    """What a table says of items beside the groups of limits."""

    provider_column: str = ""
    providers: NDArray[Any] | None = None  # (n_items,) text; "A|B" are two providers
    titles: NDArray[Any] | None = None  # (n_items,) text, empty where there is none

    def title(self, item: int) -> str:
        return "" if self.titles is None else str(self.titles[item])


NO_NOTES = ItemNotes()


def item_notes(
    data: DataSpec,
    item_table: str | None,
    cache_dir: Path | None,
    *,
    providers: str | None = None,
    title: str | None = None,
) -> ItemNotes:
    """What the audit may say of items beside their groups.

    providers: the column whose values are the providers of an item; None: they are not reported.
    title: the column with titles; None: it is found by its usual name, if there is one.
    """
    owners = None if providers is None else _cells(data, item_table, providers, cache_dir)
    titles = None
    if title is not None:
        titles = _cells(data, item_table, title, cache_dir, is_complete=False)
    elif (found := title_among(_columns(data, item_table))) is not None:
        try:
            titles = item_attribute(data, item_table, found, cache_dir, is_complete=False)
        except DataError as error:
            # Nobody asked for titles: a named set whose table cannot be had is audited without.
            fault = f"items are shown without titles: {error}"
            warnings.warn(fault, MissingValuesWarning, stacklevel=2)
    return ItemNotes(providers or "", owners, titles)


def _cells(
    data: DataSpec,
    item_table: str | None,
    column: str,
    cache_dir: Path | None,
    *,
    is_complete: bool = True,
) -> NDArray[Any]:
    """Of the table if it has the column, else of the log."""
    try:
        return item_attribute(data, item_table, column, cache_dir, is_complete)
    except NoColumnError:
        if item_table is None:
            raise
    try:
        return item_attribute(data, None, column, cache_dir)
    except NoColumnError as error:
        columns = (*_columns(data, item_table), *error.columns)
        remedy = f"neither the table nor the log has it; the columns are {', '.join(columns)}"
        raise NoColumnError(column, columns, file=item_table, remedy=remedy) from None


def _columns(data: DataSpec, item_table: str | None) -> list[str]:
    """The columns that may describe items."""
    if item_table is not None:
        return columns_of(item_table, encoding=data.encoding)
    if is_named(data.source):
        return list(item_columns(data.source))
    in_log = columns_of(
        first_file(data.source),
        header=data.header,
        separator=data.separator,
        encoding=data.encoding,
    )
    return [*in_log, *columns_beside(data.source, data.encoding)]


@dataclass(frozen=True)
class ProviderExposure:
    """What the items of a provider, such as a seller, are shown; shares of all."""

    provider: str
    items: int
    shown: int
    of_exposure: float
    from_training: float
    of_catalogue: float
    best_rank: int | None  # of its items in any list; None: never shown, or no lists

    @property
    def ratio(self) -> float:
        """Exposure by share of the training log; NaN of providers that it does not have."""
        return self.of_exposure / self.from_training if self.from_training else math.nan


def exposure_of_providers(
    dataset: Dataset, shown: Recommendations, notes: ItemNotes
) -> tuple[ProviderExposure, ...]:
    """Every provider that has items, the one with least exposure for its share of the log first.

    Of providers with the same ratio, the one with more of the log is first. Those that the training
    log does not have come last. An item of two providers counts for both.
    """
    if notes.providers is None:
        return ()
    cells = values_of_items(notes.providers)
    names = attribute_values(notes.providers)
    code_of = {name: code for code, name in enumerate(names)}
    # A row per pair of an item and one of its providers: an item of two counts for both.
    items = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    owners = np.array([code_of[name] for cell in cells for name in sorted(cell)], dtype=np.int64)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    training = dataset.split.train.item_counts()

    def summed(of_items: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(owners, weights=of_items[items], minlength=len(names))
        return sums.astype(np.float64)

    # The best place of any showing of the item, then of any item of the provider.
    best = np.full(dataset.log.n_items, np.iinfo(np.int64).max)
    np.minimum.at(best, shown.items, shown.places())
    best_of = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(best_of, owners, best[items])
    columns = zip(
        names,
        np.bincount(owners, minlength=len(names)).tolist(),
        summed(exposure).tolist(),
        summed(shares(exposure)).tolist(),
        summed(shares(training)).tolist(),
        best_of.tolist(),
        strict=True,
    )
    rows = [
        ProviderExposure(
            *(name, n, int(showings), of_exposure, from_training, n / dataset.log.n_items),
            best_rank=rank + 1 if showings and not shown.is_log else None,
        )
        for name, n, showings, of_exposure, from_training, rank in columns
    ]
    return tuple(sorted(rows, key=_worst_off_first))


def _worst_off_first(one: ProviderExposure) -> tuple[float, float, str]:
    return (math.inf if math.isnan(one.ratio) else one.ratio, -one.from_training, one.provider)


def shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of the total; zeros if the total is zero."""
    return counts / counts.sum() if counts.any() else np.zeros(len(counts))


# ---- The audit -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditCounts:
    """The numbers of users and rows behind the metrics of an audit."""

    kind: str  # lists or impressions
    order: str  # the order of a user's showings
    users: int  # of the data
    users_without_list: int
    users_measured: int  # with a list and with test items
    shown: int  # rows, repeats included
    from_history: int  # of those, items that the user had taken before the test items
    shorter_lists: dict[int, int]  # by K
    unknown_rows: int  # left out
    duplicate_rows: int = 0  # same as an earlier row; left out, but in a log by time
    negative_ranks: int = 0  # rows; the smallest rank is on top
    skipped_ranks: int = 0  # places that no item has; lists close up
    gapped_lists: int = 0  # lists with such places

    @property
    def from_history_share(self) -> float:
        return self.from_history / self.shown

    @property
    def lists(self) -> int:
        return self.users - self.users_without_list

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"from_history_share": self.from_history_share}


@dataclass(frozen=True)
class GroupExposure:
    """The size and the exposure of a group of items; shares of all."""

    group: str  # G0 or G1
    items: int
    of_catalogue: float
    from_training: float
    of_exposure: float
    per_item: float  # NaN in an empty group


@dataclass(frozen=True)
class ItemExposure:
    """How often an item was shown, and its shares of all showings and of the training log."""

    item: str
    group: str  # G0 or G1
    shown: int
    of_exposure: float
    from_training: float
    title: str = ""  # of the item, where a table of items has one

    @property
    def change(self) -> float:
        return self.of_exposure - self.from_training


@dataclass(frozen=True)
class RankExposure:
    """The share that a group has of the showings at each rank."""

    group: str
    of_exposure: float  # at all ranks
    shares: tuple[float, ...]  # at ranks 1, 2, ...


@dataclass(frozen=True)
class ByRank:
    """What each group has of the lists, place by place; empty of an impression log."""

    showings: tuple[int, ...] = ()  # at ranks 1, 2, ...: of lists that are so long
    groups: tuple[RankExposure, ...] = ()

    def share(self, group: RankExposure, first: int, last: int) -> float:
        """The share of the group at the ranks from first to last; NaN where nothing is shown."""
        showings = self.showings[first - 1 : last]
        pairs = zip(group.shares[first - 1 : last], showings, strict=True)
        total = sum(showings)
        return sum(share * n for share, n in pairs) / total if total else math.nan


NO_RANKS = ByRank()


@dataclass(frozen=True)
class AuditResult:
    """An audit: its metrics, the counts behind them, and the exposure of groups and items."""

    row: EvaluationRow
    counts: AuditCounts
    exposure: NDArray[np.int64]  # (n_items,) how often each item was shown
    training: NDArray[np.int64]  # (n_items,) how often each item is in the training log
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    groups: tuple[GroupExposure, ...]  # G0, G1
    most_over: tuple[ItemExposure, ...]  # shown most beyond their share of the training log
    most_under: tuple[ItemExposure, ...]  # shown most below it
    verdicts: tuple[Verdict, ...] = ()  # on the limits
    by_rank: ByRank = NO_RANKS
    provider_column: str = ""
    providers: tuple[ProviderExposure, ...] = ()  # the worst-off first
    sample: SampleLists | None = None  # what one user took before and was shown

    @property
    def has_accuracy(self) -> bool:
        """Whether any list shows what its user took in the test part.

        Lists that were made after the whole log cannot.
        """
        found = (value for name, value in self.row.metrics.items() if name.startswith("recall@"))
        return any(value > 0 for value in found)

    @property
    def is_named(self) -> bool:
        """Whether the system was given a name."""
        return self.row.method != UNNAMED

    def to_json(self) -> dict[str, Any]:
        """The verdicts, the row and its counts, ranks and providers; without single items."""
        content: dict[str, Any] = {}
        if self.verdicts:
            content["verdicts"] = [one.to_json() for one in self.verdicts]
        content["rows"] = [self.row.to_json() | {"counts": self.counts.to_json()}]
        if self.by_rank.groups:
            content["by_rank"] = strict_json(asdict(self.by_rank))
        if self.provider_column:
            content["provider_column"] = self.provider_column
            rows = [asdict(one) | {"ratio": one.ratio} for one in self.providers]
            content["providers"] = strict_json(rows)
        return content


def audit(
    dataset: Dataset,
    shown: Recommendations,
    limits: Sequence[ResolvedLimit] = (),
    *,
    ks: Sequence[int] = (5, 10, 20),
    alpha_prime: float = 1.0,
    name: str = UNNAMED,
    notes: ItemNotes = NO_NOTES,
    metrics: Sequence[str] = (),
    attribute: Callable[[str], NDArray[Any]] | None = None,
) -> AuditResult:
    """Measure what was shown against the test items and the item groups of the data.

    limits: measured on everything that was shown; a list has as many places as the longest.
    notes: providers and titles of the items, where they are known.
    metrics: names of metrics in addition to those of every evaluation.
    attribute: gives the cells of a column that such a metric names; None: those of the log.

    The protocol is `standard` if no user is shown an item of their own history, else `paper`.
    """
    if not 0 <= alpha_prime <= 1:
        raise ConfigError(f"alpha' = {alpha_prime} is not a share (give one between 0 and 1)")
    ks = sorted(ks)
    counts = count(dataset, shown, ks)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    showings = showings_of(shown)
    reached = tuple(limit_reached(one, showings) for one in limits)
    # A log has no places: the first impression of a user's year is no first place of a list.
    if shown.is_log:
        reached = tuple(replace(one, at={}, weighed=None) for one in reached)
    row = EvaluationRow(
        dataset.split.name,
        name,
        Protocol.PAPER if counts.from_history else Protocol.STANDARD,
        Mode.ONE_SHOT,
        None,
        alpha_prime,
        metrics_of(dataset, shown, exposure, ks, alpha_prime, metrics, attribute),
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
        sample_of(dataset, shown, limits, notes),
    )


def sample_of(
    dataset: Dataset, shown: Recommendations, limits: Sequence[ResolvedLimit], notes: ItemNotes
) -> SampleLists:
    """A typical user: what they took last, before the test part, and what they were shown.

    Items are marked that are in the group of the first limit on one, else in that of the data.
    """
    group, members = dataset.group_name, dataset.sensitive
    # The Gini index has no group to mark.
    for one in (one for one in limits if not one.limit.is_gini):
        group, members = str(one.limit.group), one.members
        break
    lists = shown.first(min(SAMPLED, int(shown.per_user().max())))
    user = typical_user(lists, members)
    parts = (dataset.split.train, dataset.split.validation)
    # Training items come before the validation item; reversed, the latest comes first.
    taken = np.concatenate([part.items[part.users == user] for part in parts])[::-1]
    items, titles = dataset.log.item_ids, notes.titles
    return SampleLists(
        str(dataset.log.user_ids[user]),
        ("Took before, the latest first", "Was shown"),
        (
            sample_items(taken[: lists.shape[1]], items, titles, members),
            sample_items(lists[user], items, titles, members),
        ),
        group,
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
    further: Sequence[str] = (),
    attribute: Callable[[str], NDArray[Any]] | None = None,
) -> dict[str, float]:
    """The metrics of an evaluation; for an impression log also those of all impressions."""
    # Users without a list are left out of all averages, and reported as a count.
    served = np.flatnonzero(shown.per_user())

    def found(showings: Recommendations, further: Sequence[str]) -> dict[str, float]:
        lists = showings.first(max(ks))[served]
        measured = measured_lists(
            *(lists, dataset.split, dataset.sensitive, alpha_prime),
            attribute=attribute,
            users=served,
        )
        return summarise(measured, ks, further)

    metrics = found(shown, further)
    if shown.is_log:
        # Accuracy of a log: repeats would fill the first K places with what the user has seen
        # already.
        accuracy = [name for name in further if name in OF_HITS]
        distinct = found(shown.distinct(), accuracy)
        metrics |= {
            f"{name}@{k}": distinct[f"{name}@{k}"] for k in ks for name in (*ACCURACY, *accuracy)
        }
        metrics |= exposure_of_all(exposure, dataset.sensitive)
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
    # A pair of user and item as one number, for one lookup.
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
    # Two stable sorts, so that ties go to the smaller code on both sides.
    over, under = np.argsort(-change, kind="stable")[:n], np.argsort(change, kind="stable")[:n]
    return over[change[over] > 0], under[change[under] < 0]


def exposure_of_items(
    items: NDArray[np.int64],
    exposure: NDArray[np.int64],
    dataset: Dataset,
    notes: ItemNotes = NO_NOTES,
) -> tuple[ItemExposure, ...]:
    """The exposure of single items, with their original ids and titles."""
    from_training, of_exposure = shares(dataset.split.train.item_counts()), shares(exposure)
    return tuple(
        ItemExposure(
            str(dataset.log.item_ids[item]),
            "G0" if dataset.sensitive[item] else "G1",
            int(exposure[item]),
            float(of_exposure[item]),
            float(from_training[item]),
            notes.title(int(item)),
        )
        for item in items
    )


def exposure_by_rank(
    dataset: Dataset, showings: Showings, limits: Sequence[ResolvedLimit] = ()
) -> ByRank:
    """The share at each rank of the limited group, of all other items, and of each limit's group.

    A group that has the same items as an earlier one is left out.
    """
    groups = {dataset.group_name: dataset.sensitive, OTHER: ~dataset.sensitive}
    # By members and not by name: `popular` and a column that says the same are one line in the
    # chart.
    seen = {members.tobytes() for members in groups.values()}
    for one in limits:
        if not one.limit.is_gini and one.members.tobytes() not in seen:
            seen.add(one.members.tobytes())
            groups.setdefault(str(one.limit.group), one.members)
    length = min(RANKS, showings.length)
    counted = showings.places < length
    places, items = showings.places[counted], showings.items[counted]
    total = np.bincount(places, minlength=length)
    found = []
    for name, members in groups.items():
        inside = np.bincount(places[members[items]], minlength=length)
        shared = np.divide(inside, total, out=np.zeros(length), where=total > 0)
        everywhere = float(members[showings.items].mean())
        found.append(RankExposure(name, everywhere, tuple(shared.tolist())))
    return ByRank(tuple(total.tolist()), tuple(found))


@dataclass(frozen=True)
class ListFile:
    """A file of lists or impressions, and how it is read."""

    path: Path
    columns: ListColumns
    header: bool | None
    separator: str | None
    encoding: str
    ignore_unknown: bool

    def read(self, log: Interactions) -> Recommendations:
        """The showings, with the ids of the log."""
        return read_recommendations(
            self.path,
            log,
            self.columns,
            header=self.header,
            separator=self.separator,
            encoding=self.encoding,
            ignore_unknown=self.ignore_unknown,
        )


@dataclass(frozen=True)
class AuditTask:
    """Everything that `audit` is told."""

    place: DataPlace
    lists: ListFile
    limits: tuple[ResolvedLimit, ...]
    ks: tuple[int, ...]
    alpha_prime: float
    name: str
    notes: ItemNotes

    def prepare(self) -> None:
        self.place.dataset()

    def rows(self) -> Iterator[AuditResult]:
        """The one result."""
        dataset = self.place.dataset()
        shown = self.lists.read(dataset.log)
        yield audit(
            dataset,
            shown,
            self.limits,
            ks=self.ks,
            alpha_prime=self.alpha_prime,
            name=self.name,
            notes=self.notes,
        )
