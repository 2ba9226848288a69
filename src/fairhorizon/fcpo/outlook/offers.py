"""Recorded steps with two offers, and what a policy that chooses between them brings.

In a step the policy chooses between two offers, the best item of the group and the best of the
rest, by  softmax((worth(s) p + kind - price 1[i in G0]) / temperature).  p is the chance of a like,
`kind` what is to come by the kind of the item. The price is the control's, and so a part of the
environment: one for the group in every step, such that the step spends what it spent. Showings
cannot be saved for another step, and a worth that is larger for everybody changes nothing: it is 1
in the mean over the users of a step. What both offers bring is known by the critics, so that
surrogates are sums over both:

    A(s, i)   = p + gamma (p W_1 + (1 - p) W_0) - price A_c(s, i)
    A_c(s, i) = 1[i in G0] + gamma (p C_1 + (1 - p) C_0)

and no offer has to be weighed by the chance that it had of being shown. The price stands in A
because somebody who stays takes part in later steps, and takes showings from others there, or
leaves them more.

Critics are noisy where likes are rare, and a policy can be improved by noise as well. So there are
two of each, learned from the two halves of the users: what is improved by the one has to be
confirmed by the other, which knows nothing of the noise of the first.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.cpo import Predicted
from fairhorizon.fcpo.learning.fisher_metric import SoftmaxFisher
from fairhorizon.fcpo.outlook.record import GROUP, REST
from fairhorizon.policy.softmax import ItemPolicy
from fairhorizon.rankers.candidates import ScoredCandidates

HALVES = 2  # of the users, with critics of their own
MOST_STEPS = 40_000  # recorded steps that a policy learns from, drawn at random if there are more
BISECTIONS, SURE = 30, 20.0  # of a price; logits at which a choice is all but certain
CONFIRMED = 0.5  # part of an improvement that the critics of the other half have to find


@dataclass(frozen=True)
class OfferedSteps:
    """Recorded steps with two offers each, in which the group could be shown or not."""

    states: Tensor  # (n, size)
    chances: Tensor  # (n, 2) of a like
    kinds: Tensor  # (n, 2) what is to come by the kind of an offer, in likes of usual worth
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
        rowwise = ("states", "chances", "kinds", "shown", "moments", "usual", "weights")
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
        return worth[:, None] * self.chances + self.kinds

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


class OfferSurrogate:
    """Predicted changes per showing, discounted, by the present policy's choices of offers."""

    def __init__(self, steps: OfferedSteps, half: int, outputs: Tensor, temperature: float) -> None:
        """half: by whose critics."""
        self.steps, self.temperature = steps, temperature
        self.advantages = steps.advantages[half]
        items = torch.arange(2).expand(len(steps.states), 2)
        level = steps.mean(outputs[:, 0])
        self.menus = ScoredCandidates(items, (steps.chances / level[:, None])[:, :, None])
        self.scale = steps.weights / len(steps.states)
        self.present = self._policy(outputs)

    def _policy(self, outputs: Tensor) -> ItemPolicy:
        values = self.steps.values(outputs)
        prices = self.steps.prices(values[:, GROUP] - values[:, REST], self.temperature)
        charged = values - torch.stack([prices, torch.zeros_like(prices)], dim=1)
        logits = charged[:, None] / self.temperature
        return ItemPolicy.of(logits, torch.ones_like(logits, dtype=torch.bool))

    def evaluate(self, outputs: Tensor) -> Predicted:
        new = self._policy(outputs)
        moved = (new.probs - self.present.probs).squeeze(1)
        reward, cost = ((moved * self.advantages).sum(2) @ self.scale).unbind()
        return Predicted(reward, cost[None], new.kl_from(self.present).mean())

    def sample(self, size: int, generator: torch.Generator) -> SoftmaxFisher:
        """Levels and prices are held; the line search knows that they move."""
        some = torch.randperm(len(self.steps.states), generator=generator)[:size]
        return SoftmaxFisher(some, self.menus.take(some), self.present.take(some), self.temperature)
