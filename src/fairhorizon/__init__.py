"""FairHorizon: fair recommendation over time.

import fairhorizon as fh
parts = fh.split(fh.load("ml-100k"))
model = fh.Fcpo(fh.FcpoConfig(alpha_prime=0.4)).fit(parts)
print(fh.evaluate(model, parts).metrics)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairhorizon.agents import (
        PRESETS,
        Fcpo,
        FcpoConfig,
        Lird,
        LirdConfig,
        LirdServer,
        Ranked,
        RankedServer,
    )
    from fairhorizon.data import Interactions, load, split
    from fairhorizon.environment import (
        Exposure,
        GiniLimit,
        GroupFloor,
        GroupLimit,
        PopularityLimit,
        Protocol,
        SimulatedUsers,
        SimulationConfig,
        evaluation_scenario,
        serving_scenario,
    )
    from fairhorizon.evaluation import LongRun, LongRunSettings, evaluate
    from fairhorizon.groups import attribute_group, popular_group
    from fairhorizon.rankers import (
        Als,
        AlsConfig,
        Bpr,
        BprConfig,
        Ease,
        EaseConfig,
        Gru4Rec,
        Gru4RecConfig,
        ItemKnn,
        ItemKnnConfig,
        Mf,
        MfConfig,
        Ncf,
        NcfConfig,
        Popularity,
        SasRec,
        SasRecConfig,
    )
    from fairhorizon.rerank import ExposureFairness, Penalty, Quota

__version__ = "0.1.0"

# Names are looked up on first use, so that `fairhorizon --help` does not wait for torch.
_HOMES = {
    "Als": "rankers",
    "AlsConfig": "rankers",
    "Bpr": "rankers",
    "BprConfig": "rankers",
    "Ease": "rankers",
    "EaseConfig": "rankers",
    "Exposure": "environment",
    "ExposureFairness": "rerank",
    "Fcpo": "agents",
    "FcpoConfig": "agents",
    "GiniLimit": "environment",
    "GroupFloor": "environment",
    "GroupLimit": "environment",
    "Gru4Rec": "rankers",
    "Gru4RecConfig": "rankers",
    "Interactions": "data",
    "ItemKnn": "rankers",
    "ItemKnnConfig": "rankers",
    "Lird": "agents",
    "LirdConfig": "agents",
    "LirdServer": "agents",
    "LongRun": "evaluation",
    "LongRunSettings": "evaluation",
    "Mf": "rankers",
    "MfConfig": "rankers",
    "Ncf": "rankers",
    "NcfConfig": "rankers",
    "PRESETS": "agents",
    "Penalty": "rerank",
    "Popularity": "rankers",
    "PopularityLimit": "environment",
    "Protocol": "environment",
    "Quota": "rerank",
    "Ranked": "agents",
    "RankedServer": "agents",
    "SasRec": "rankers",
    "SasRecConfig": "rankers",
    "SimulatedUsers": "environment",
    "SimulationConfig": "environment",
    "attribute_group": "groups",
    "evaluate": "evaluation",
    "evaluation_scenario": "environment",
    "load": "data",
    "popular_group": "groups",
    "serving_scenario": "environment",
    "split": "data",
}

__all__ = [
    "PRESETS",
    "Als",
    "AlsConfig",
    "Bpr",
    "BprConfig",
    "Ease",
    "EaseConfig",
    "Exposure",
    "ExposureFairness",
    "Fcpo",
    "FcpoConfig",
    "GiniLimit",
    "GroupFloor",
    "GroupLimit",
    "Gru4Rec",
    "Gru4RecConfig",
    "Interactions",
    "ItemKnn",
    "ItemKnnConfig",
    "Lird",
    "LirdConfig",
    "LirdServer",
    "LongRun",
    "LongRunSettings",
    "Mf",
    "MfConfig",
    "Ncf",
    "NcfConfig",
    "Penalty",
    "Popularity",
    "PopularityLimit",
    "Protocol",
    "Quota",
    "Ranked",
    "RankedServer",
    "SasRec",
    "SasRecConfig",
    "SimulatedUsers",
    "SimulationConfig",
    "attribute_group",
    "evaluate",
    "evaluation_scenario",
    "load",
    "popular_group",
    "serving_scenario",
    "split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairhorizon' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fairhorizon.{_HOMES[name]}"), name)
