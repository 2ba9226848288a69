"""Simulated users: clicks are random with a probability for every item.

Tastes may drift, and users may lose patience and leave (churn.py).
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from fairhorizon.data.splits import Split
from fairhorizon.data.synthetic import SyntheticMarket
from fairhorizon.errors import ConfigError
from fairhorizon.histories import ItemSets
from fairhorizon.settings import Settings
from fairhorizon.simulation.churn import ChurnConfig, ChurnModel, Patience
from fairhorizon.simulation.dynamics import State
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.simulation.response import ResponseModel
from fairhorizon.vocabulary import Protocol

CELLS = 2**20  # user-item cells at once, 4 MiB of float32


class SimulationConfig(Settings):
    """Settings of simulated users."""

    position_bias: float = Field(1.0, ge=0)
    """A user examines the k-th item of a list with probability k to the power of minus this."""
    drift: float = Field(0.0, ge=0, le=1)
    """How fast tastes change per step: 0 never, 1 new tastes at every step."""
    churn: ChurnConfig | None = None
    """Of users who can leave; None: all of them stay."""

    def stated(self) -> dict[str, Any]:
        """In JSON, without what is not set: runs from before there was such a setting keep keys."""
        return self.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True, eq=False)
class TasteSpread:
    """Mean and covariance of all users' vectors, which a drift preserves."""

    mean: Tensor  # (dim,)
    root: Tensor  # (dim, dim) symmetric square root of the covariance

    @classmethod
    def from_vectors(cls, vectors: Tensor) -> "TasteSpread":
        exact = vectors.double()
        mean = exact.mean(0)
        variances, axes = torch.linalg.eigh((exact - mean).T @ (exact - mean) / len(exact))
        # The variance of a direction in which users do not differ may come out slightly negative.
        root = (axes * variances.clamp(min=0).sqrt()) @ axes.T
        return cls(mean.to(vectors), root.to(vectors))

    def move(self, vectors: Tensor, rate: float, generator: torch.Generator) -> Tensor:
        """p <- m + sqrt(1 - rate^2) (p - m) + rate e,  e ~ N(0, covariance of all users).

        An Ornstein-Uhlenbeck process in discrete time: mean and covariance over the users stay,
        a user's correlation with the initial taste falls as (1 - rate^2)^(t/2).
        """
        draws = torch.randn(vectors.shape, generator=generator).to(vectors)
        kept = math.sqrt(1 - rate**2)
        return self.mean + kept * (vectors - self.mean) + rate * (draws @ self.root)


