"""A leap of the policy to what the critics say, before rounds of CPO.

A round goes no further than its trust region, and ends where a step of that size is no longer
confirmed. But the critics of half of the users say themselves what a like is worth in a state,

    1 + gamma (W_1 - W_0) - price gamma (C_1 - C_0),

so the actor can be fitted to that. It stays there if the critics of the other half find at least
half of the improvement; else it is where it was before. The limit is in it by the price: what a
step may spend is the control's, and what comes later is paid for.
"""

from torch import Tensor

from fairhorizon.fcpo.learning.update import FlatActor
from fairhorizon.fcpo.outlook.actor import BOUND, MoodActor
from fairhorizon.fcpo.outlook.offers import CONFIRMED, HALVES, OfferedSteps, OfferSurrogate

ITERATIONS = 100  # of L-BFGS
LEAST = 0.1  # worth of a like: critics are noisy, a logarithm is not defined below 0
WITHIN = 0.95  # part of the actor's bound that it is fitted to: at the bound it has no slope


def leap(actor: MoodActor, steps: OfferedSteps, temperature: float) -> None:
    """By the critics of the one half, and on from there by those of the other; steps: priced."""
    policy = FlatActor(actor)
    for half in range(HALVES):
        before, outputs = policy.theta, actor.worths(steps.states)
        actor.fit(steps.states, _logarithms(steps, half), ITERATIONS)
        after = actor.worths(steps.states)
        own, other = (
            float(OfferSurrogate(steps, of, outputs, temperature).evaluate(after).reward)
            for of in (half, HALVES - 1 - half)
        )
        if not other > CONFIRMED * abs(own):
            policy.adopt(before)


def _logarithms(steps: OfferedSteps, half: int) -> Tensor:
    """(n,) of the worth by the critics of a half, 1 in the mean over the users of a step."""
    worth = steps.worth(half).clamp(min=LEAST)
    return (worth / steps.mean(worth)).log().clamp(-WITHIN * BOUND, WITHIN * BOUND)
