"""Serving under a limit that counts showings by place or by list."""

from fairhorizon.agents.base import Levels, Recommender
from fairhorizon.agents.methods import Method
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.limits import Limit
from fairhorizon.rerank.lists import ListAllocation


def serves_counting(method: Method) -> bool:
    """Whether the method can keep a limit as it counts: those with the joint allocation."""
    abilities = method.abilities
    aims = abilities.aims_at_level and abilities.levels is Levels.SERVED
    return aims or method.reranker == ListAllocation.method


def served_under(model: Recommender, limit: Limit) -> Recommender:
    """The fitted model serving under the limit."""
    raise ConfigError(f"{model.method} cannot serve under {limit} yet")
