"""What a like of a user is worth in a state: the policy, and the rounds of CPO that improve it."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.cpo import (
    Fisher,
    FlatActor,
    Predicted,
    Surrogate,
    TrustRegion,
    Update,
    update_policy,
)
from fairhorizon.fcpo.policies import ItemPolicy
from fairhorizon.fcpo.retention.critics import GROUP, REST
from fairhorizon.fcpo.surrogates import softmax_fisher
from fairhorizon.lbfgs import minimise
from fairhorizon.rankers.candidates import ScoredCandidates

# ---- The actor -----------------------------------------------------------------------------------
#     value(u, i) = worth(s_u) P(u likes i)
#
# At first every like is worth 1, and the allocation under the limit is that of the moment. The
# price of the limited group is one for all users; in likes of the moment it is price / worth(s), so
# it is a function of the state: low for those whom a like keeps. A factor of all worths would be
# one of the price as well, and change nothing: who uses them makes their mean 1 over the users of a
# step.

BOUND = 2.0  # of the logarithm: who never gets a showing anyway could be worth less and less


class WorthActor(nn.Module):
    """worth(s), as an exponential: it is positive, and CPO learns by which factor it differs."""

    mean: Tensor
    spread: Tensor

    def __init__(self, state_size: int, hidden: tuple[int, int], seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            head = nn.Linear(hidden[1], 1)
            self.body = nn.Sequential(
                nn.Linear(state_size, hidden[0]),
                nn.Tanh(),
                nn.Linear(hidden[0], hidden[1]),
                nn.Tanh(),
                head,
            )
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.register_buffer("mean", torch.zeros(state_size))
        self.register_buffer("spread", torch.zeros(state_size))  # 0: no state was seen yet

    def forward(self, states: Tensor) -> Tensor:
        """(n, 1) the worth of a like."""
        return self._logarithm(states).exp()

    def _logarithm(self, states: Tensor) -> Tensor:
        known = (states - self.mean) / self.spread.clamp(min=1e-3)
        bounded: Tensor = BOUND * torch.tanh(self.body(known) / BOUND)
        return bounded

    @torch.no_grad()
    def worths(self, states: Tensor) -> Tensor:
        """(n, 1) the same as numbers, without a graph behind them."""
        outputs: Tensor = self(states)
        return outputs

    def fit(self, states: Tensor, logarithms: Tensor, iterations: int) -> None:
        """Least squares on logarithms (n,) of the worth, by L-BFGS from where it is."""
        minimise(
            self.parameters(),
            lambda: (self._logarithm(states).squeeze(1) - logarithms).square().mean(),
            iterations=iterations,
        )

    @torch.no_grad()
    def look_at(self, states: Tensor) -> None:
        """Fix the scale of states by the first that are seen: later, it would move the policy."""
        if not self.spread.any():
            self.mean.copy_(states.mean(0))
            self.spread.copy_(states.std(0).clamp(min=1e-3))


# ---- Recorded steps with two offers, and what a policy that chooses between them brings ----------
# In a step the policy chooses between two offers, the best item of the group and the best of the
# rest, by  softmax((worth(s) p - price 1[i in G0]) / temperature).  p is the chance of a like. The
# price is the control's, and so a part of the environment: one for the group in every step, such
# that the step spends what it spent. Showings cannot be saved for another step, and a worth that is
# larger for everybody changes nothing: it is 1 in the mean over the users of a step. What both
# offers bring is known by the critics, so that surrogates are sums over both:
#
#     A(s, i)   = p + gamma (p W_1 + (1 - p) W_0) - price A_c(s, i)
#     A_c(s, i) = 1[i in G0] + gamma (p C_1 + (1 - p) C_0)
#
# and no offer has to be weighed by the chance that it had of being shown. The price stands in A
# because somebody who stays takes part in later steps, and takes showings from others there, or
# leaves them more.
#
# Critics are noisy where likes are rare, and a policy can be improved by noise as well. So there
# are two of each, learned from the two halves of the users: what is improved by the one has to be
# confirmed by the other, which knows nothing of the noise of the first.

HALVES = 2  # of the users, with critics of their own
MOST_STEPS = 40_000  # recorded steps that a policy learns from, drawn at random if there are more
BISECTIONS, SURE = 30, 20.0  # of a price; logits at which a choice is all but certain
CONFIRMED = 0.5  # part of an improvement that the critics of the other half have to find


@dataclass(frozen=True)
class OfferedSteps:
    """Recorded steps with two offers each, in which the group could be shown or not."""

    states: Tensor  # (n, size)
    probabilities: Tensor  # (n, 2) of a like
    shown: Tensor  # (n,) 1 where an item of the group was shown, else 0
    moments: Tensor  # (n,) number of the step of the run
    usual: Tensor  # (n,) worth of a like in the mean over the users of the step, in likes
    advantages: Tensor  # (halves, 2, n, 2) in likes, and in what is spent of the limit
    weights: Tensor  # (n,) discounts
    after_like: Tensor  # (halves, 2, n) how much more is to come than after none, of the same
    price: float = field(default=0.0, kw_only=True)  # of a showing of the group, in likes

    def some(self, generator: torch.Generator) -> "OfferedSteps":
        """At most MOST_STEPS of them."""
        rows = torch.randperm(len(self.states), generator=generator)[:MOST_STEPS]
        rowwise = ("states", "probabilities", "shown", "moments", "usual", "weights")
        some = {name: getattr(self, name)[rows] for name in rowwise}
        for name in ("advantages", "after_like"):
            some[name] = getattr(self, name)[:, :, rows]
        return OfferedSteps(**some)

    def mean(self, values: Tensor) -> Tensor:
        """(n,) the mean of values (n,) over the rows of the same moment."""
        count = int(self.moments.max()) + 1
        sums = values.new_zeros(count, 2)
        sums = sums.index_add(0, self.moments, torch.stack([values, torch.ones_like(values)], 1))
        return (sums[:, 0] / sums[:, 1].clamp(min=1))[self.moments]

    def values(self, outputs: Tensor) -> Tensor:
        """(n, 2) of the offers before the price, by the actor's outputs (n, 1)."""
        worth = outputs[:, 0] / self.mean(outputs[:, 0])
        return worth[:, None] * self.probabilities

    def prices(self, leads: Tensor, temperature: float) -> Tensor:
        """(n,) the price of the group in each row's step that spends what was spent there, where
        the group leads by so much (n,); the derivative by leads is that of the root."""
        wanted = self.mean(self.shown)
        with torch.no_grad():
            reach = float(leads.abs().max()) + SURE * temperature
            low, high = torch.full_like(leads, -reach), torch.full_like(leads, reach)
            for _ in range(BISECTIONS):
                price = (low + high) / 2
                above = self.mean(torch.sigmoid((leads - price) / temperature)) > wanted
                low, high = torch.where(above, price, low), torch.where(above, high, price)
            price = (low + high) / 2
            chosen = torch.sigmoid((leads - price) / temperature)
            slope = self.mean(chosen * (1 - chosen)) / temperature
        spent = self.mean(torch.sigmoid((leads - price) / temperature))
        return price + (spent - spent.detach()) / slope.clamp(min=1e-6)

    def priced(self, outputs: Tensor, temperature: float) -> "OfferedSteps":
        """With advantages in likes less what is spent of the limit, at the mean price."""
        values = self.values(outputs)
        prices = self.prices(values[:, GROUP] - values[:, REST], temperature)
        price = (prices * self.usual).mean().clamp(min=0)
        likes, costs = self.advantages.unbind(1)
        advantages = torch.stack([likes - price * costs, costs], dim=1)
        return replace(self, advantages=advantages, price=float(price))

    def worth(self, half: int) -> Tensor:
        """(n,) of a like by the critics of a half, with what it costs later at the price of now."""
        likes, costs = self.after_like[half].unbind()
        return 1 + likes - self.price * costs


