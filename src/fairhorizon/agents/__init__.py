"""What hands out lists: FCPO and what it is made of, LIRD, and rankers behind a re-ranker."""

from fairhorizon.agents.config import PRESETS, FcpoConfig
from fairhorizon.agents.fcpo import Fcpo
from fairhorizon.agents.lird import Lird, LirdConfig
from fairhorizon.agents.lird_server import LirdServer
from fairhorizon.agents.ranked import Ranked
from fairhorizon.agents.ranked_server import RankedServer
from fairhorizon.agents.training import RoundReport, Training

__all__ = [
    "PRESETS",
    "Fcpo",
    "FcpoConfig",
    "Lird",
    "LirdConfig",
    "LirdServer",
    "Ranked",
    "RankedServer",
    "RoundReport",
    "Training",
]
