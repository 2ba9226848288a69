"""Our method against its rivals under the same limits, user by user."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.agents.methods import Method, rankers_of
from fairhorizon.experiments.levels import Standing, aims_at_level, ndcg_per_user, study_under
from fairhorizon.experiments.study import Study
from fairhorizon.metrics.significance import holm, paired_difference, paired_t_test
from fairhorizon.results.spread import finite
from fairhorizon.results.studies import GainRow, LevelRow, OverSeeds

Found = tuple[Standing, LevelRow]


def gains(
    study: Study, found: Sequence[Standing], rows: Sequence[LevelRow], seeds: Sequence[int]
) -> list[GainRow]:
    """Ours against the best rival under each limit, and against itself without CPO rounds.

    rows: as `level_rows` makes them. Tests and intervals are paired over users, with the mean NDCG
    over the seeds; Holm's correction is for all lines together.
    """
    pairs = list(zip(found, rows, strict=True))
    compared = []
    for ours in pairs:
        if not ours[1].ours or not ours[1].metrics:
            continue
        rivals = [pair for pair in pairs if pair[1].limit == ours[1].limit and not pair[1].ours]
        rivals = [rival for rival in rivals if rival[1].metrics]
        parts = parts_of(study, ours[0].method)
        same = any(parts <= parts_of(study, rival[0].method) for rival in rivals)
        for rival in rivals:
            without_cpo = is_without_cpo(study, rival[0].method, ours[0].method)
            if rival[1].best_rival or without_cpo:
                values = [_per_user(study, one, seeds) for one in (ours[0], rival[0])]
                gain = _gain(ours[1], rival[1], (values[0], values[1]), max(study.ks))
                compared.append(replace(gain, without_cpo=without_cpo, same_parts=same))
    compared = [gain for gain in compared if not np.isnan(gain.ndcg + gain.rival_ndcg)]
    corrected = holm([np.nan if one.t_test is None else one.t_test for one in compared])
    return [
        replace(row, t_test_corrected=finite(value))
        for row, value in zip(compared, corrected, strict=True)
    ]


def parts_of(study: Study, method: Method) -> frozenset[str]:
    """The rankers that a method is made of with the settings of the study."""
    return rankers_of(study.build(method, seed=0))


def is_without_cpo(study: Study, rival: Method, ours: Method) -> bool:
    """Whether a rival is our method as it is before its first CPO round."""
    return (
        aims_at_level(rival)
        and not rival.abilities.learns
        and rival.base == ours.base
        and parts_of(study, rival) == parts_of(study, ours)
    )


def _per_user(study: Study, one: Standing, seeds: Sequence[int]) -> NDArray[np.float64]:
    return ndcg_per_user(study_under(study, one.method, one.limit), one.settings, seeds)


def _gain(
    row: LevelRow,
    rival: LevelRow,
    per_user: tuple[NDArray[np.float64], NDArray[np.float64]],
    k: int,
) -> GainRow:
    """NDCG is NaN where there is none: no user has test items."""
    means = (one.spread(f"ndcg@{k}").mean for one in (row, rival))
    own, theirs = (np.nan if mean is None else mean for mean in means)
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
