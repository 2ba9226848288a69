"""How good and how fair lists are."""

from fairhorizon.evaluation.short_term import Mode, Recommender, Result, evaluate

__all__ = ["Mode", "Recommender", "Result", "evaluate"]
