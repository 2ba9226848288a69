"""Rounds of CPO on recorded steps: who should get the scarce showings of the limited group.

A round improves the policy by the critics of one half of the users, and is taken back unless those
of the other half find at least half of the improvement (offers.py). Rounds end when neither half
has one that the other confirms.
"""

import torch

from fairhorizon.fcpo.learning.cpo import TrustRegion, Update
from fairhorizon.fcpo.learning.update import FlatActor, take_step
from fairhorizon.fcpo.looking_ahead import LookingAhead
from fairhorizon.fcpo.outlook.actor import MoodActor
from fairhorizon.fcpo.outlook.leap import leap
from fairhorizon.fcpo.outlook.offers import CONFIRMED, HALVES, OfferedSteps, OfferSurrogate

FISHER_STATES = 2_000
DAMPING = 1e-3
ITERATIONS, RATIO, ATTEMPTS = 10, 0.7, 10  # of conjugate gradients, and of the line search
TOLERANCE = 0.0125  # part of what the limit allows that the rounds may add to what is spent


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
    steps = steps.priced(actor.worths(steps.states), settings.temperature)
    region = TrustRegion(settings.kl_limit, ITERATIONS, RATIO, ATTEMPTS)
    scale = steps.weights / len(steps.weights)
    gap = -TOLERANCE * share * scale.sum()
    if settings.leap:
        leap(actor, steps, settings.temperature)
    updates: list[Update] = []
    policy, unconfirmed = FlatActor(actor), 0
    for number in range(settings.rounds):
        half, other = number % HALVES, (number + 1) % HALVES
        before, outputs = policy.theta, actor.worths(steps.states)
        surrogate = OfferSurrogate(steps, half, outputs, settings.temperature)
        metric = surrogate.sample(FISHER_STATES, generator)
        update = take_step(actor, (steps.states,), surrogate, metric, gap[None], region, DAMPING)
        check = OfferSurrogate(steps, other, outputs, settings.temperature)
        found = float(check.evaluate(actor.worths(steps.states)).reward)
        if update.fraction and found > CONFIRMED * abs(update.reward_change):
            gap = gap + update.cost_changes[0]  # what the next step starts from, as predicted
            updates.append(update)
            unconfirmed = 0
            continue
        policy.adopt(before)
        unconfirmed += 1
        if unconfirmed == HALVES:
            break
    return updates
