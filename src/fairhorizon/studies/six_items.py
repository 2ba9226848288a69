"""The example of the paper's introduction, small enough to be solved exactly.

Six items; the two with the most showings so far are popular, decided again after every showing. D
is not popular, and by far the item that is clicked most. A and B were popular in the past. At most
a share alpha' of all showings may be of items that are popular at that moment.

A showing changes who is popular later. So it can pay to show A or B, which costs some of the limit
and earns few clicks, because they stay ahead of D, and D can be shown for longer as an unpopular
item. No rule that looks at one step alone does that.

A state is how often each item was shown. Clicks and limit are expectations, so every policy is
measured exactly, by the chance of each state at each step; nothing here is estimated from samples
but what FCPO learns from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairhorizon.fcpo.cpo import Fisher, Predicted, Surrogate, TrustRegion, update_policy
from fairhorizon.fcpo.learner import (
    generalized_advantages,
    remaining,
    temporal_difference_targets,
)
from fairhorizon.fcpo.networks import Critic
from fairhorizon.metrics.fairness import gini
from fairhorizon.studies.rows import row_content

Floats = NDArray[np.float64]
Policy = Sequence[Floats]  # for each step, (states, items) the chance of showing each item

HALVINGS = 30  # of a price
# policies
PARITY, MYOPIC, PRICE, FCPO, OPTIMUM = "fixed parity", "myopic", "one price", "fcpo", "optimum"


@dataclass(frozen=True)
class SixItems:
    """The items, and the limit on those that are popular."""

    names: tuple[str, ...] = ("A", "B", "C", "D", "E", "F")
    clicks: tuple[float, ...] = (0.3, 0.2, 0.2, 0.9, 0.1, 0.3)  # the chance of each item's click
    before: tuple[int, ...] = (9, 8, 4, 6, 3, 2)  # showings before the first step
    popular: int = 2  # size of the group
    steps: int = 12
    alpha_prime: float = 0.3

    @property
    def limit(self) -> float:
        """d of equation 11 with gamma_c = 1: the largest expected number of popular showings."""
        return self.alpha_prime * self.steps

    @cached_property
    def states(self) -> list[NDArray[np.int64]]:
        """For each step and the end, (states, items) how often each item was shown."""
        return [_compositions(step, len(self.names)) for step in range(self.steps + 1)]

    @cached_property
    def following(self) -> list[NDArray[np.int64]]:
        """For each step, (states, items) the state after the item is shown."""
        # A state as one number: its counts are digits of a base that no count reaches, so that the
        # state after a showing can be looked up.
        digits = (self.steps + 2) ** np.arange(len(self.names))
        tables = []
        for now, then in zip(self.states, self.states[1:], strict=False):
            keys = then @ digits
            order = np.argsort(keys)
            after = (now @ digits)[:, None] + digits
            tables.append(order[np.searchsorted(keys[order], after)])
        return tables

    @cached_property
    def labels(self) -> list[NDArray[np.bool_]]:
        """For each step, (states, items) who is popular; of two with equal showings, the first."""
        tables = []
        for shown in self.states[:-1]:
            order = np.argsort(-(shown + np.array(self.before)), axis=1, kind="stable")
            label = np.zeros(shown.shape, dtype=np.bool_)
            np.put_along_axis(label, order[:, : self.popular], True, axis=1)
            tables.append(label)
        return tables

    @property
    def click_chances(self) -> Floats:
        return np.array(self.clicks)


def _compositions(total: int, parts: int) -> NDArray[np.int64]:
    """(n, parts) all ways to write a total as so many numbers from 0 on."""
    # Stars and bars: parts - 1 bars among total + parts - 1 places; the gaps are the numbers.
    bars = np.array(list(combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    walls = [np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), total + parts - 1)]
    return np.diff(np.hstack(walls), axis=1) - 1


# ---- What came of a policy -----------------------------------------------------------------------
@dataclass(frozen=True)
class SixItemsRow:
    """The expected outcome of a policy."""

    policy: str
    alpha_prime: float
    seed: int | None  # None: nothing is drawn
    clicks: float  # per showing
    popular: float  # share of all showings, by the labels of the moment
    shares: tuple[float, ...]  # of all showings, by item
    gini: float  # of these shares
    popular_so_far: tuple[float, ...]  # after each step, the share of all showings until then

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def measured(world: SixItems, name: str, policy: Policy, *, seed: int | None = None) -> SixItemsRow:
    """The outcome of a policy, by the chance of each state at each step."""
    chances: Floats = np.ones(1)  # of the states of the step
    by_item, popular = np.zeros(len(world.names)), []
    for choice, labels, following in zip(policy, world.labels, world.following, strict=True):
        shown = chances[:, None] * choice  # (states, items)
        by_item += shown.sum(0)
        popular.append(shown[labels].sum())
        chances = _following_chances(shown, following)
    return SixItemsRow(
        name,
        world.alpha_prime,
        seed,
        clicks=float(by_item @ world.click_chances) / world.steps,
        popular=sum(popular) / world.steps,
        shares=tuple((by_item / world.steps).tolist()),
        gini=gini(by_item),
        popular_so_far=tuple((np.cumsum(popular) / np.arange(1, world.steps + 1)).tolist()),
    )


def _following_chances(shown: Floats, following: NDArray[np.int64]) -> Floats:
    """(states of the next step,) by the chance of each state and item (states, items)."""
    # Several states may lead to the same one; their chances add up.
    return np.bincount(following.ravel(), shown.ravel()).astype(np.float64)


def mixed(world: SixItems, name: str, below: Policy, above: Policy) -> SixItemsRow:
    """One of two policies for a whole run, the second as often as the limit allows."""
    low, high = measured(world, name, below), measured(world, name, above)
    # Expectations of a mixture of whole runs are linear in its weight.
    room, more = world.alpha_prime - low.popular, high.popular - low.popular
    weight = min(1.0, room / more) if more > 0 else 0.0

    def between(own: Any, other: Any) -> Floats:
        return (1 - weight) * np.array(own) + weight * np.array(other)

    shares = between(low.shares, high.shares)
    return SixItemsRow(
        name,
        world.alpha_prime,
        None,
        float(between(low.clicks, high.clicks)),
        float(between(low.popular, high.popular)),
        tuple(shares.tolist()),
        gini(shares),
        tuple(between(low.popular_so_far, high.popular_so_far).tolist()),
    )


# ---- Rules that look at one step -----------------------------------------------------------------
def fixed_parity(world: SixItems) -> Policy:
    """Half of the showings to the items that were popular at first, half to the others.

    In each group the item with the most clicks. Groups stay as they were.
    """
    group, clicks = world.labels[0][0], world.click_chances
    chances = np.zeros(len(clicks))
    for members in (group, ~group):
        chances[np.where(members, clicks, -1).argmax()] = 0.5
    return [np.tile(chances, (len(shown), 1)) for shown in world.states[:-1]]


def myopic(world: SixItems) -> Policy:
    """At every step the most clicks within the limit on all showings so far, by the labels now.

    As the control of the long run has it: shown is the best popular item or the best other one, and
    what the limit leaves goes first to the states in which the popular one gains most. What one
    step leaves over is there for the next.
    """
    clicks, policy = world.click_chances, []
    chances, left = np.ones(1), 0.0  # of the states of the step, and of the limit
    for labels, following in zip(world.labels, world.following, strict=True):
        popular = np.where(labels, clicks, -1).argmax(1)
        other = np.where(labels, -1, clicks).argmax(1)
        gains = clicks[popular] - clicks[other]
        left += world.alpha_prime
        share = np.zeros(len(labels))
        for gain in np.unique(gains[gains > 0])[::-1]:
            alike = gains == gain
            there = chances[alike].sum()
            # States with the same gain are treated alike; a state that is never met needs no room.
            share[alike] = np.clip(left / there, 0, 1) if there > 0 else 1.0
            left -= float(chances[alike] @ share[alike])
        choice, rows = np.zeros(labels.shape), np.arange(len(labels))
        choice[rows, popular] = share
        choice[rows, other] = 1 - share
        policy.append(choice)
        chances = _following_chances(chances[:, None] * choice, following)
    return policy


def at_price(world: SixItems, price: float) -> Policy:
    """The item with the most clicks less a price for popular ones, which is always the same."""
    return [_one_each(world.click_chances - price * labels) for labels in world.labels]


# ---- The optimum ---------------------------------------------------------------------------------
def optimal_at_price(world: SixItems, price: float) -> Policy:
    """L_t(s) = max_i clicks_i - price [i popular in s] + L_{t+1}(s after i), from the last step."""
    ahead, policy = np.zeros(len(world.states[-1])), []
    for labels, following in zip(world.labels[::-1], world.following[::-1], strict=True):
        values = world.click_chances - price * labels + ahead[following]
        policy.append(_one_each(values))
        ahead = values.max(1)
    return policy[::-1]


def within_limit(
    world: SixItems, name: str, family: Callable[[SixItems, float], Policy]
) -> SixItemsRow:
    """Of a family of policies by price, the mixture of two whose popular share is the limit."""
    # The share of popular items falls with the price; at the upper end none is shown. Where the
    # share jumps over the limit, the two policies beside the jump are mixed.
    low, high = 0.0, 1.0 + max(world.clicks)
    for _ in range(HALVINGS):
        price = (low + high) / 2
        over = measured(world, name, family(world, price)).popular > world.alpha_prime
        low, high = (price, high) if over else (low, price)
    return mixed(world, name, family(world, high), family(world, low))


def _one_each(values: Floats) -> Floats:
    """(states, items) 1 for the best item of each state, the first of several."""
    choice = np.zeros(values.shape)
    choice[np.arange(len(values)), values.argmax(1)] = 1.0
    return choice


# ---- FCPO ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Learning:
    """Settings of FCPO on the six items."""

    rounds: int = 150
    trajectories: int = 400  # of a round
    hidden: tuple[int, int] = (32, 32)
    # What showing A is good for comes only steps later: advantages are whole returns.
    gae_lambda: float = 1.0
    delta: float = 0.01  # largest KL divergence of an update
    damping: float = 0.01
    critic_iterations: int = 10
    safety: float = 2.0  # standard errors between the cost of the sample and the limit


class SmallActor(nn.Module):
    """Logits of the items from what was shown so far; the policy is their softmax."""

    def __init__(self, n_features: int, n_items: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_features, hidden[0]),
            nn.Tanh(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Tanh(),
            nn.Linear(hidden[1], n_items),
        )

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.body(features)
        return logits


def features_of(world: SixItems, step: int, states: NDArray[np.int64]) -> Tensor:
    """(b, 2 items + 1) showings relative to the last popular item, labels, and steps left.

    states: (b,) rows of the step.
    """
    counts = world.states[step][states] + np.array(world.before)
    border = np.sort(counts, axis=1)[:, [-world.popular]]
    left = np.full((len(states), 1), 1 - step / world.steps)
    parts = [(counts - border) / 4, world.labels[step][states], left]
    return torch.from_numpy(np.hstack(parts)).float()


def train_fcpo(world: SixItems, seed: int, learning: Learning | None = None) -> Policy:
    """Algorithm 1 to its last round: trajectories, two critics, and a step of CPO.

    It is told the labels and the counts, not the chances of clicks: it learns from clicks.
    """
    learning = learning or Learning()
    draws = np.random.default_rng(seed)
    sample = torch.Generator().manual_seed(seed)
    n_features = 2 * len(world.names) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = SmallActor(n_features, len(world.names), learning.hidden)
        critics = [Critic(n_features, learning.hidden) for _ in range(2)]
    region = TrustRegion(learning.delta, iterations=10, ratio=0.8, attempts=10)
    ahead = remaining(1.0, world.steps)
    index = torch.arange(learning.trajectories * world.steps).view(-1, world.steps)
    for _ in range(learning.rounds):
        features, actions, signals = _trajectories(world, actor, learning.trajectories, draws)
        advantages, fits = [], []
        for critic, signal in zip(critics, signals, strict=True):
            with torch.no_grad():
                per_step = critic(features)[index]
                last = per_step.new_zeros(len(index), 1)
                values = torch.cat([per_step, last], dim=1) * ahead
                found = generalized_advantages(signal, values, 1.0, learning.gae_lambda)
                targets = temporal_difference_targets(signal, values, 1.0)
            advantages.append((found - found.mean(0)).flatten())
            fits.append((critic, targets))
        surrogate = _surrogate(actor, features, actions, torch.stack(advantages), len(index))
        # The cost is that of a sample, and the limit is on its expectation.
        costs = signals[1].sum(1)
        gap = costs.mean() + learning.safety * costs.std() / len(costs) ** 0.5 - world.limit
        fisher = surrogate.sample(512, sample)
        update_policy(actor, (features,), surrogate, fisher, gap[None], region, learning.damping)
        for critic, targets in fits:
            critic.fit(features, index, targets, ahead[:-1], learning.critic_iterations)
    return policy_of(world, actor)


@torch.no_grad()
def policy_of(world: SixItems, actor: nn.Module) -> Policy:
    """The chances of the items in every state."""
    policy = []
    for step, shown in enumerate(world.states[:-1]):
        logits = actor(features_of(world, step, np.arange(len(shown))))
        policy.append(logits.double().softmax(1).numpy())
    return policy


@torch.no_grad()
def _trajectories(
    world: SixItems, actor: nn.Module, n: int, draws: np.random.Generator
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Features (n steps, f) and items (n steps,), one trajectory after the other.

    And clicks and costs (n, steps).
    """
    states = np.zeros(n, dtype=np.int64)
    features, actions, clicks, costs = [], [], [], []
    for step in range(world.steps):
        features.append(features_of(world, step, states))
        chances = actor(features[-1]).double().softmax(1).numpy()
        # A draw per row by inversion: the number of cumulative chances below a uniform number.
        items = (chances.cumsum(1) < draws.random((n, 1))).sum(1).clip(max=chances.shape[1] - 1)
        actions.append(items)
        clicks.append(draws.random(n) < world.click_chances[items])
        costs.append(world.labels[step][states, items])
        states = world.following[step][states, items]
    signals = [torch.from_numpy(np.stack(part, axis=1)).float() for part in (clicks, costs)]
    return (
        torch.stack(features, dim=1).flatten(0, 1),
        torch.from_numpy(np.stack(actions, axis=1)).flatten(),
        (signals[0], signals[1]),
    )


