"""Rankers, one file a method: fit(split), then scores of all items for a batch of users."""

from typing import Any

from fairhorizon.rankers.mf import Mf, MfConfig
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker

RANKERS: dict[str, type[Ranker[Any]]] = {ranker.method: ranker for ranker in (Popularity,)}

__all__ = ["RANKERS", "Mf", "MfConfig", "Popularity", "Ranker"]
