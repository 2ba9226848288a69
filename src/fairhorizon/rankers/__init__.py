"""Rankers, one file per method: fit(split), then scores of all items for a batch of users."""

from typing import Any

from fairhorizon.rankers.als import Als, AlsConfig
from fairhorizon.rankers.bpr import Bpr, BprConfig
from fairhorizon.rankers.ease import Ease, EaseConfig
from fairhorizon.rankers.gru4rec import Gru4Rec, Gru4RecConfig
from fairhorizon.rankers.itemknn import ItemKnn, ItemKnnConfig
from fairhorizon.rankers.mf import Mf, MfConfig
from fairhorizon.rankers.ncf import Ncf, NcfConfig
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.sasrec import SasRec, SasRecConfig

RANKERS: dict[str, type[Ranker[Any]]] = {
    ranker.method: ranker
    for ranker in (
        Popularity,
        Mf,
        Bpr,
        Ncf,
        ItemKnn,
        Ease,
        Als,
        Gru4Rec,
        SasRec,
    )
}

__all__ = [
    "RANKERS",
    "Als",
    "AlsConfig",
    "Bpr",
    "BprConfig",
    "Ease",
    "EaseConfig",
    "Gru4Rec",
    "Gru4RecConfig",
    "ItemKnn",
    "ItemKnnConfig",
    "Mf",
    "MfConfig",
    "Ncf",
    "NcfConfig",
    "Popularity",
    "Ranker",
    "SasRec",
    "SasRecConfig",
]
