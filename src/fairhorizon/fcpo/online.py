"""FCPO in a long run: it serves under the limits of the moment and learns from what it observes.

Two things keep the limits: CPO, slowly, by what it learns of states and items; and the online
control, at every step, by the price at which the step's budget is kept. A step is

    scores of the policy -> values (what they are worth among users who can leave) -> noise of
    exploration -> less the prices of the control -> lists

and every so many steps an update learns from the answers.
"""

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learner import Learner, discounts
from fairhorizon.fcpo.networks import NO_PRICE, Actor
from fairhorizon.fcpo.policies import explored, propensities
from fairhorizon.fcpo.retention.model import RetentionModel, ValuedItems
from fairhorizon.fcpo.rollouts import Choices, PolicyState, Trajectories
from fairhorizon.fcpo.warm_start import refitted_ensemble, restored_ensemble
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.lists.features import EnsembleFeatures, EnsembleItems
from fairhorizon.recommenders.online import Retraining
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import as_bytes, below, of_bytes


# ---- What an update learns from ------------------------------------------------------------------
@dataclass(frozen=True)
class ItemStep:
    """One step of a policy over items, for all users: the candidates, and the places chosen."""

    users: Tensor  # (b,)
    queues: Tensor  # (b, N)
    candidates: CandidateSet  # (b, C)
    costs: Tensor  # (b, C, limits) of all candidates
    charges: Tensor  # (b, K, C)
    open_items: Tensor  # (b, C)
    chosen: Tensor  # (b, K) places among the candidates, -1 for an empty slot


@dataclass(frozen=True)
class Served:
    """One step: what was shown, and all that can be learned from it but the answers."""

    lists: Tensor  # (b, K)
    charges: Tensor  # (K, n_items) what the control took off the values
    spent: Tensor  # (b, limits) what the lists cost
    # (b, K) the chance of each item of the lists; None of a policy that samples W
    propensities: Tensor | None
    # (b,) index of the state, (b, K d) W and (b,) its log-probability, of a policy that samples W
    sampled: tuple[Tensor, Tensor, Tensor] | None = None
    items: ItemStep | None = None  # of a policy over items that learns
    valued: ValuedItems | None = None  # among users who can leave


def item_trajectories(steps: Sequence[tuple[Served, Tensor]]) -> Trajectories:
    """The trajectories of a policy over items; every step of every user is a state of its own.

    steps: what was served and the rewards (b,), oldest first.
    """
    items = [served.items for served, _ in steps if served.items is not None]
    assert len(items) == len(steps)  # it learns, so all are recorded
    n, T = len(items[0].users), len(steps)
    # States stand step after step, all users of one together.
    index = (torch.arange(n)[:, None] + n * torch.arange(T)).to(items[0].users)  # (b, T)
    probabilities = [served.propensities for served, _ in steps if served.propensities is not None]
    by_user = torch.stack(probabilities, dim=1)  # (b, T, K)
    sets = [step.candidates for step in items]
    return Trajectories(
        torch.cat([step.users for step in items]),
        torch.cat([step.queues for step in items]),
        index,
        proposals=by_user.new_zeros(n, T, 0),
        log_probs=by_user.log().sum(2),
        lists=torch.stack([served.lists for served, _ in steps], dim=1),
        rewards=torch.stack([rewards for _, rewards in steps], dim=1),
        costs=torch.stack([served.spent for served, _ in steps], dim=1),
        choices=Choices(
            type(sets[0]).join(sets),
            torch.cat([step.costs for step in items]),
            torch.stack([step.open_items for step in items], dim=1),
            torch.stack([step.chosen for step in items], dim=1),
            charges=torch.cat([step.charges for step in items]),
            propensities=by_user,
        ),
    )


def spent_by(lists: Tensor, costs: Tensor) -> Tensor:
    """(b, limits) what lists (b, K) cost, by the costs of items (n_items, limits)."""
    per_item = costs[lists.clamp(min=0)]  # (b, K, limits)
    return per_item.masked_fill((lists < 0)[:, :, None], 0.0).sum(1)


# ---- Serve, observe, update ----------------------------------------------------------------------
MOST_STEPS = 20  # that an update learns from: the candidates of every step are kept until then


