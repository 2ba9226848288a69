"""How good and how fair lists are, at once and over a long run."""

from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.evaluation.short_term import Mode, Recommender, Result, evaluate

__all__ = ["LongRun", "LongRunSettings", "Mode", "Recommender", "Result", "evaluate"]
