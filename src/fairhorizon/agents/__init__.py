"""Policies that learn: FCPO and what it is made of."""

from fairhorizon.agents.config import PRESETS, FcpoConfig
from fairhorizon.agents.fcpo import Fcpo
from fairhorizon.agents.training import RoundReport, Training

__all__ = ["PRESETS", "Fcpo", "FcpoConfig", "RoundReport", "Training"]
