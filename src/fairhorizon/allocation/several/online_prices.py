"""Prices that follow the demand of one request after the other: an online dual."""

from typing import Any

import numpy as np

from fairhorizon.allocation.several.best_lists import BestLists
from fairhorizon.allocation.several.terms import Floats
from fairhorizon.metrics.shares import ROUNDING

MEMORY = 1000  # requests that the spread of values is averaged over
STEP = 0.1  # how fast prices move, without a unit


class OnlinePrices:
    """A price for each rule, in units of the values, and the spread of values that they move by."""

    def __init__(
        self, prices: Floats, step: float = STEP, *, requests: int = 0, spread: float = 0.0
    ) -> None:
        self.prices, self.step = prices, float(step)
        self.requests, self.spread = requests, spread

    @property
    def unit(self) -> float:
        """A small price, to try higher ones by."""
        return max(self.spread, ROUNDING) / 8

    def follow(self, best: BestLists, excess: Floats) -> None:
        """A subgradient step by what the list at the present prices would use.

        excess: (m,) above what each rule gives a list, as a fraction of a list. What a cap refuses
        belongs to it: a price moved by what is shown would hardly move while the cap binds.
        """
        values = best.offers.values[0]
        if len(values) > 1:
            self.requests += 1
            spread = float(values[: 2 * best.terms.length].std())
            self.spread += (spread - self.spread) / min(self.requests, MEMORY)
        self.prices = np.maximum(0.0, self.prices + self.step * self.spread * excess)

    def stored(self) -> dict[str, Any]:
        """Everything that `restored` needs, as JSON."""
        return {
            "prices": self.prices.tolist(),
            "requests": self.requests,
            "spread": self.spread,
            "step": self.step,
        }

    @classmethod
    def restored(cls, stored: dict[str, Any]) -> "OnlinePrices":
        prices = np.array(stored["prices"], dtype=np.float64)
        requests, spread = stored["requests"], stored["spread"]
        return cls(prices, stored["step"], requests=requests, spread=spread)