def _surrogate(
    actor: nn.Module, states: Tensor, actions: Tensor, advantages: Tensor, trajectories: int
) -> Surrogate:
    """Equation 3 on sampled items, each weighted by the ratio of its chances.

    advantages: (2, steps of all trajectories), of clicks and of the cost.
    """
    with torch.no_grad():
        present = actor(states).log_softmax(1)
    rows = torch.arange(len(actions))

    def evaluate(outputs: Tensor) -> Predicted:
        new = outputs.log_softmax(1)
        ratio = torch.expm1(new[rows, actions] - present[rows, actions])
        reward, cost = advantages @ ratio / trajectories
        kl = (new.exp() * (new - present)).sum(1).mean()
        return Predicted(reward, cost[None], kl)

    def sample(size: int, generator: torch.Generator) -> Fisher:
        some = torch.randperm(len(rows), generator=generator)[:size]
        chances = present[some].exp()

        def product(tangent: Tensor) -> Tensor:
            # (diag P - P P') v, the Fisher matrix of a softmax in its logits.
            centred = tangent - (chances * tangent).sum(1, keepdim=True)
            pulled: Tensor = chances * centred / len(some)
            return pulled

        return Fisher(some, product)

    return Surrogate(evaluate, sample)


def fcpo_row(world: SixItems, seed: int, learning: Learning | None = None) -> SixItemsRow:
    """The policy of the last round."""
    return measured(world, FCPO, train_fcpo(world, seed, learning), seed=seed)


# ---- All of them ---------------------------------------------------------------------------------
def rivals(world: SixItems) -> list[SixItemsRow]:
    """Everybody but FCPO, the optimum last."""
    return [
        measured(world, PARITY, fixed_parity(world)),
        measured(world, MYOPIC, myopic(world)),
        within_limit(world, PRICE, at_price),
        within_limit(world, OPTIMUM, optimal_at_price),
    ]
