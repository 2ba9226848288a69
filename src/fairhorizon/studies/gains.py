"""Our method against its rivals under the same limits, user by user."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.methods import Method
from fairhorizon.metrics.significance import holm, paired_difference, paired_t_test
from fairhorizon.metrics.spread import finite
from fairhorizon.studies.rows import GainRow, LevelRow, OverSeeds
from fairhorizon.studies.standing import Found, NdcgOf, Standing, aims_at_level, best_rivals

PartsOf = Callable[[Method], frozenset[str]]  # the rankers that a method is made of


def gains(
    found: Sequence[Standing], rows: Sequence[LevelRow], ndcg_of: NdcgOf, parts_of: PartsOf, k: int
) -> list[GainRow]:
    """Ours against rivals under each limit: the best, and itself without CPO rounds.

    Where the best is itself without CPO rounds, the best of all others is a line too. rows: as
    `level_rows` makes them. Tests and intervals are paired over users, with the mean NDCG over the
    seeds; Holm's correction is for all lines together.
    """
    pairs = list(zip(found, rows, strict=True))
    compared = [
        line
        for one, row in pairs
        if row.ours and row.spread(f"ndcg@{k}").mean is not None
        for line in _lines((one, row), pairs, ndcg_of, parts_of, k)
    ]
    corrected = holm([np.nan if one.t_test is None else one.t_test for one in compared])
    return [
        replace(row, t_test_corrected=finite(value))
        for row, value in zip(compared, corrected, strict=True)
    ]


def _lines(
    ours: Found, pairs: Sequence[Found], ndcg_of: NdcgOf, parts_of: PartsOf, k: int
) -> list[GainRow]:
    """The best rival first."""
    limit, parts = ours[1].limit, parts_of(ours[0].method)
    rivals = [
        pair for pair in pairs if pair[1].limit == limit and not pair[1].ours and pair[1].metrics
    ]
    same_parts = any(parts <= parts_of(rival.method) for rival, _ in rivals)
    starts = [pair for pair in rivals if is_without_cpo(pair[0].method, ours[0].method, parts_of)]
    chosen = best_rivals(pairs, limit, k)
    chosen += [pair for pair in starts if pair not in chosen]
    lines = []
    for rival in chosen:
        line = _gain(ours[1], rival[1], (ndcg_of(ours[0]), ndcg_of(rival[0])), k)
        lines.append(replace(line, without_cpo=rival in starts, same_parts=same_parts))
    return lines


def is_without_cpo(rival: Method, ours: Method, parts_of: PartsOf) -> bool:
    """Whether a rival is our method as it is before its first CPO round."""
    return (
        aims_at_level(rival)
        and not rival.abilities.learns
        and rival.base == ours.base
        and parts_of(rival) == parts_of(ours)
    )


def _gain(
    row: LevelRow,
    rival: LevelRow,
    per_user: tuple[NDArray[np.float64], NDArray[np.float64]],
    k: int,
) -> GainRow:
    own, theirs = row.spread(f"ndcg@{k}").mean, rival.spread(f"ndcg@{k}").mean
    assert own is not None  # nor is that of the best rival and of the same without CPO rounds
    assert theirs is not None
    p_value, difference = finite(paired_t_test(*per_user)), paired_difference(*per_user)
    return GainRow(
        level=row.level,
        limit=row.limit,
        counting=row.counting,
        method=row.method,
        rival=rival.method,
        best_rival=rival.best_rival,
        without_cpo=False,
        same_parts=False,
        ndcg=own,
        rival_ndcg=theirs,
        gain=own / theirs - 1 if theirs else None,
        difference=finite(difference.mean),
        low=finite(difference.low),
        high=finite(difference.high),
        gini_difference=_difference(row, rival, f"gini@{k}"),
        rate_difference=_difference(row, rival, f"popularity_rate@{k}"),
        users=int((~np.isnan(per_user[0])).sum()),
        t_test=p_value,
        t_test_corrected=p_value,  # of one test
    )


def _difference(row: OverSeeds, other: OverSeeds, metric: str) -> float | None:
    own, theirs = row.spread(metric).mean, other.spread(metric).mean
    return None if own is None or theirs is None else own - theirs
