"""Rankers, one file per method: fit(split), then scores of all items for a batch of users.

A variant of a method has its name and another word, as `ease:recent`.
"""

from typing import Any

from fairhorizon.errors import ModelError
from fairhorizon.rankers.als import Als
from fairhorizon.rankers.bpr import Bpr
from fairhorizon.rankers.ease import Ease, RecentEase
from fairhorizon.rankers.ensemble import Stack
from fairhorizon.rankers.given_scores import GivenScores
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.itemknn import ItemKnn, RecentItemKnn
from fairhorizon.rankers.mf import Mf
from fairhorizon.rankers.ncf import Ncf
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.rankers.sasrec import SasRec

RANKERS: dict[str, type[Ranker[Any]]] = {
    ranker.method: ranker
    for ranker in (
        Popularity,
        Mf,
        Bpr,
        Ncf,
        ItemKnn,
        RecentItemKnn,
        Ease,
        RecentEase,
        Ridge,
        Als,
        Gru4Rec,
        SasRec,
        Stack,
    )
}


def ranker_class(name: str) -> type[Ranker[Any]]:
    """The class of a ranker; all of `scores:NAME` are of one class, whatever their files."""
    if name.partition(":")[0] == GivenScores.method:
        return GivenScores
    if name not in RANKERS:
        raise ModelError(f"there is no ranker {name!r} (install the package that brings it)")
    return RANKERS[name]
