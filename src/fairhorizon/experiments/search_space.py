"""The search space of Optuna, made from the `Search` and `Choice` marks of the settings."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fairhorizon.agents.base import Recommender
from fairhorizon.experiments.search_ranges import searched
from fairhorizon.settings import Choice, Given, Settings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def search_space(model: Recommender, given: Given) -> "dict[str, BaseDistribution]":
    """The range of each setting, by dotted name, without those that are given."""
    fixed = dotted(given)
    return {name: where for name, where in _ranges(model.settings) if name not in fixed}


def _ranges(config: Settings) -> "Iterator[tuple[str, BaseDistribution]]":
    from optuna import distributions

    for name, mark in searched(config):
        if isinstance(mark, Choice):
            yield name, distributions.CategoricalDistribution(mark.values)
        elif isinstance(mark.low, int) and isinstance(mark.high, int):
            yield name, distributions.IntDistribution(mark.low, mark.high, log=mark.log)
        else:
            yield name, distributions.FloatDistribution(mark.low, mark.high, log=mark.log)


def defaults(model: Recommender, space: "Mapping[str, BaseDistribution]") -> dict[str, Any]:
    """The current settings, as far as they lie within the space."""
    values = dotted(model.settings.model_dump())
    return {name: values[name] for name, where in space.items() if _holds(where, values[name])}


def _holds(where: "BaseDistribution", value: Any) -> bool:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(where, CategoricalDistribution):
        return value in where.choices
    assert isinstance(where, FloatDistribution | IntDistribution)
    return value is not None and where.low <= value <= where.high


def dotted(settings: Given, prefix: str = "") -> dict[str, Any]:
    """{"pmf": {"l2": 1}} -> {"pmf.l2": 1}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        flat |= dotted(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return flat


def nested(settings: Given) -> dict[str, Any]:
    """{"pmf.l2": 1} -> {"pmf": {"l2": 1}}."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        target = tree
        for step in path:
            target = target.setdefault(step, {})
        target[last] = value
    return tree


def merged(first: Given, second: Given) -> dict[str, Any]:
    return nested(dotted(first) | dotted(second))
