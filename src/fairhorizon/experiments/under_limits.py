"""Serving under a limit that counts showings by place or by list."""

from dataclasses import replace

from fairhorizon.agents.base import Recommender
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.limits import Limit


def served_under(model: Recommender, counting: Limit, share: float | None) -> Recommender:
    """The fitted model at this share, counted as by the limit."""
    limit = counting if share is None else replace(counting, share=share)
    raise ConfigError(f"{model.method} cannot serve under {limit} yet")
