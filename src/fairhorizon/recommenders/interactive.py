"""The loop in which users are shown items and answer, and the NDCG of the lists."""

from collections.abc import Callable
from typing import Protocol as Interface
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.limits.counts import GrowingLists
from fairhorizon.metrics.accuracy import mean_over_users, ndcg
from fairhorizon.ranking import users_at_once
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.simulation.dynamics import Feedback, Outcome, State, advance
from fairhorizon.simulation.feedback import Scenario


class StepChooser(Interface):
    """Chooses what a batch of users is shown next."""

    def choose(self, state: State) -> Tensor:
        """(b, K) items for users in this state, -1 where nothing is left."""

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        """Observe the outcome of the lists just chosen."""


AnyStepChooser = TypeVar("AnyStepChooser", bound=StepChooser)


@torch.no_grad()
def serve_interactively(
    scenario: Scenario,
    users: Tensor,
    sensitive: Tensor,
    begin: Callable[[State, Feedback], AnyStepChooser],
    *,
    length: int,
) -> tuple[Tensor, AnyStepChooser]:
    """(b, length) items shown to some users of a scenario, and the chooser that chose them.

    `begin` makes the chooser from the users' initial state and their feedback.
    """
    state, feedback = scenario.begin(users, sensitive.device)
    chooser = begin(state, feedback)
    # Lists may be served several places at a time, so the last step may show more than is asked
    # for.
    shown = torch.empty(len(users), 0, dtype=torch.int64, device=sensitive.device)
    while shown.shape[1] < length:
        lists = chooser.choose(state)
        outcome = advance(state, lists, feedback, sensitive)
        chooser.observe(lists, outcome)
        state = outcome.state
        shown = torch.cat([shown, lists], dim=1)
    return shown[:, :length], chooser


class _ControlledSteps:
    """A server that makes whole lists for the users of a scenario, under fixed groups."""

    def __init__(
        self, server: OnlineRecommender, exposure: GrowingLists, *, feedback: bool
    ) -> None:
        self.server, self.exposure, self.feedback = server, exposure, feedback

    def choose(self, state: State) -> Tensor:
        return self.server.serve(state, self.exposure)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        self.exposure.add(lists)
        # Exposure counts in any case; only what users liked is kept from the server.
        if self.feedback:
            self.server.observe(lists, outcome, self.exposure)


def serve_under_control(
    server: OnlineRecommender, scenario: Scenario, sensitive: Tensor, *, length: int, feedback: bool
) -> Tensor:
    """(n_users, length): all users together, step by step, at the price that keeps the limit."""
    exposure = GrowingLists(sensitive.cpu().numpy(), scenario.n_users, length)
    lists, _ = serve_interactively(
        scenario,
        torch.arange(scenario.n_users),
        sensitive,
        lambda _, __: _ControlledSteps(server, exposure, feedback=feedback),
        length=length,
    )
    return lists


def listed_ndcg(lists: Tensor, users: Tensor, scenario: Scenario) -> float:
    """NDCG of the lists (b, length) of some users, by what they like in the scenario."""
    return mean_over_users(ndcg_by_user(lists, users, scenario))


def ndcg_by_user(lists: Tensor, users: Tensor, scenario: Scenario) -> NDArray[np.float64]:
    """(b,) NDCG of every user; NaN for a user without liked items."""
    lists, liked, parts = lists.cpu(), scenario.positive, []
    # Blocks of users: `mask` is a table of users x items.
    for rows in torch.arange(len(lists)).split(users_at_once(liked.n_items)):
        some, shown = users[rows], lists[rows]
        hits = liked.mask(some).gather(1, shown.clamp(min=0)) & (shown >= 0)
        parts.append(ndcg(hits.numpy(), liked.counts(some).numpy(), lists.shape[1]))
    return np.concatenate(parts)