def offer_surrogate(
    steps: OfferedSteps, half: int, outputs: Tensor, temperature: float
) -> Surrogate:
    """Predicted changes per showing, discounted, by the present policy's choices of offers.

    half: by whose critics.  outputs: (n, 1) of the present actor.
    """
    advantages = steps.advantages[half]
    scale = steps.weights / len(steps.states)

    def policy_of(outputs: Tensor) -> ItemPolicy:
        values = steps.values(outputs)
        prices = steps.prices(values[:, GROUP] - values[:, REST], temperature)
        charged = values - torch.stack([prices, torch.zeros_like(prices)], dim=1)
        logits = charged[:, None] / temperature
        return ItemPolicy.from_logits(logits, torch.ones_like(logits, dtype=torch.bool))

    present = policy_of(outputs)

    def evaluate(outputs: Tensor) -> Predicted:
        new = policy_of(outputs)
        moved = (new.probs - present.probs).squeeze(1)
        reward, cost = ((moved * advantages).sum(2) @ scale).unbind()
        return Predicted(reward, cost[None], new.kl_from(present).mean())

    def sample(size: int, generator: torch.Generator) -> Fisher:
        """Levels and prices are held; the line search knows that they move."""
        some = torch.randperm(len(steps.states), generator=generator)[:size]
        features = (steps.probabilities / steps.mean(outputs[:, 0])[:, None])[some, :, None]
        offers = ScoredCandidates(torch.arange(2).expand(len(some), 2), features)
        return softmax_fisher(some, offers, present.take(some), temperature)

    return Surrogate(evaluate, sample)


