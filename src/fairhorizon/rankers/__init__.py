"""Rankers, one file per method: fit(split), then scores of all items for a batch of users.

A variant of a method has its name and another word, as `ease:recent`.
"""

from typing import TYPE_CHECKING, Any

from fairhorizon.errors import ModelError
from fairhorizon.registry import LazyClasses

if TYPE_CHECKING:
    from fairhorizon.rankers.ranker import Ranker

RANKERS: "LazyClasses[Ranker[Any]]" = LazyClasses(
    {
        "popularity": "fairhorizon.rankers.popularity:Popularity",
        "mf": "fairhorizon.rankers.mf:Mf",
        "bpr": "fairhorizon.rankers.bpr:Bpr",
        "ncf": "fairhorizon.rankers.ncf:Ncf",
        "itemknn": "fairhorizon.rankers.itemknn:ItemKnn",
        "itemknn:recent": "fairhorizon.rankers.itemknn:RecentItemKnn",
        "ease": "fairhorizon.rankers.ease:Ease",
        "ease:recent": "fairhorizon.rankers.ease:RecentEase",
        "ridge": "fairhorizon.rankers.ridge:Ridge",
        "als": "fairhorizon.rankers.als:Als",
        "gru4rec": "fairhorizon.rankers.gru4rec:Gru4Rec",
        "sasrec": "fairhorizon.rankers.sasrec:SasRec",
        "stack": "fairhorizon.rankers.ensemble:Stack",
    }
)
# Scores that another program has made, read from a file: `scores:NAME`.
GIVEN_SCORES = "scores"


def ranker_class(name: str) -> "type[Ranker[Any]]":
    """The class of a ranker; all of `scores:NAME` are of one class, whatever their files."""
    if name.partition(":")[0] == GIVEN_SCORES:
        from fairhorizon.rankers.given_scores import GivenScores

        return GivenScores
    if name not in RANKERS:
        raise ModelError(f"there is no ranker {name!r} (install the package that brings it)")
    return RANKERS[name]
