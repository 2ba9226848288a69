"""Recommendation as a Constrained Markov Decision Process."""

from fairhorizon.environment.constraints import (
    Constraint,
    GiniLimit,
    GroupFloor,
    GroupLimit,
    PopularityLimit,
)
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
    Audience,
    LoggedFeedback,
    Scenario,
    UserModel,
    evaluation_scenario,
    random_cuts,
    serving_scenario,
    training_scenario,
    validation_scenario,
)
from fairhorizon.environment.response import ResponseConfig, ResponseModel, fit_response
from fairhorizon.environment.simulated import SimulatedAudience, SimulatedUsers, SimulationConfig
from fairhorizon.protocol import Protocol

__all__ = [
    "Audience",
    "Churn",
    "Constraint",
    "Exposure",
    "Feedback",
    "GiniLimit",
    "GroupFloor",
    "GroupLimit",
    "LoggedFeedback",
    "Outcome",
    "PopularityLimit",
    "Protocol",
    "ResponseConfig",
    "ResponseModel",
    "Scenario",
    "SimulatedAudience",
    "SimulatedUsers",
    "SimulationConfig",
    "State",
    "UserModel",
    "advance",
    "alpha_prime",
    "cost_limit",
    "evaluation_scenario",
    "fit_response",
    "parity_alpha",
    "random_cuts",
    "serving_scenario",
    "training_scenario",
    "validation_scenario",
]
