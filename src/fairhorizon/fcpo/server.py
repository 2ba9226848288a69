"""FCPO at work: it serves under the limits of the moment and learns from what it observes."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ModelError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.learning.advantages import discounts
from fairhorizon.fcpo.learning.at_work import policy_at_work
from fairhorizon.fcpo.learning.learner import Learner
from fairhorizon.fcpo.warm_start import NO_PRICE, refitted_panel, restored_panel
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.policy.actor import Actor
from fairhorizon.recommenders.lists.items import ExpertSignals, PanelItems
from fairhorizon.recommenders.retraining import Retraining
from fairhorizon.recommenders.walk import Walk
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import as_bytes, below, of_bytes


class FcpoServer:
    """Two things keep the limits: CPO, slowly, by what it learns of states and items; and the
    online control, at every step, by the price at which the step's budget is kept."""

    def __init__(
        self,
        actor: Actor,
        config: FcpoConfig,
        *,
        queue_length: int,
        limits: Sequence[StepLimit],
        learn: bool,
        seed: int,
        retraining: Retraining | None = None,
    ) -> None:
        self.config, self.queue_length = config, queue_length
        self.limits, self.learns = tuple(limits), learn and len(limits) > 0
        self.control, self.retraining = OnlineControl(limits), retraining
        self.generator = torch.Generator().manual_seed(seed)
        self.actor = copy.deepcopy(actor)  # what it learns here is not for the model
        if isinstance(self.actor.items, PanelItems) and config.policy == "softmax":
            # The control has the price of the group, exactly; a second one, learned by the policy,
            # could only keep the share below the limit. The policy learns whom to show what.
            self.actor.items = replace(self.actor.items, priced=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.learner = Learner(self.actor, config, max(1, len(limits)))
        self.walk: Walk | None = None
        self.policy = policy_at_work(self.actor, config, self.generator, learns=self.learns)
        self.left: list[list[float]] = []  # budgets of every limit before each step to learn from

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if self.walk is None:
            check_table(*state.blocked_sets.shape, "serving step by step under limits")
            self.walk = Walk(self.actor, state, exposure.sensitive)
        walk = self.walk
        walk.signals.relabel(exposure.sensitive.to(state.users.device))
        if self.learns:
            showings = len(state.users) * self.config.list_length
            self.left.append([limit.budget(exposure, showings) for limit in self.limits])
        scores = self.policy.scores(walk, state)
        costs = [limit.costs(exposure) for limit in self.limits]
        lists = self.control.choose(self._valued(scores, state, exposure), exposure)
        self.policy.choose(walk, state, lists, self.control.charges, costs)
        return lists

    def _valued(
        self,
        scores: Sequence[Tensor],
        state: State,  # noqa: ARG002  # for those who look ahead
        exposure: Exposure,  # noqa: ARG002
    ) -> Sequence[Tensor]:
        """What the control makes as much of as it can: the scores of the policy."""
        return scores

    @property
    def propensities(self) -> Tensor | None:
        """(b, K) the chance that each item of the last lists had of being shown.

        Of a softmax policy, given the prices of the step and the items before it in the list
        (`SoftmaxAtWork` says what that leaves out); 1 without exploration and for an empty slot.
        None of a Gaussian policy, which samples W instead of items.
        """
        return self.policy.propensities

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        assert self.walk is not None
        self.walk.follow(outcome)
        self.state = outcome.state
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        if self.learns:
            self.policy.note(lists, outcome)

    def update(self) -> None:
        """A round of Algorithm 1 on the trajectories since the last one."""
        if self.walk is not None and self.policy.steps:
            trajectories = self.policy.trajectories(self.walk)
            limits = self._limits(len(trajectories), trajectories.rewards.shape[1])
            self.learner.learn(trajectories, limits, self.generator)
            self.left = []
            self.walk.restart(self.state)
        items = self.actor.items
        if isinstance(items, PanelItems) and self.retraining and self.retraining.due:
            panel = refitted_panel(items.panel, self.retraining.extended(), self.config)
            self.actor.items = replace(items, panel=panel)
            if self.config.adapt:
                self.actor.settle_on([*panel.weights, NO_PRICE])  # to go on learning from there
            self.walk = None  # what it saw of the items was by the rankers before

    def _limits(self, users: int, steps: int) -> Tensor:
        """d of every limit: equation 11, or more where more was left to spend at the start.

        The control spends to the limit and never beyond, so the gap would be just zero, where the
        line search refuses any step that bends towards the limit: CPO gets a little room.
        """
        config = self.config
        horizon = float(discounts(config.gamma_c, steps).sum())
        even = [c.limit_per_showing * config.list_length * horizon for c in self.limits]
        begun = self.left[max(0, len(self.left) - steps)]
        left = [budget / users for budget in begun]
        limits = torch.tensor([max(pair) for pair in zip(even, left, strict=True)])
        return limits + config.cost_tolerance * limits.abs()

    def notes(self) -> dict[str, float]:
        """The price of every limit in the last step.

        Where it explores, also the mean propensity of the items shown.
        """
        notes = {f"price of {name}": price for name, price in self.control.prices.items()}
        if self.config.explore and self.propensities is not None:
            notes["mean propensity"] = float(self.propensities.mean())
        return notes

    def tensors(self) -> dict[str, Tensor]:
        """Only where nothing is waiting to be learned from: right after an update."""
        parts = {
            "actor": dict(self.actor.named_parameters()),
            "critics": self.learner.critics.state_dict(),
            "buffer": self.learner.buffer.tensors(),
            "control": self.control.tensors(),
        }
        if self.walk is not None and isinstance(self.walk.signals, ExpertSignals):
            # computed for other users at a time, they would differ in the last digits
            parts["signals"] = {str(n): values for n, values in enumerate(self.walk.signals.values)}
        if self.retraining is not None:
            parts["retraining"] = self.retraining.tensors()
            if isinstance(self.actor.items, PanelItems):
                panel = self.actor.items.panel
                parts["panel"] = panel.tensors() | {"description": as_bytes(panel.description())}
        named = {f"{part}.{k}": v for part, some in parts.items() for k, v in some.items()}
        copies = {name: value.detach().clone() for name, value in named.items()}
        return copies | {"generator": self.generator.get_state()}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        self._restore_actor(below("actor.", tensors))
        self.learner.critics.load_state_dict(below("critics.", tensors))
        self.learner.buffer.restore(below("buffer.", tensors), state.users.device)
        self.control.restore(below("control.", tensors))
        self.generator.set_state(tensors["generator"])
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
            items = self.actor.items
            if isinstance(items, PanelItems):
                kept = below("panel.", tensors)
                described = kept.pop("description", None)  # none: refitted with its settings
                first = items.panel.description()
                panel = restored_panel(kept, first if described is None else of_bytes(described))
                self.actor.items = replace(items, panel=panel)
        self.state, self.walk, self.left = state, None, []
        self.policy = policy_at_work(self.actor, self.config, self.generator, learns=self.learns)
        self._restore_signals(tensors, state)

    def _restore_signals(self, tensors: dict[str, Tensor], state: State) -> None:
        """Scores as they were stored."""
        if not (seen := below("signals.", tensors)):
            return
        # until it serves, there is no group
        no_group = torch.zeros(state.blocked_sets.shape[1], dtype=torch.bool).to(state.users.device)
        self.walk = Walk(self.actor, state, no_group)
        signals = self.walk.signals
        assert isinstance(signals, ExpertSignals)  # others are not stored
        signals.values = [seen[str(n)].to(state.users.device, copy=True) for n in range(len(seen))]

    def _restore_actor(self, parameters: dict[str, Tensor]) -> None:
        """What was learned online; only of the same policy."""
        own = {name: value.shape for name, value in self.actor.named_parameters()}
        if {name: value.shape for name, value in parameters.items()} != own:
            raise ModelError(
                "the stored run is of another policy, as versions before 0.2 stored for preset "
                "strong: it cannot be continued (start it anew, without --resume)"
            )
        self.actor.load_state_dict(parameters, strict=False)
