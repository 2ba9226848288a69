"""A shop log in which the quantity says who wants what."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.generated.drawing import START, YEAR, drawn, sellers, taste_market

CHANCE = 0.5  # of the rows are bought by chance: presents, trials, offers


@dataclass(frozen=True, eq=False)
class ShopLog:
    """A row per order line, and what every customer truly wants.

    wanted: probability that a customer likes a product. Half of the lines are drawn by it, and of
        those the quantity is 1 + Poisson(8 wanted): a liked product is bought in quantity and
        again. The other half is drawn by exposure alone, one piece each. Without the quantities the
        two halves cannot be told apart.
    """

    frame: pl.DataFrame  # customer, sku, quantity, ordered, seller
    wanted: NDArray[np.float64]  # (customers, products)
    by_chance: NDArray[np.bool_]  # (rows,)
    seller: NDArray[np.object_]  # (products,)


def shop(customers: int = 200, products: int = 120, lines: int = 30, *, seed: int = 0) -> ShopLog:
    """About so many order lines per customer over a year; customers are c0, c1, ..., products p0.

    A customer may buy a product again, on another day or in the same order.
    """
    rng = np.random.default_rng(seed)
    wanted, exposure = taste_market(customers, products, rng)
    customer = np.repeat(np.arange(customers), rng.poisson(lines, customers).clip(min=5))
    by_chance = rng.random(len(customer)) < CHANCE
    taste = np.where(by_chance[:, None], 1.0, wanted[customer] ** 2)
    product = drawn(taste * exposure, rng)
    likes = np.where(by_chance, 0.0, wanted[customer, product])
    quantity = 1 + rng.poisson(8 * likes)
    ordered = START + rng.integers(0, YEAR, len(customer))
    owners = sellers(products, rng)
    order = np.argsort(ordered, kind="stable")
    frame = pl.DataFrame(
        {
            "customer": [f"c{code}" for code in customer[order]],
            "sku": [f"p{code}" for code in product[order]],
            "quantity": quantity[order],
            "ordered": ordered[order],
            "seller": owners[product[order]].tolist(),
        }
    )
    return ShopLog(frame, wanted, by_chance[order], owners)
