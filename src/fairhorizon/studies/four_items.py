"""The example of the paper's introduction: why fairness with fixed groups does not last.

Items A and B are popular, C and D are not, and D is the one that people click most. Two items are
shown at a time. With parity between fixed groups every list has one of A, B and one of C, D; so D
takes all that C and D get. With groups that follow from exposure D is popular soon, and its
exposure counts against the limit on popular items.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.networks import Actor, StateEncoder
from fairhorizon.fcpo.online import OnlineFcpo
from fairhorizon.histories import TableSets
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.metrics.fairness import gini
from fairhorizon.simulation.dynamics import Feedback, State, advance

NAMES = ("A", "B", "C", "D")
CLICK_CHANCES = (0.3, 0.3, 0.3, 0.6)
SHOWN_BEFORE = (40, 30, 20, 10)
LIST_LENGTH = 2


@dataclass(frozen=True)
class Shares:
    """What came of a run: each item's share of all showings."""

    of: dict[str, float]
    clicks: float  # per list
    gini: float

    @classmethod
    def measured(cls, shown: NDArray[np.int64], clicks: float, lists: int) -> "Shares":
        shares = (shown / shown.sum()).tolist()
        return cls(dict(zip(NAMES, shares, strict=True)), clicks / lists, gini(shown))


class Visitors(Feedback):
    """Everybody clicks each item with the same chance, today as tomorrow."""

    def __init__(self, seed: int) -> None:
        self.chances = torch.tensor(CLICK_CHANCES)
        self.generator = torch.Generator().manual_seed(seed)

    def answer(self, lists: Tensor) -> Tensor:
        return torch.rand(lists.shape, generator=self.generator) < self.chances[lists]


def fixed_parity(steps: int = 200, users: int = 200, seed: int = 0) -> Shares:
    """One item of {A, B} and one of {C, D} in every list, in each group the most clicked so far."""
    visitors, exposure = Visitors(seed), Exposure(np.array(SHOWN_BEFORE), _popular_half)
    generator = torch.Generator().manual_seed(seed)
    clicks, total = torch.ones(len(NAMES)), 0.0
    for _ in range(steps):
        rate = clicks / torch.from_numpy(exposure.shown + 2)
        utility = rate + 0.02 * torch.randn(users, len(NAMES), generator=generator)
        best = [
            utility.masked_fill(group, -torch.inf).argmax(1)
            for group in (~exposure.initial, exposure.initial)
        ]
        lists = torch.stack(best, dim=1)
        clicked = visitors.answer(lists)
        exposure.add(lists)
        clicks += torch.bincount(lists[clicked], minlength=len(NAMES))
        total += float(clicked.sum())
    return Shares.measured(exposure.shown, total, steps * users)


def moving_groups(
    alpha_prime: float, steps: int = 200, users: int = 200, *, seed: int = 0
) -> Shares:
    """FCPO, which learns from the clicks as it goes, under a limit on the popular of the moment."""
    visitors, exposure = Visitors(seed), Exposure(np.array(SHOWN_BEFORE), _popular_half)
    server = _untrained(alpha_prime, users, seed)
    state = State(
        torch.arange(users),
        torch.full((users, 1), len(NAMES)),
        TableSets(torch.zeros(users, len(NAMES), dtype=torch.bool)),
    )
    total = 0.0
    for step in range(1, steps + 1):
        lists = server.serve(state, exposure)
        outcome = advance(state, lists, visitors, exposure.sensitive)
        # returning visitors may be shown the same items again
        outcome = replace(outcome, state=replace(outcome.state, blocked_sets=state.blocked_sets))
        exposure.add(lists)
        server.observe(lists, outcome, exposure)
        exposure.relabel()
        if step % 5 == 0:
            server.update()
        state, total = outcome.state, total + float(outcome.reward.sum())
    return Shares.measured(exposure.shown, total, steps * users)


def _popular_half(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    return popular_group(counts, share=0.5)


def _untrained(alpha_prime: float, users: int, seed: int) -> OnlineFcpo:
    """FCPO over items whose embeddings are unit vectors: a row of W is a score for every item."""
    config = FcpoConfig.preset(
        "paper",
        alpha_prime=alpha_prime,
        list_length=LIST_LENGTH,
        history=1,
        gru_hidden=4,
        actor_hidden=(8, 8),
        critic_hidden=(8, 8),
        kl_limit=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = StateEncoder(torch.zeros(users, 1), torch.eye(len(NAMES)), 4, 1)
        actor = Actor(encoder, list_length=LIST_LENGTH, hidden=(8, 8), initial_std=1.0)
    limit = PopularityLimit(alpha_prime)
    return OnlineFcpo(actor, config, queue_length=1, limits=[limit], learn=True, seed=seed)


def main() -> None:
    runs = {"fixed groups, parity": fixed_parity()}
    runs |= {f"moving groups, FCPO at {limit}": moving_groups(limit) for limit in (0.5, 0.4, 0.3)}
    print(f"{'':30}" + "".join(f"{name:>8}" for name in (*NAMES, "Gini", "clicks")))
    for name, shares in runs.items():
        cells = [f"{100 * share:7.1f}%" for share in (*shares.of.values(), shares.gini)]
        print(f"{name:30}" + "".join(cells) + f"{shares.clicks:8.3f}")


if __name__ == "__main__":
    main()
