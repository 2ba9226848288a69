"""LIRD in a long run: it observes what users like and may be retrained once a round."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.limits.counts import Exposure
from fairhorizon.lird.ddpg import ListActor
from fairhorizon.policy.actor import Proposal
from fairhorizon.recommenders.online import Retraining
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below


class LirdServer:
    """Serves K items a step; a user is encoded again when the queue has changed."""

    def __init__(
        self,
        actor: ListActor,
        queue_length: int,
        refit: Callable[[Split], ListActor],
        retraining: Retraining | None = None,
    ) -> None:
        self.actor, self.queue_length = actor, queue_length
        self.refit, self.retraining = refit, retraining
        self._proposals: Tensor | None = None  # (b, K d) W of the users' present states

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:  # noqa: ARG002  # no groups
        if self._proposals is None:
            self._proposals = self._propose(state.users, state.queue)
        return self.actor.choose(self._proposals, state.blocked)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        rows = outcome.reward.nonzero().squeeze(1)
        if self._proposals is not None and len(rows):
            fresh = self._propose(outcome.state.users[rows], outcome.state.queue[rows])
            self._proposals[rows] = fresh

    def update(self) -> None:
        """Retrain if a round is over; the caller's model is not changed."""
        if self.retraining is not None and self.retraining.due:
            self.actor = self.refit(self.retraining.extended())
            self._proposals = None

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        tensors = {} if self._proposals is None else {"proposals": self._proposals.clone()}
        if self.retraining is not None:
            weights = self.actor.state_dict()
            tensors |= {f"actor.{name}": value.clone() for name, value in weights.items()}
            kept = self.retraining.tensors()
            tensors |= {f"retraining.{name}": value for name, value in kept.items()}
        return tensors

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Stored proposals are used as they are: computed again, their last digits would differ."""
        known = tensors.get("proposals")
        self._proposals = None if known is None else known.to(state.users.device, copy=True)
        if self.retraining is not None:
            self.actor = copy.deepcopy(self.actor)
            self.actor.load_state_dict(below("actor.", tensors))
            self.retraining.restore(below("retraining.", tensors))

    def _propose(self, users: Tensor, queues: Tensor) -> Tensor:
        return Proposal.of(self.actor(users, queues)).mean.clone()
