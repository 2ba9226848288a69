"""FairHorizon: fair recommendation over time.

import fairhorizon as fh
parts = fh.split(fh.load("ml-100k"))
model = fh.Fcpo(fh.FcpoConfig(alpha_prime=0.4)).fit(parts)
print(fh.evaluate(model, parts).metrics)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairhorizon.agents import Fcpo, FcpoConfig, Lird, LirdConfig, Ranked
    from fairhorizon.data import Interactions, load, split
    from fairhorizon.environment import serving_scenario
    from fairhorizon.evaluation import evaluate
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
    "ExposureFairness": "rerank",
    "Fcpo": "agents",
    "FcpoConfig": "agents",
    "Gru4Rec": "rankers",
    "Gru4RecConfig": "rankers",
    "Interactions": "data",
    "ItemKnn": "rankers",
    "ItemKnnConfig": "rankers",
    "Lird": "agents",
    "LirdConfig": "agents",
    "Mf": "rankers",
    "MfConfig": "rankers",
    "Ncf": "rankers",
    "NcfConfig": "rankers",
    "Penalty": "rerank",
    "Popularity": "rankers",
    "Quota": "rerank",
    "Ranked": "agents",
    "SasRec": "rankers",
    "SasRecConfig": "rankers",
    "attribute_group": "groups",
    "evaluate": "evaluation",
    "load": "data",
    "popular_group": "groups",
    "serving_scenario": "environment",
    "split": "data",
}

__all__ = [
    "Als",
    "AlsConfig",
    "Bpr",
    "BprConfig",
    "Ease",
    "EaseConfig",
    "ExposureFairness",
    "Fcpo",
    "FcpoConfig",
    "Gru4Rec",
    "Gru4RecConfig",
    "Interactions",
    "ItemKnn",
    "ItemKnnConfig",
    "Lird",
    "LirdConfig",
    "Mf",
    "MfConfig",
    "Ncf",
    "NcfConfig",
    "Penalty",
    "Popularity",
    "Quota",
    "Ranked",
    "SasRec",
    "SasRecConfig",
    "attribute_group",
    "evaluate",
    "load",
    "popular_group",
    "serving_scenario",
    "split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairhorizon' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fairhorizon.{_HOMES[name]}"), name)