class SimulatedAudience:
    """The feedback of a batch of simulated users, step by step.

    `best` and `total` cover all items that could be shown at the start of the run: everything but
    the history that the protocol excludes. Items shown since then still count, and satiation takes
    nothing off them.
    """

    answers_anew = True
    vectors: Tensor  # (b, dim) present tastes
    _best: Tensor  # (b, ranks asked for so far) at present, float32
    _total: Tensor  # (b,) at present, empty until asked for

    def __init__(
        self,
        response: ResponseModel,  # one row for each user of the batch
        excluded: ItemSets,
        spread: TasteSpread,
        config: SimulationConfig,
        generator: torch.Generator,
        churn: ChurnModel | None = None,
    ) -> None:
        self.response, self.excluded, self.spread = response, excluded, spread
        self.config, self.generator, self.churn = config, generator, churn
        self.vectors = response.user_vectors
        self._forget()

    def answer(self, lists: Tensor) -> Tensor:
        """Random clicks: relevance times the probability that the position is examined."""
        # A user clicks what is examined and liked: P(click) = P(examined at place k) P(likes).
        position = torch.arange(1, lists.shape[1] + 1, dtype=torch.float64, device=lists.device)
        chance = self.relevance(lists) * position**-self.config.position_bias
        # Always on the CPU: a device's own generator would give other numbers for the same seed.
        draws = torch.rand(lists.shape, dtype=torch.float64, generator=self.generator)
        return draws.to(lists.device) < chance

    def relevance(self, lists: Tensor) -> Tensor:
        items = lists.clamp(min=0)
        taste = (self.response.item_vectors[items] @ self.vectors[:, :, None]).squeeze(2)
        logits = taste + self.response.user_bias[:, None] + self.response.item_bias[items]
        if self.churn is not None:
            logits = logits - self.churn.appetite(lists)
        return torch.sigmoid(logits.double()) * (lists >= 0)

    def notice(self, lists: Tensor, hits: Tensor) -> None:
        if self.churn is not None:
            self.churn.notice(lists, hits)

    @property
    def here(self) -> Tensor | None:
        return None if self.churn is None else self.churn.here

    def best(self, first: int, last: int) -> Tensor:
        if self._best.shape[1] < min(last, self.response.n_items):
            # Without drift, the next ranks will be asked for soon.
            self._look_at_all(last if self.config.drift else 2 * last)
        # Beyond the catalogue there is nothing: relevance 0.
        known = self._best[:, first:last].double()
        return pad(known, (0, last - first - known.shape[1]))

    def total(self) -> Tensor:
        if not len(self._total):
            self._look_at_all(0)
        return self._total.double()

    def pass_time(self) -> None:
        if self.churn is not None:
            self.churn.pass_time()
        if self.config.drift:
            self.vectors = self.spread.move(self.vectors, self.config.drift, self.generator)
            self._forget()

    def tensors(self) -> dict[str, Tensor]:
        churn = {} if self.churn is None else self.churn.tensors()
        return {"user_vectors": self.vectors, "generator": self.generator.get_state(), **churn}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if self.churn is not None:
            self.churn.restore(tensors)
        self.vectors = tensors["user_vectors"].to(self.response.user_vectors)
        self.generator.set_state(tensors["generator"].cpu())
        self._forget()

    def _forget(self) -> None:
        """Drop cached values of earlier tastes."""
        self._best = self.vectors[:, :0]
        self._total = self.vectors[:0, 0]

    def _look_at_all(self, ranks: int) -> None:
        """Relevance of everything that can be shown: its sum, and the best up to a rank."""
        # Blocks of users, since all users times all items may not fit into memory.
        response, best, sums = self.response, [], []
        for rows in torch.arange(len(self.vectors)).split(max(1, CELLS // response.n_items)):
            logits = torch.addmm(response.item_bias, self.vectors[rows], response.item_vectors.T)
            chances = logits.add_(response.user_bias[rows, None]).sigmoid_()
            chances.masked_fill_(self.excluded.mask(rows).to(chances.device), 0.0)
            sums.append(chances.sum(1))
            best.append(_highest(chances, ranks))
        self._best, self._total = torch.cat(best), torch.cat(sums)


def _highest(values: Tensor, count: int) -> Tensor:
    """The highest of each row, in falling order.

    NumPy sorts the values alone, in a third of the time that torch takes for the positions too.
    """
    if count == 0:
        return values[:, :0]
    # A whole sort and not a partition: ranks are asked for step by step, and more of them later.
    rising = torch.from_numpy(np.sort(values.cpu().numpy(), axis=1))
    return rising[:, -count:].flip(1).to(values.device)


@dataclass(frozen=True, eq=False)
class SimulatedUsers:
    """A user model beyond the log: feedback also for items that a user never took.

    Users begin with the tastes of `response` every time, in the states of `start`.
    """

    response: ResponseModel
    start: Scenario  # only its queue and history are used, not its feedback
    config: SimulationConfig = field(default_factory=SimulationConfig)
    seed: int = 0
    kinds: Tensor | None = None  # (n_items, kinds) parts of kinds in items, for churn

    def __post_init__(self) -> None:
        churn = self.config.churn
        if churn is not None and churn.needs_kinds and self.kinds is None:
            raise ConfigError("satiation and boredom are with kinds of items (say which)")
        ours = (self.response.n_users, self.response.n_items)
        theirs = (self.start.n_users, self.start.positive.n_items)
        if ours != theirs:
            raise ConfigError(
                f"the response model has {ours[0]} users and {ours[1]} items, the split has "
                f"{theirs[0]} and {theirs[1]} (make both from the same data)"
            )

    @classmethod
    def from_split(
        cls,
        response: ResponseModel | SyntheticMarket,
        split: Split,
        history: int,
        protocol: Protocol,
        config: SimulationConfig | None = None,
        seed: int = 0,
        kinds: Tensor | None = None,
    ) -> "SimulatedUsers":
        """Users of the split after training and validation, with feedback of a fitted model.

        Given the market that the log was drawn from, feedback follows its true relevance.
        """
        if isinstance(response, SyntheticMarket):
            response = ResponseModel.from_market(response)
        start = evaluation_scenario(split, history, protocol)
        return cls(response, start, config or SimulationConfig(), seed, kinds)

    @property
    def n_users(self) -> int:
        return self.response.n_users

    @cached_property
    def spread(self) -> TasteSpread:
        """How much tastes differ between users: what drift moves them by."""
        return TasteSpread.from_vectors(self.response.user_vectors)

    def begin(
        self, users: Tensor, device: torch.device | None = None, seed: int | None = None
    ) -> tuple[State, SimulatedAudience]:
        """The users' initial state and their feedback: the same for the same seed.

        One number is drawn for every slot, whatever item is in it: recommenders compared under
        one seed get the same random numbers and the same drift.
        """
        state, response = self.start.state(users, device), self.response
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        audience = SimulatedAudience(
            ResponseModel(
                response.user_vectors[users].to(device),
                response.item_vectors.to(device),
                response.user_bias[users].to(device),
                response.item_bias.to(device),
            ),
            state.blocked_sets,
            TasteSpread(self.spread.mean.to(device), self.spread.root.to(device)),
            self.config,
            generator,
            self._churn(users, device, generator),
        )
        return replace(state, here=audience.here), audience

    def _churn(
        self, users: Tensor, device: torch.device | None, generator: torch.Generator
    ) -> ChurnModel | None:
        if (config := self.config.churn) is None:
            return None
        drawn, kinds = config.drawn_patience(self.n_users), self.kinds
        patience = Patience(drawn.most[users].to(device), drawn.left[users].to(device))
        return ChurnModel(config, patience, None if kinds is None else kinds.to(device), generator)