class OnlineFcpo:
    """A policy that serves, observes and learns; the model that it was made from stays as it is.

    A step is `serve`, then `observe`. `serve` leaves what it did in `served`, `observe` puts that
    and the answers into `steps`, and `update` learns from these steps.

    A policy that samples W shows the items with the highest scores by it. A policy over items
    orders them by their logits, or draws: with Gumbel noise of temperature `explore`. Then the
    propensity of an item is its chance given the prices of the step. The control shows the item
    with the highest logit + noise - charge; with the charges as they came out, that is item i with
    the chance softmax((logit - charge) / explore)_i over the open items, for longer lists given the
    items before it (Plackett-Luce). Prices depend on the noise of all users together, and on that
    of one user only where this user is the one at the margin of a budget. Without a limit that
    binds, charges are 0 and propensities unconditional. Without exploration all of them are 1.

    Among users who can leave (value=long) the policy orders items, and `retention` says what they
    are worth to whom. The control's price comes on top of that, so who gets the scarce showings is
    what was learned. Then it is the retention model that learns online; the policy stays.
    """

    remarks: Sequence[str] = ()

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
        self.limits = tuple(limits)
        self.control = OnlineControl(limits if config.control else ())
        self.retraining = retraining
        self.generator = torch.Generator().manual_seed(seed)
        self.actor = copy.deepcopy(actor)  # what it learns here is not for the model
        if isinstance(self.actor.items, EnsembleItems) and config.policy == "softmax":
            # The control has the price of the group, exactly; a second one, learned by the policy,
            # could only keep the share below the limit. The policy learns whom to show what.
            self.actor.items = replace(self.actor.items, priced=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.learner = Learner(self.actor, config, max(1, len(limits)))

        self.retention: RetentionModel | None = None
        self.run_has_started = False  # the run of these users, in what `retention` records
        if config.value == "long":
            if config.list_length != 1:
                raise ConfigError("value=long is for lists of one item (set value to score)")
            share = limits[0].limit_per_showing if limits else 1.0
            self.retention = RetentionModel(
                config.gamma_r, settings=config.looking_ahead, share=share, seed=seed
            )
        self.learns = learn and len(limits) > 0 and self.retention is None
        self.learns_retention = learn and config.looking_ahead.online

        self.state: State | None = None  # of the users, after the last step
        self.policy: PolicyState | None = None
        self.served: Served | None = None  # the last step
        # What the next update learns from: steps with their rewards (b,), and the budgets that
        # every limit had before each.
        most = None if self.actor.is_gaussian else MOST_STEPS
        self.steps: deque[tuple[Served, Tensor]] = deque(maxlen=most)
        self.budgets: list[list[float]] = []
        self.candidates: Tensor | None = None  # (b, C) items of the present states
        self.moved: Tensor | None = None  # (b,) bool: users in a new state since the last step

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        """(b, K) lists for all users."""
        policy = self._policy_in(state, exposure)
        if self.learns:
            # Before the lists are made: what an update may spend is what was left at its first
            # step.
            showings = len(state.users) * self.config.list_length
            self.budgets.append([limit.budget(exposure, showings) for limit in self.limits])

        sampled, W = None, policy.outputs
        if self.actor.is_gaussian:
            proposal = policy.proposal
            # What is learned from has to be sampled from the policy.
            by_mean = self.config.serve == "mean" and not self.learns
            W = proposal.mean if by_mean else proposal.sample(self.generator)
            sampled = policy.index, W, proposal.log_prob(W)
        values, valued = policy.open_scores(W, state), None
        if self.retention is not None:
            if not self.run_has_started:
                self.retention.begin(state.blocked_sets.counts())
                self.run_has_started = True
            valued = self.retention.valued(values[0], exposure.sensitive)
            values = [valued.values.to(values[0])]
        # Noise before the prices: the control then finds the prices of the noisy values, and the
        # draw is one from softmax((logit - charge) / explore).
        noisy: Sequence[Tensor] = values
        if self.config.explore:
            noisy = explored(values, self.config.explore, self.generator)
        lists = self.control.choose(noisy, exposure)

        table = [limit.costs(exposure).to(lists.device) for limit in self.limits]
        costs = torch.stack(table, dim=1) if table else torch.zeros(len(exposure.sensitive), 0)
        charges = self.control.charges.to(values[0])
        if self.actor.is_gaussian:
            spent = spent_by(lists, costs)
            self.served = Served(lists, charges, spent, None, sampled, valued=valued)
            return lists
        probabilities = torch.ones(lists.shape, device=lists.device)
        if self.config.explore:
            charged = [slot - charge for slot, charge in zip(values, charges, strict=True)]
            probabilities = propensities(charged, lists, self.config.explore)
        costs = costs.to(charges)
        items = self._item_step(policy, state, lists, charges, costs) if self.learns else None
        spent = spent_by(lists, costs)
        self.served = Served(lists, charges, spent, probabilities, items=items, valued=valued)
        return lists

    def _policy_in(self, state: State, exposure: Exposure) -> PolicyState:
        """The policy in the present state, with the group labels of the moment."""
        if self.policy is None:
            check_table(*state.blocked_sets.shape, "serving step by step under limits")
            self.policy = PolicyState(self.actor, state, exposure.sensitive)
        self.policy.features.relabel(exposure.sensitive.to(state.users.device))
        return self.policy

    def _item_step(
        self, policy: PolicyState, state: State, lists: Tensor, charges: Tensor, costs: Tensor
    ) -> ItemStep:
        """What can be learned from lists; charges: (K, n_items); costs: (n_items, limits)."""
        # Candidates are chosen anew for users in a new state, and after an update.
        some = torch.arange(len(state.users)).to(state.users)
        if self.candidates is not None:
            some = some[:0] if self.moved is None else self.moved.nonzero().squeeze(1)
        if len(some):
            fresh = policy.features.candidate_items(
                some, state.blocked_sets, self.config.candidates
            )
            if self.candidates is not None:
                fresh = self.candidates.index_copy(0, some, fresh)
            self.candidates = fresh
        assert self.candidates is not None
        offered = policy.features.with_shown(self.candidates, lists)
        at = offered.items.clamp(min=0)
        places = (offered.items[:, None, :] == lists[:, :, None]).int().argmax(2)
        return ItemStep(
            state.users,
            self.actor.items.encoder_input(state.queue),
            offered,
            costs[at],
            charges[:, at].transpose(0, 1),
            (offered.items >= 0) & ~state.blocked_sets.contains(offered.items),
            places.masked_fill(lists < 0, -1),
        )

    @property
    def propensities(self) -> Tensor | None:
        """(b, K) the chance that each item of the last lists had of being shown.

        Of a policy over items, given the prices of the step and the items before it in the list; 1
        without exploration and for an empty slot. None of a policy that samples W instead of items.
        """
        return None if self.served is None else self.served.propensities

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        """Note the answers to the lists just served."""
        assert self.policy is not None
        assert self.served is not None
        self.policy.observe(outcome)
        self.state = outcome.state
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        if self.learns:
            rewards = outcome.reward
            if not self.actor.is_gaussian:
                # Of the feedback only the answers to the items of the lists are read.
                hits = outcome.hits & (lists >= 0)
                rewards = hits.float() @ attention_of(self.config).to(hits.device)
            self.steps.append((self.served, rewards))
            self.moved = outcome.hits.any(1)
        if self.retention is not None:
            assert self.served.valued is not None
            here, charges = outcome.state.here, self.served.charges[0]
            self.retention.note(self.served.valued, lists, outcome.hits, here, charges)

    def update(self) -> None:
        """A round of Algorithm 1 on the steps since the last one; rankers are refitted when due."""
        if self.policy is not None and self.state is not None and self.steps:
            trajectories = self._trajectories(self.policy)
            self.steps.clear()
            self.candidates = None  # the policy may learn
            limits = self._limits(len(trajectories), trajectories.rewards.shape[1])
            self.learner.learn(trajectories, limits, self.generator)
            self.budgets = []
            # The states are encoded anew: the actor has learned.
            self.policy.restart(self.state)
        items = self.actor.items
        if isinstance(items, EnsembleItems) and self.retraining and self.retraining.due:
            ensemble = refitted_ensemble(items.ensemble, self.retraining.extended(), self.config)
            self.actor.items = replace(items, ensemble=ensemble)
            self.actor.fix_weights([*ensemble.weights, NO_PRICE])  # to go on learning from there
            self.policy = None  # what it saw of the items was by the rankers before
        if self.retention is not None and self.learns_retention and self.retention.has_news:
            self.retention.learn(going_on=1)

    def _trajectories(self, policy: PolicyState) -> Trajectories:
        """Of the steps since the last update."""
        if not self.actor.is_gaussian:
            return item_trajectories(self.steps)
        taken = []
        for served, rewards in self.steps:
            assert served.sampled is not None
            taken.append((*served.sampled, served.lists, rewards, served.spent))
        return policy.trajectories(taken)

    def _limits(self, users: int, steps: int) -> Tensor:
        """d of every limit: equation 11, or more where more was left to spend at the start.

        The control spends to the limit and never beyond, so the gap would be just zero, where the
        line search refuses any step that bends towards the limit: CPO gets a little room.
        """
        config = self.config
        horizon = float(discounts(config.gamma_c, steps).sum())
        even = [c.limit_per_showing * config.list_length * horizon for c in self.limits]
        at_start = self.budgets[max(0, len(self.budgets) - steps)]
        left = [budget / users for budget in at_start]
        limits = torch.tensor([max(pair) for pair in zip(even, left, strict=True)])
        return limits + config.cost_tolerance * limits.abs()

    def notes(self) -> dict[str, float]:
        """The price of every limit in the last step.

        Where it explores, also the mean propensity of the items shown; among users who can leave,
        what a like is worth, in the mean over the users.
        """
        notes = {f"price of {name}": price for name, price in self.control.prices.items()}
        if self.served is None:
            return notes
        if self.retention is not None and self.served.valued is not None:
            notes["worth of a like"] = float(self.retention.worth(self.served.valued).mean())
        shown = self.served.lists >= 0
        if self.config.explore and self.propensities is not None and shown.any():
            notes["mean propensity"] = float(self.propensities[shown].mean())
        return notes

    # ---- Stored between two steps ----------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        """All that changed since the run began.

        Only where nothing is waiting to be learned from: right after an update.
        """
        parts = {
            "actor": dict(self.actor.named_parameters()),
            "critics": self.learner.critics.state_dict(),
            "buffer": self.learner.buffer.tensors(),
            "control": self.control.tensors(),
        }
        if self.policy is not None and isinstance(self.policy.features, EnsembleFeatures):
            # Computed again in other batches, they would differ in the last digits.
            values = self.policy.features.values
            parts["features"] = {str(n): scores for n, scores in enumerate(values)}
        if self.retraining is not None:
            parts["retraining"] = self.retraining.tensors()
            if isinstance(self.actor.items, EnsembleItems):
                ensemble = self.actor.items.ensemble
                described = {"description": as_bytes(ensemble.description())}
                parts["ensemble"] = ensemble.tensors() | described
        if self.retention is not None:
            parts["retention"] = self.retention.tensors()
        named = {f"{part}.{k}": v for part, some in parts.items() for k, v in some.items()}
        copies = {name: value.detach().clone() for name, value in named.items()}
        return copies | {"generator": self.generator.get_state()}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Go on from `tensors` of another one, users being in `state`."""
        self._restore_actor(below("actor.", tensors))
        self.learner.critics.load_state_dict(below("critics.", tensors))
        self.learner.buffer.restore(below("buffer.", tensors), state.users.device)
        self.control.restore(below("control.", tensors))
        self.generator.set_state(tensors["generator"])
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
            items = self.actor.items
            if isinstance(items, EnsembleItems):
                kept = below("ensemble.", tensors)
                described = of_bytes(kept.pop("description"))
                self.actor.items = replace(items, ensemble=restored_ensemble(kept, described))
        self.state, self.policy, self.served = state, None, None
        self.budgets, self.candidates, self.moved = [], None, None
        self.steps.clear()
        self._restore_features(below("features.", tensors), state)
        if self.retention is not None:
            self.retention.restore(below("retention.", tensors))
            self.run_has_started = True

    def _restore_features(self, scores: dict[str, Tensor], state: State) -> None:
        """Scores of the rankers as they were stored."""
        if not scores:
            return
        device = state.users.device
        # The group is set when it serves.
        no_group = torch.zeros(state.blocked_sets.shape[1], dtype=torch.bool).to(device)
        self.policy = PolicyState(self.actor, state, no_group)
        features = self.policy.features
        assert isinstance(features, EnsembleFeatures)  # others are not stored
        features.values = [scores[str(n)].to(device, copy=True) for n in range(len(scores))]

    def _restore_actor(self, parameters: dict[str, Tensor]) -> None:
        """What was learned online; only of the same policy."""
        own = {name: value.shape for name, value in self.actor.named_parameters()}
        if {name: value.shape for name, value in parameters.items()} != own:
            raise ModelError(
                "the stored run is of another policy: it cannot be continued (start it anew, "
                "without --resume)"
            )
        self.actor.load_state_dict(parameters, strict=False)
