"""FCPO in a long run: it serves under the limits of the moment and learns from what it observes."""

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learner import Learner, discounts
from fairhorizon.fcpo.networks import Actor, SoftmaxHead
from fairhorizon.fcpo.policies import Proposal, explored, propensities
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.fcpo.rollouts import PolicyState, Recorder
from fairhorizon.fcpo.trajectories import ShownRecord, Trajectories
from fairhorizon.fcpo.warm_start import NO_PRICE, refitted_ensemble, restored_ensemble
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.base import ServingPlan
from fairhorizon.recommenders.lists.features import EnsembleFeatures, EnsembleItems
from fairhorizon.recommenders.online import Retraining
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import as_bytes, below, of_bytes

# ---- The policy: what it scores items by, and the record that it learns from ---------------------
MOST_STEPS = 20  # that an update learns from: the menus of every step are kept until then


Scored = TypeVar("Scored", bound="Scores")
Noted = TypeVar("Noted", bound="Shown")


class Scores(Interface):
    """What a policy says of the items at one step."""

    @property
    def scores(self) -> Sequence[Tensor]:
        """(b, n_items) for each slot of the lists, -inf for blocked items."""


class Shown(Interface):
    """What was shown at one step: all that the policy learns from, but the answers."""

    @property
    def propensities(self) -> Tensor | None:
        """(b, K) the chance of each item of the lists; None of a policy that samples W."""


class OnlinePolicy(Interface[Scored, Noted]):
    """What learns while it serves.

    A step is `score`, then `shown` with what the control made of the scores, then, if it is to
    learn, `answered`. What one call finds out is handed to the next. After some steps,
    `trajectories` has what all of them taught.
    """

    @property
    def steps(self) -> int:
        """Answered since the last trajectories."""

    def score(self, walk: PolicyState, state: State) -> Scored:
        """Score all items for all users."""

    def shown(
        self,
        scored: Scored,
        walk: PolicyState,
        state: State,
        lists: Tensor,
        charges: Tensor,
        costs: Sequence[Tensor],
    ) -> Noted:
        """Describe the lists that the control made of the scores.

        charges: (K, n_items) what its prices took off them; costs: (n_items,) under each limit.
        """

    def answered(self, shown: Noted, outcome: Outcome) -> None:
        """Record the answers to what was shown."""

    def trajectories(self, walk: PolicyState) -> Trajectories:
        """Of the steps answered since the last call."""


@dataclass(frozen=True)
class _SampledW:
    """A W for every user, and the states and the distribution that it was sampled in."""

    index: Tensor  # (b,)
    proposal: Proposal
    sampled: Tensor  # (b, K signals)
    scores: Sequence[Tensor]


@dataclass(frozen=True)
class _ShownByW:
    scored: _SampledW
    lists: Tensor  # (b, K)
    spent: Tensor  # (b, limits) what the lists cost
    propensities: None = None


