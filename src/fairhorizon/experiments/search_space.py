"""Where settings are searched: as `Search` and `Choice` beside each setting say."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fairhorizon.agents.methods import Given, Model
from fairhorizon.agents.ranked.model import Ranked
from fairhorizon.settings import Choice, Search, Settings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def search_space(model: Model, given: Given) -> "dict[str, BaseDistribution]":
    """Where each setting is looked for, by dotted name, without those that are given."""
    fixed = dotted(given)
    return {name: where for name, where in _ranges(config_of(model)) if name not in fixed}


def config_of(model: Model) -> Settings:
    return model.ranker.config if isinstance(model, Ranked) else model.config


def _ranges(config: Settings, prefix: str = "") -> "Iterator[tuple[str, BaseDistribution]]":
    from optuna import distributions

    for name, entry in type(config).model_fields.items():
        inner = getattr(config, name)
        if isinstance(inner, Settings):
            yield from _ranges(inner, f"{prefix}{name}.")
        for mark in entry.metadata:
            if isinstance(mark, Choice):
                values = tuple(value for value in mark.values if _goes_with(config, name, value))
                yield prefix + name, distributions.CategoricalDistribution(values)
            elif isinstance(mark, Search):
                # a preset may lie outside of where one would look: the first trial is the preset
                ends = [mark.low, mark.high] if inner is None else [mark.low, mark.high, inner]
                if entry.annotation is int:
                    low, high = int(min(ends)), int(max(ends))
                    yield prefix + name, distributions.IntDistribution(low, high, log=mark.log)
                else:
                    where = distributions.FloatDistribution(min(ends), max(ends), log=mark.log)
                    yield prefix + name, where


def _goes_with(config: Settings, name: str, value: Any) -> bool:
    """Whether a setting can have the value beside the other settings as they are."""
    try:
        type(config).model_validate({**config.model_dump(), name: value})
    except ValueError:
        return False
    return True


def defaults(model: Model, space: "Mapping[str, BaseDistribution]") -> dict[str, Any]:
    """The present settings, as far as they lie within the space."""
    values = dotted(config_of(model).model_dump())
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
