"""Recommendation as a Constrained Markov Decision Process."""

from fairhorizon.environment.dynamics import (
    Feedback,
    Outcome,
    State,
    advance,
    alpha_prime,
    cost_limit,
    parity_alpha,
)
from fairhorizon.environment.exposure import Churn, Exposure
from fairhorizon.environment.feedback import (
    LoggedFeedback,
    Scenario,
    evaluation_scenario,
    random_cuts,
    serving_scenario,
    training_scenario,
    validation_scenario,
)
from fairhorizon.protocol import Protocol

__all__ = [
    "Churn",
    "Exposure",
    "Feedback",
    "LoggedFeedback",
    "Outcome",
    "Protocol",
    "Scenario",
    "State",
    "advance",
    "alpha_prime",
    "cost_limit",
    "evaluation_scenario",
    "parity_alpha",
    "random_cuts",
    "serving_scenario",
    "training_scenario",
    "validation_scenario",
]