class GaussianOnline:
    """W is sampled, and the items are those with the highest scores by it."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.recorder = generator, Recorder()

    @property
    def steps(self) -> int:
        return len(self.recorder.columns)

    def score(self, walk: PolicyState, state: State) -> _SampledW:
        sampled = walk.propose(self.generator)
        return _SampledW(walk.index, walk.proposal, sampled, _open_scores(walk, sampled, state))

    def shown(
        self,
        scored: _SampledW,
        walk: PolicyState,  # noqa: ARG002
        state: State,  # noqa: ARG002
        lists: Tensor,
        charges: Tensor,  # noqa: ARG002
        costs: Sequence[Tensor],
    ) -> _ShownByW:
        filled, items = lists >= 0, lists.clamp(min=0)
        spent = [(cost.to(lists.device)[items] * filled).sum(1) for cost in costs]
        table = torch.stack(spent, dim=1) if spent else lists.new_zeros(len(lists), 0)
        return _ShownByW(scored, lists, table)

    def answered(self, shown: _ShownByW, outcome: Outcome) -> None:
        of = shown.scored
        self.recorder.note(
            of.index, of.proposal, of.sampled, shown.lists, outcome.reward, shown.spent
        )

    def trajectories(self, walk: PolicyState) -> Trajectories:
        recorded, self.recorder = self.recorder, Recorder()
        return recorded.trajectories(walk)


@dataclass(frozen=True)
class _Logits:
    logits: Sequence[Tensor]  # before the noise of exploration
    scores: Sequence[Tensor]


@dataclass(frozen=True)
class _ShownItems:
    propensities: Tensor  # (b, K)
    step: "_ShownStep | None"  # None of a policy that does not learn


@dataclass(frozen=True)
class _ShownStep:
    """One step of all users: the menus that they were served from, and the lists."""

    users: Tensor  # (b,)
    queues: Tensor  # (b, N)
    menus: CandidateSet
    costs: Tensor  # (b, C, limits) of all items of the menus
    charges: Tensor  # (b, K, C)
    open_items: Tensor  # (b, C)
    chosen: Tensor  # (b, K) places on the menus
    propensities: Tensor  # (b, K)
    lists: Tensor  # (b, K)
    spent: Tensor  # (b, limits) what the lists cost


class SoftmaxOnline:
    """Items are ordered by their logits, or drawn: with Gumbel noise of temperature `explore`.

    The propensity of an item is its chance given the prices of the step. The control shows the item
    with the highest logit + noise - charge; with the charges as they came out, that is item i with
    the chance softmax((logit - charge) / explore)_i over the open items, for longer lists given the
    items before it (Plackett-Luce). Prices depend on the noise of all users together, and on that
    of one user only where this user is the one at the margin of a budget. Without a limit that
    binds, charges are 0 and propensities unconditional. Without exploration all of them are 1.
    """

    def __init__(self, config: FcpoConfig, generator: torch.Generator, *, learns: bool) -> None:
        self.explore, self.candidates = config.explore, config.candidates
        self.attention = attention_of(config)
        self.generator, self.learns = generator, learns
        # the latest steps and their rewards (b,)
        self.noted: deque[tuple[_ShownStep, Tensor]] = deque(maxlen=MOST_STEPS)
        self.on_menus: Tensor | None = None  # (b, C) items of the present states
        self.moved: Tensor | None = None  # (b,) bool: users in a new state since the last step

    @property
    def steps(self) -> int:
        return len(self.noted)

    def score(self, walk: PolicyState, state: State) -> _Logits:
        logits = _open_scores(walk, walk.outputs, state)
        if not self.explore:
            return _Logits(logits, logits)
        return _Logits(logits, explored(logits, self.explore, self.generator))

    def shown(
        self,
        scored: _Logits,
        walk: PolicyState,
        state: State,
        lists: Tensor,
        charges: Tensor,
        costs: Sequence[Tensor],
    ) -> _ShownItems:
        charges = charges.to(scored.logits[0])
        chances = torch.ones(lists.shape, device=lists.device)
        if self.explore:
            values = [slot - charge for slot, charge in zip(scored.logits, charges, strict=True)]
            chances = propensities(values, lists, self.explore)
        if not self.learns:
            return _ShownItems(chances, None)
        table = torch.stack([cost.to(charges) for cost in costs], dim=1)  # (n_items, limits)
        step = self._step(walk, state, lists, charges, table, chances)
        return _ShownItems(chances, step)

    def _step(
        self,
        walk: PolicyState,
        state: State,
        lists: Tensor,
        charges: Tensor,
        costs: Tensor,
        chances: Tensor,
    ) -> _ShownStep:
        menus = walk.signals.offer(self._items(walk, state), lists)
        at, empty = menus.items.clamp(min=0), lists < 0
        places = (menus.items[:, None, :] == lists[:, :, None]).int().argmax(2)
        return _ShownStep(
            state.users,
            walk.actor.items.remember(state.queue),
            menus,
            costs[at],
            charges[:, at].transpose(0, 1),
            (menus.items >= 0) & ~state.blocked_sets.contains(menus.items),
            places.masked_fill(empty, -1),
            chances,
            lists,
            costs[lists.clamp(min=0)].masked_fill(empty[:, :, None], 0.0).sum(1),
        )

    def _items(self, walk: PolicyState, state: State) -> Tensor:
        """The items of the menus: chosen anew for users in a new state, and after an update."""
        if self.on_menus is None:
            everybody = torch.arange(len(state.users)).to(state.users)
            self.on_menus = walk.signals.on_menus(everybody, state.blocked_sets, self.candidates)
        elif self.moved is not None and self.moved.any():
            rows = self.moved.nonzero().squeeze(1)
            fresh = walk.signals.on_menus(rows, state.blocked_sets, self.candidates)
            self.on_menus = self.on_menus.index_copy(0, rows, fresh)
        return self.on_menus

    def answered(self, shown: _ShownItems, outcome: Outcome) -> None:
        """Of the feedback only `outcome.hits` is read: the answers to the items of the lists."""
        assert shown.step is not None
        hits = outcome.hits & (shown.step.lists >= 0)
        self.noted.append((shown.step, hits.float() @ self.attention.to(hits.device)))
        self.moved = outcome.hits.any(1)

    def trajectories(self, walk: PolicyState) -> Trajectories:  # noqa: ARG002
        steps, rewards = zip(*self.noted, strict=True)
        self.noted.clear()
        self.on_menus = None  # the policy may learn
        n, T = len(steps[0].users), len(steps)

        def by_state(name: str) -> Tensor:
            """Step after step, all users of one together."""
            return torch.cat([getattr(step, name) for step in steps])

        def by_user(name: str) -> Tensor:
            return torch.stack([getattr(step, name) for step in steps], dim=1)

        menus = [step.menus for step in steps]
        index = torch.arange(n)[:, None] + n * torch.arange(T)
        return Trajectories(
            by_state("users"),
            by_state("queues"),
            index.to(steps[0].users),
            proposals=rewards[0].new_zeros(n, T, 0),
            log_probs=by_user("propensities").log().sum(2),
            lists=by_user("lists"),
            rewards=torch.stack(rewards, dim=1),
            costs=by_user("spent"),
            menus=ShownRecord(
                type(menus[0]).join(menus),
                by_state("costs"),
                by_state("charges"),
                by_user("open_items"),
                by_user("chosen"),
                by_user("propensities"),
            ),
        )


def _open_scores(walk: PolicyState, proposals: Tensor, state: State) -> Sequence[Tensor]:
    """(b, n_items) scores by each row of W, -inf for blocked items."""
    slots = walk.actor.scores(proposals, walk.signals)
    return [slot.masked_fill_(state.blocked, -torch.inf) for slot in slots]


def online_policy(
    actor: Actor, config: FcpoConfig, generator: torch.Generator, *, learns: bool
) -> OnlinePolicy[Any, Any]:
    """The policy of the actor's head."""
    if isinstance(actor.head, SoftmaxHead):
        return SoftmaxOnline(config, generator, learns=learns)
    return GaussianOnline(generator)


