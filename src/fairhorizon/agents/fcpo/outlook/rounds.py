"""Rounds of CPO on recorded steps: who should get the scarce showings of the limited group.

In a step the policy chooses between two offers, the best item of the group and the best of the
rest, by  softmax((worth(s) p + kind - charge) / temperature).  p is the chance of a like, `kind`
what is to come by the kind of the item, and the charge what the control took off by its price,
which is part of the environment. What both offers bring is known by the critics, so that surrogates
are sums over both:

    A(s, i)   = p + gamma (p W_1 + (1 - p) W_0)
    A_c(s, i) = 1[i in G0] + gamma (p C_1 + (1 - p) C_0)

and no offer has to be weighed by the chance that it had of being shown.

Critics are noisy where likes are rare, and a policy can be improved by noise as well. So there are
two of each, learned from the two halves of the users. A round improves the policy by the one, and
is taken back unless it is an improvement by the other, which knows nothing of the noise of the
first. Rounds end when neither half has an improvement that the other confirms.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.agents.fcpo.learning.cpo import Predicted, TrustRegion, Update
from fairhorizon.agents.fcpo.learning.fisher_metric import SoftmaxFisher
from fairhorizon.agents.fcpo.learning.update import FlatActor, take_step
from fairhorizon.agents.fcpo.looking_ahead import LookingAhead
from fairhorizon.agents.fcpo.outlook.actor import MoodActor
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.policy.softmax import ItemPolicy, rows_of

HALVES = 2  # of the users, with critics of their own
MOST_STEPS = 40_000  # recorded steps that a round learns from, drawn at random if there are more
FISHER_STATES = 2_000
DAMPING = 1e-3
ITERATIONS, RATIO, ATTEMPTS = 10, 0.7, 10  # of conjugate gradients, and of the line search
TOLERANCE = 0.0125  # part of what the limit allows that the rounds may add to what is spent


@dataclass(frozen=True)
class OfferedSteps:
    """Recorded steps with two offers each, in which the group could be shown or not."""

    states: Tensor  # (n, size)
    chances: Tensor  # (n, 2) of a like
    added: Tensor  # (n, 2) what is added to the value of an offer: by its kind, less the charge
    advantages: Tensor  # (halves, 2, n, 2) in likes, and in what is spent of the limit
    weights: Tensor  # (n,) discounts

    def some(self, generator: torch.Generator) -> "OfferedSteps":
        """At most MOST_STEPS of them."""
        rows = torch.randperm(len(self.states), generator=generator)[:MOST_STEPS]
        return OfferedSteps(
            self.states[rows],
            self.chances[rows],
            self.added[rows],
            self.advantages[:, :, rows],
            self.weights[rows],
        )


class OfferSurrogate:
    """Predicted changes per showing, discounted, by the present policy's choices of offers."""

    def __init__(self, steps: OfferedSteps, half: int, outputs: Tensor, temperature: float) -> None:
        """half: by whose critics."""
        self.steps, self.temperature = steps, temperature
        self.advantages = steps.advantages[half]
        items = torch.arange(2).expand(len(steps.states), 2)
        self.menus = SignalMenus(items, steps.chances[:, :, None])
        self.scale = steps.weights / len(steps.states)
        self.present = self._policy(outputs)

    def _policy(self, outputs: Tensor) -> ItemPolicy:
        logits = self.menus.logits(rows_of(outputs, 1)) + self.steps.added[:, None]
        return ItemPolicy.of(logits / self.temperature, torch.ones_like(logits, dtype=torch.bool))

    def evaluate(self, outputs: Tensor) -> Predicted:
        new = self._policy(outputs)
        moved = (new.probs - self.present.probs).squeeze(1)
        reward, cost = ((moved * self.advantages).sum(2) @ self.scale).unbind()
        return Predicted(reward, cost[None], new.kl_from(self.present).mean())

    def sample(self, size: int, generator: torch.Generator) -> SoftmaxFisher:
        some = torch.randperm(len(self.steps.states), generator=generator)[:size]
        return SoftmaxFisher(some, self.menus.take(some), self.present.take(some), self.temperature)


def improve(
    actor: MoodActor,
    steps: OfferedSteps,
    share: float,
    settings: LookingAhead,
    generator: torch.Generator,
) -> list[Update]:
    """Rounds of CPO on the actor, those that were taken; share: of the limit.

    The control spends what the limit allows, by its own count, so d is what was spent, and a little
    room for steps that bend.
    """
    steps = steps.some(generator)
    region = TrustRegion(settings.kl_limit, ITERATIONS, RATIO, ATTEMPTS)
    scale = steps.weights / len(steps.weights)
    gap = -TOLERANCE * share * scale.sum()
    updates: list[Update] = []
    policy, unconfirmed = FlatActor(actor), 0
    for number in range(settings.rounds):
        half, other = number % HALVES, (number + 1) % HALVES
        before, outputs = policy.theta, _outputs(actor, steps)
        surrogate = OfferSurrogate(steps, half, outputs, settings.temperature)
        metric = surrogate.sample(FISHER_STATES, generator)
        update = take_step(actor, (steps.states,), surrogate, metric, gap[None], region, DAMPING)
        check = OfferSurrogate(steps, other, outputs, settings.temperature)
        if update.fraction and check.evaluate(_outputs(actor, steps)).reward > 0:
            gap = gap + update.cost_changes[0]  # what the next step starts from, as predicted
            updates.append(update)
            unconfirmed = 0
            continue
        policy.adopt(before)
        unconfirmed += 1
        if unconfirmed == HALVES:
            break
    actor.level(steps.states)
    return updates


@torch.no_grad()
def _outputs(actor: MoodActor, steps: OfferedSteps) -> Tensor:
    outputs: Tensor = actor(steps.states)
    return outputs
