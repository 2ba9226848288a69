"""The ways in which a fitted ranker makes lists: user by user, or for all users together."""

from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from fairhorizon.recommenders.blocks import BlockServing
from fairhorizon.recommenders.ranked.fitted import FittedRanker
from fairhorizon.recommenders.ranked.joint import AllocatedLists, ControlledLists
from fairhorizon.recommenders.ranked.online_lists import OnlineLists
from fairhorizon.recommenders.ranked.user_lists import UserLists
from fairhorizon.recommenders.served import Served
from fairhorizon.recommenders.server import Server
from fairhorizon.recommenders.tasks import ServingPlan
from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.rerank.online import OnlineReranker
from fairhorizon.rerank.reranker import Reranker, UserReranker
from fairhorizon.simulation.feedback import Scenario


class Way(Interface):
    """Serves a fitted ranker, behind a re-ranker where there is one."""

    def serve(self, scenario: Scenario, *, length: int, feedback: bool, seed: int) -> Served:
        """As `Recommender.served` describes it."""

    def in_blocks(self, *, feedback: bool, seed: int) -> BlockServing | None:
        """As `Recommender.in_blocks` describes it."""

    def server(self, plan: ServingPlan) -> Server:
        """The server of a long run."""

    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:
        """(n_items,) what exposure the drawn rankings of all users give an item on average."""


def way_of(reranker: Reranker | None, fitted: FittedRanker) -> Way:
    """The one place where the kinds of re-rankers part."""
    match reranker:
        case ListAllocation():
            return AllocatedLists(fitted, reranker)
        case StepControl():
            return ControlledLists(fitted, reranker)
        case OnlineReranker():
            return OnlineLists(fitted, reranker)
        case UserReranker() | None:
            return UserLists(fitted, reranker)
        case _:
            raise TypeError(f"nothing serves with {type(reranker).__name__} (add it here)")