# ---- Serve, observe, update ----------------------------------------------------------------------
class OnlineFcpo:
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
        if isinstance(self.actor.items, EnsembleItems) and config.policy == "softmax":
            # The control has the price of the group, exactly; a second one, learned by the policy,
            # could only keep the share below the limit. The policy learns whom to show what.
            self.actor.items = replace(self.actor.items, priced=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.learner = Learner(self.actor, config, max(1, len(limits)))
        self.walk: PolicyState | None = None
        self.policy = online_policy(self.actor, config, self.generator, learns=self.learns)
        self.last: Shown | None = None  # of the last step
        self.left: list[list[float]] = []  # budgets of every limit before each step to learn from

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if self.walk is None:
            check_table(*state.blocked_sets.shape, "serving step by step under limits")
            self.walk = PolicyState(self.actor, state, exposure.sensitive)
        walk = self.walk
        walk.signals.relabel(exposure.sensitive.to(state.users.device))
        if self.learns:
            showings = len(state.users) * self.config.list_length
            self.left.append([limit.budget(exposure, showings) for limit in self.limits])
        scored = self.policy.score(walk, state)
        costs = [limit.costs(exposure) for limit in self.limits]
        lists = self.control.choose(self._valued(scored.scores, state, exposure), exposure)
        charges = self.control.charges
        self.last = self.policy.shown(scored, walk, state, lists, charges, costs)
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
        (`SoftmaxOnline` says what that leaves out); 1 without exploration and for an empty slot.
        None of a Gaussian policy, which samples W instead of items.
        """
        return None if self.last is None else self.last.propensities

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        assert self.walk is not None
        self.walk.observe(outcome)
        self.state = outcome.state
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        if self.learns:
            self.policy.answered(self.last, outcome)

    def update(self) -> None:
        """A round of Algorithm 1 on the trajectories since the last one."""
        if self.walk is not None and self.policy.steps:
            trajectories = self.policy.trajectories(self.walk)
            limits = self._limits(len(trajectories), trajectories.rewards.shape[1])
            self.learner.learn(trajectories, limits, self.generator)
            self.left = []
            self.walk.restart(self.state)
        items = self.actor.items
        if isinstance(items, EnsembleItems) and self.retraining and self.retraining.due:
            panel = refitted_ensemble(items.panel, self.retraining.extended(), self.config)
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
        if self.walk is not None and isinstance(self.walk.signals, EnsembleFeatures):
            # computed for other users at a time, they would differ in the last digits
            parts["signals"] = {str(n): values for n, values in enumerate(self.walk.signals.values)}
        if self.retraining is not None:
            parts["retraining"] = self.retraining.tensors()
            if isinstance(self.actor.items, EnsembleItems):
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
            if isinstance(items, EnsembleItems):
                kept = below("panel.", tensors)
                described = kept.pop("description", None)  # none: refitted with its settings
                first = items.panel.description()
                panel = restored_ensemble(kept, first if described is None else of_bytes(described))
                self.actor.items = replace(items, panel=panel)
        self.state, self.walk, self.left = state, None, []
        self.policy = online_policy(self.actor, self.config, self.generator, learns=self.learns)
        self._restore_signals(tensors, state)

    def _restore_signals(self, tensors: dict[str, Tensor], state: State) -> None:
        """Scores as they were stored."""
        if not (seen := below("signals.", tensors)):
            return
        # until it serves, there is no group
        no_group = torch.zeros(state.blocked_sets.shape[1], dtype=torch.bool).to(state.users.device)
        self.walk = PolicyState(self.actor, state, no_group)
        signals = self.walk.signals
        assert isinstance(signals, EnsembleFeatures)  # others are not stored
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


# ---- The same among users who can leave ----------------------------------------------------------
class OnlineFcpoWithRetention(OnlineFcpo):
    """The policy orders items, the retention model says what they are worth to whom.

    The control's price comes on top of that, so who gets the scarce showings is what was learned.
    Online, it is the retention model that learns; the weights of the policy stay.
    """

    def __init__(self, actor: Actor, config: FcpoConfig, *, learn: bool, **plan: Any) -> None:
        quiet = config.model_copy(update={"explore": 0.0})  # noise is added to values instead
        super().__init__(actor, quiet, learn=False, **plan)
        self.explore = config.explore
        if config.list_length != 1:
            raise ConfigError("value=long is for lists of one item (set value to score)")
        self.retention = RetentionModel(
            config.gamma_r,
            settings=config.looking_ahead,
            share=self.limits[0].limit_per_showing if self.limits else 1.0,
            seed=plan["seed"],
        )
        self.learns_online, self._is_begun = learn and config.looking_ahead.online, False

    def _valued(
        self, scores: Sequence[Tensor], state: State, exposure: Exposure
    ) -> Sequence[Tensor]:
        if not self._is_begun:
            self.retention.begin(state.blocked_sets.counts())
            self._is_begun = True
        (slot,) = scores
        self._valued_items = self.retention.valued(slot, exposure.sensitive)
        values = self._valued_items.values.to(slot)
        if self.explore:
            (values,) = explored([values], self.explore, self.generator)
        return [values]

    @property
    def propensities(self) -> Tensor | None:
        """(b, 1) the chance of each item shown, given the prices of the step."""
        if not self.explore:
            return super().propensities
        values = self._valued_items.values.to(self._lists.device)
        charges = self.control.charges.to(values)
        return propensities([values - charges[0]], self._lists, self.explore)

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        super().observe(lists, outcome, exposure)
        self._lists = lists
        self.retention.note(
            self._valued_items, lists, outcome.hits, outcome.state.here, self.control.charges[0]
        )

    def update(self) -> None:
        super().update()
        if self.learns_online and self.retention.has_news:
            self.retention.learn(going_on=1)

    def notes(self) -> dict[str, float]:
        """Also what a like is worth, in the mean over the users, and where it explores the mean
        propensity of what was shown."""
        worth = self.retention.worth(self._valued_items)
        notes = {**super().notes(), "worth of a like": float(worth.mean())}
        shown = self._lists >= 0
        if self.explore and self.propensities is not None and shown.any():
            notes["mean propensity"] = float(self.propensities[shown].mean())
        return notes

    def tensors(self) -> dict[str, Tensor]:
        own = {f"retention.{name}": value for name, value in self.retention.tensors().items()}
        return {**super().tensors(), **own}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        super().restore(tensors, state)
        self.retention.restore(below("retention.", tensors))
        self._is_begun = True


def online_fcpo(
    actor: Actor, config: FcpoConfig, queue_length: int, plan: ServingPlan, seed: int
) -> OnlineFcpo:
    """The server that the settings ask for."""
    kind = OnlineFcpoWithRetention if config.value == "long" else OnlineFcpo
    return kind(
        actor,
        config,
        queue_length=queue_length,
        limits=plan.limits,
        learn=plan.learn,
        seed=seed,
        retraining=plan.retraining(),
    )
