"""Serving under a limit that counts showings by place or by list."""

from dataclasses import replace

from fairhorizon.agents.base import Recommender
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.limits import Limit


def served_under(model: Recommender, counting: Limit, share: float | None) -> Recommender:
    """The fitted model at this share of its own group, counted as by the limit."""
    limit = counting if share is None else replace(counting, share=share)
    return model.under([BoundLimit(limit, model.sensitive_.cpu().numpy())])
