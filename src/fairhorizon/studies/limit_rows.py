"""What the methods of a study made of limits: a row per limit and method, over seeds."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.reached import LimitRow
from fairhorizon.methods import Method
from fairhorizon.studies.level_limits import group_of
from fairhorizon.studies.standing import Standing
from fairhorizon.studies.study import Study


def study_limits(study: Study, methods: Sequence[Method], seeds: Sequence[int]) -> list[LimitRow]:
    """The limits of a study, measured on its lists; all results must be there."""
    return [
        _over_seeds(study, str(method), [method] * len(seeds), seeds, one)
        for one in study.limits
        for method in methods
    ]


def level_limits(
    study: Study,
    found: Sequence[Standing],
    seeds: Sequence[int],
    where: Callable[[Study, Method, Limit], Study],
) -> Iterator[LimitRow]:
    """Of a study of levels: each method under its limit; nothing is reached if no setting keeps it.

    where: the study that has the results of a method for a limit, `levels.study_under`.
    """
    for one in found:
        settings = [setting for setting in one.settings if setting is not None]
        if len(settings) < len(seeds):
            yield LimitRow(
                method=one.method.name,
                seeds=tuple(seeds),
                limit=str(one.limit),
                asked=one.limit.share,
                is_floor=one.limit.is_floor,
                reached=None,
                kept=False,
                n_lists=0,
            )
        else:
            bound = BoundLimit(one.limit, study.dataset().sensitive)
            own = where(study, one.method, one.limit)
            yield _over_seeds(own, one.method.name, settings, seeds, bound)


def _over_seeds(
    study: Study, name: str, settings: Sequence[Method], seeds: Sequence[int], bound: BoundLimit
) -> LimitRow:
    """settings: the method with its level, by seed."""
    found = []
    for method, seed in zip(settings, seeds, strict=True):
        prices = _prices(study, method, seed, bound.limit)
        found.append(limit_reached(bound, study.lists(method, seed), prices))
    return LimitRow.of(name, seeds, found)


def _prices(study: Study, method: Method, seed: int, limit: Limit) -> Mapping[str, float]:
    """The prices of a result; a level is called that of popular items whatever the group is."""
    prices = study.made(method, seed).prices
    level = str(Limit.popular(limit.share))
    if limit.is_plain and not limit.is_floor and limit.group == group_of(study.data):
        return {**prices, str(limit): prices[level]} if level in prices else prices
    return prices
