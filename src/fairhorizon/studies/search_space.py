"""The search space of Optuna, made from the `Search` and `Choice` marks of the settings."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fairhorizon.recommenders.base import Recommender
from fairhorizon.settings import Choice, Given, Settings
from fairhorizon.studies.search_ranges import searched

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
            values = tuple(map(as_proposed, mark.values))
            yield name, distributions.CategoricalDistribution(values)
        elif isinstance(mark.low, int) and isinstance(mark.high, int):
            yield name, distributions.IntDistribution(mark.low, mark.high, log=mark.log)
        else:
            yield name, distributions.FloatDistribution(mark.low, mark.high, log=mark.log)


def defaults(model: Recommender, space: "Mapping[str, BaseDistribution]") -> dict[str, Any]:
    """The current settings, as far as they lie within the space."""
    current = dotted(model.settings.model_dump())
    values = {name: as_proposed(value) for name, value in current.items()}
    return {name: values[name] for name, where in space.items() if _holds(where, values[name])}


def _holds(where: "BaseDistribution", value: Any) -> bool:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(where, CategoricalDistribution):
        return value in where.choices
    assert isinstance(where, FloatDistribution | IntDistribution)
    return value is not None and where.low <= value <= where.high


def as_proposed(value: Any) -> Any:
    """A value as Optuna stores it, which takes no lists: these as JSON."""
    return json.dumps(value) if isinstance(value, tuple | list) else value


def as_set(value: Any) -> Any:
    """A value as it is set; the reverse of `as_proposed`."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def dotted(settings: Given, prefix: str = "") -> dict[str, Any]:
    """{"pmf": {"l2": 1}} -> {"pmf.l2": 1}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        flat |= dotted(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return flat


def nested(settings: Given) -> dict[str, Any]:
    """{"pmf.l2": 1} -> {"pmf": {"l2": 1}}; lists as they are set."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        target = tree
        for step in path:
            target = target.setdefault(step, {})
        target[last] = as_set(value)
    return tree


def merged(first: Given, second: Given) -> dict[str, Any]:
    return nested(dotted(first) | dotted(second))
