"""Whole lists from a server that keeps its limits at every step of a long run."""

import torch
from torch import Tensor

from fairhorizon.agents.server import Server
from fairhorizon.agents.steps import step_by_step
from fairhorizon.environment.dynamics import Outcome, State
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.growing_lists import GrowingLists


class _ControlledSteps:
    """A server that makes whole lists for the users of a scenario, under fixed groups."""

    def __init__(self, server: Server, exposure: GrowingLists, *, feedback: bool) -> None:
        self.server, self.exposure, self.feedback = server, exposure, feedback

    def choose(self, state: State) -> Tensor:
        return self.server.serve(state, self.exposure)

    def follow(self, lists: Tensor, outcome: Outcome) -> None:
        self.exposure.add(lists)
        if self.feedback:
            self.server.observe(lists, outcome, self.exposure)


def serve_under_control(
    server: Server, scenario: Scenario, sensitive: Tensor, *, length: int, feedback: bool
) -> Tensor:
    """(n_users, length): all users together, step by step, at the price that keeps the limit."""
    exposure = GrowingLists(sensitive.cpu().numpy(), scenario.n_users, length)
    lists, _ = step_by_step(
        scenario,
        torch.arange(scenario.n_users),
        sensitive,
        lambda _, __: _ControlledSteps(server, exposure, feedback=feedback),
        length=length,
    )
    return lists
