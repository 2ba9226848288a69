"""A small shop: customers c0 to c39, articles a0 to a59, small and big sellers."""

from dataclasses import dataclass

import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic

DAY = 86_400
SETTINGS = {
    **{"rounds": 1, "horizon": 4, "candidates": 20, "history": 8},
    **{"warm_start": ("ridge", "ease", "itemknn", "popularity")},
}


@dataclass(frozen=True)
class Shop:
    """Its log, a row a day, and its articles, of which the last three were never bought."""

    rows: pl.DataFrame
    articles: pl.DataFrame

    def log(self, rows: pl.DataFrame | None = None) -> fh.Interactions:
        rows = self.rows if rows is None else rows
        return fh.load(rows, user="customer", item="sku", time="day", name="shop")


@pytest.fixture(scope="session")
def shop() -> Shop:
    log = synthetic(40, 60, 12, seed=3).interactions
    rows = pl.DataFrame(
        {
            "customer": [f"c{user}" for user in log.users.tolist()],
            "sku": [f"a{item}" for item in log.items.tolist()],
            "day": [DAY * row for row in range(len(log))],
        }
    )
    n = 63
    articles = pl.DataFrame(
        {
            "sku": [f"a{item}" for item in range(n)],
            "seller_size": ["small" if item % 3 == 0 else "big" for item in range(n)],
            "kind": [f"k{item % 5}" for item in range(n)],
        }
    )
    return Shop(rows, articles)


@pytest.fixture(scope="session")
def settings() -> dict[str, object]:
    """Of a small fcpo."""
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def model(shop: Shop) -> fh.Model:
    """Under a limit on the popular items."""
    return fh.fit(shop.log(), limits=["popular<=0.3"], items=shop.articles, settings=SETTINGS)
