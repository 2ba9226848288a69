"""Levels as limits: whose share is limited, how it is counted, and which share lists have."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.datasets import DataSpec
from fairhorizon.limits.language import POPULAR, GroupOf, Limit, LimitError
from fairhorizon.limits.limit_rules import rule_of
from fairhorizon.metrics.fairness import share_within_every_list, weighed_share
from fairhorizon.vocabulary import Scope, Weighing


def level_limit(share: float, data: DataSpec) -> Limit:
    """What a plain level is: at most this share of all showings for the group of the data."""
    return Limit(group_of(data), share)


def group_of(data: DataSpec) -> GroupOf:
    """The limited group of the data, as limits call it."""
    if data.group_column is None:
        return GroupOf(POPULAR)
    return GroupOf(data.group_column, data.sensitive_values)


def data_limited_by(limits: Iterable[Limit], data: DataSpec) -> DataSpec:
    """The data with the group that the limits are about; all limits must be about one group.

    A limit on a column names the group itself, where the data do not.
    """
    named: GroupOf | None = None
    for limit in limits:
        _check(limit)
        if limit.group == group_of(data):
            named = limit.group
            continue
        if limit.group.reserved or data.group_column is not None or named is not None:
            raise LimitError(
                f"{str(limit)!r}: the levels are those of {group_of(data)} (compare one group at a "
                "time)"
            )
        given = {"group_column": limit.group.column, "sensitive_values": limit.group.values}
        data = data.model_validate({**data.model_dump(), **given})
    return data


def _check(limit: Limit) -> None:
    """Refuse what no level can be."""
    if limit.is_gini or limit.is_floor:
        raise LimitError(f"{str(limit)!r}: a level is a largest share (give GROUP<=SHARE)")
    if limit.group.each or (limit.group.reserved and limit.group != GroupOf(POPULAR)):
        raise LimitError(f"{str(limit)!r}: a level is of one group (give popular or COLUMN=VALUE)")
    if limit.labels is not None:
        raise LimitError(
            f"{str(limit)!r}: groups do not move while lists are made (leave out labels)"
        )
    if limit.share <= 0:
        raise LimitError(f"{str(limit)!r}: a level is a share above 0")


def counting_of(limit: Limit) -> Limit:
    """The way of counting alone: the same for limits that differ in nothing but the share."""
    return replace(limit, share=1.0)


def by_counting(limits: Sequence[Limit]) -> dict[Limit, list[float]]:
    """The shares of the limits under each way of counting."""
    shares: dict[Limit, list[float]] = {}
    for limit in limits:
        shares.setdefault(counting_of(limit), []).append(limit.share)
    return shares


def counted_share(
    limit: Limit, lists: NDArray[np.int64], group: NDArray[np.bool_], k: int
) -> float:
    """The smallest share that the limit could have for these lists of length k to keep it."""
    places = k if limit.first is None else min(k, limit.first)
    if limit.scope is Scope.ALL:
        return weighed_share(lists, group, k, rule_of(limit).place_weights(k))
    return share_within_every_list(lists, group, places, prefixes=limit.scope is Scope.PREFIX)


def counting_words(limit: Limit) -> str:
    """How showings are counted, for a caption; empty where all count alike."""
    words = []
    match limit.scope:
        case Scope.LIST:
            words.append("per list")
        case Scope.PREFIX:
            words.append("per list and per prefix of it")
        case Scope.ALL:
            pass
    if limit.first is not None:
        words.append(f"of the first {limit.first} places")
    match limit.weighing:
        case Weighing.LOG:
            words.append("weighed by 1/log2(1 + place)")
        case Weighing.GIVEN:
            words.append(f"weighed by {', '.join(f'{weight:g}' for weight in limit.weights)}")
        case Weighing.NONE:
            pass
    return ", ".join(words)