# ---- A leap to what the critics say, before rounds of CPO ----------------------------------------
# A round goes no further than its trust region, and ends where a step of that size is no longer
# confirmed. But the critics of half of the users say themselves what a like is worth in a state,
#
#     1 + gamma (W_1 - W_0) - price gamma (C_1 - C_0),
#
# so the actor can be fitted to that. It stays there if the critics of the other half find at least
# half of the improvement; else it is where it was before. The limit is in it by the price: what a
# step may spend is the control's, and what comes later is paid for.

LEAP_ITERATIONS = 100  # of L-BFGS
LEAST_WORTH = 0.1  # worth of a like: critics are noisy, a logarithm is not defined below 0
WITHIN_BOUND = 0.95  # part of the actor's bound that it is fitted to: at the bound it has no slope


def leap(actor: WorthActor, steps: OfferedSteps, temperature: float) -> None:
    """By the critics of the one half, and on from there by those of the other; steps: priced."""
    policy = FlatActor(actor)
    for half in range(HALVES):
        before, outputs = policy.theta, actor.worths(steps.states)
        actor.fit(steps.states, _logarithms(steps, half), LEAP_ITERATIONS)
        after = actor.worths(steps.states)
        own, other = (
            float(offer_surrogate(steps, of, outputs, temperature).evaluate(after).reward)
            for of in (half, HALVES - 1 - half)
        )
        if not other > CONFIRMED * abs(own):
            policy.adopt(before)


def _logarithms(steps: OfferedSteps, half: int) -> Tensor:
    """(n,) of the worth by the critics of a half, 1 in the mean over the users of a step."""
    worth = steps.worth(half).clamp(min=LEAST_WORTH)
    return (worth / steps.mean(worth)).log().clamp(-WITHIN_BOUND * BOUND, WITHIN_BOUND * BOUND)


# ---- Rounds of CPO: who should get the scarce showings of the limited group ----------------------
# A round improves the policy by the critics of one half of the users, and is taken back unless
# those of the other half find at least half of the improvement. Rounds end when neither
# half has one that the other confirms.

TEMPERATURE = 0.03  # of the policy that CPO improves, in likes; serving does not use it
KL_LIMIT = 0.05  # largest mean KL divergence between the policies before and after a round (delta)
FISHER_STATES = 2_000
DAMPING = 1e-3
ITERATIONS, RATIO, ATTEMPTS = 10, 0.7, 10  # of conjugate gradients, and of the line search
ROOM = 0.0125  # part of what the limit allows that the rounds may add to what is spent


def improve(
    actor: WorthActor,
    steps: OfferedSteps,
    share: float,
    settings: RetentionConfig,
    generator: torch.Generator,
) -> list[Update]:
    """Rounds of CPO on the actor, those that were taken; share: of the limit.

    The control spends what the limit allows, by its own count, so d is what was spent, and a little
    room for steps that bend.
    """
    steps = steps.some(generator)
    steps = steps.priced(actor.worths(steps.states), TEMPERATURE)
    region = TrustRegion(KL_LIMIT, ITERATIONS, RATIO, ATTEMPTS)
    scale = steps.weights / len(steps.weights)
    gap = -ROOM * share * scale.sum()
    if settings.leap:
        leap(actor, steps, TEMPERATURE)
    updates: list[Update] = []
    policy, unconfirmed = FlatActor(actor), 0
    for number in range(settings.rounds):
        half, other = number % HALVES, (number + 1) % HALVES
        before, outputs = policy.theta, actor.worths(steps.states)
        surrogate = offer_surrogate(steps, half, outputs, TEMPERATURE)
        fisher = surrogate.sample(FISHER_STATES, generator)
        update = update_policy(
            actor, (steps.states,), surrogate, fisher, gap[None], region, DAMPING
        )
        check = offer_surrogate(steps, other, outputs, TEMPERATURE)
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
