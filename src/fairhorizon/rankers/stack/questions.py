"""What is tried for every ranker of a stack, one question after the other.

The first answer to each question is the ranker's default, and "no recency" is always among them.
"""

from collections.abc import Mapping
from typing import Any

Answer = Mapping[str, Any]

QUESTIONS: Mapping[str, tuple[tuple[Answer, ...], ...]] = {
    "ease": (({"l2": 500.0}, {"l2": 100.0}, {"l2": 1000.0}, {"l2": 3000.0}),),
    "ease:recent": (
        (
            {"half_life": 3.0, "training_half_life": 10.0},
            {"half_life": 10.0, "training_half_life": 30.0},
            {"half_life": 30.0, "training_half_life": 100.0},
            {"half_life": None, "training_half_life": None},
        ),
        ({"l2": 300.0}, {"l2": 100.0}, {"l2": 1000.0}, {"l2": 3000.0}),
        ({"popularity": 0.0}, {"popularity": 0.1}, {"popularity": 0.2}, {"popularity": 0.4}),
    ),
    "itemknn": (({"neighbours": 20}, {"neighbours": 100}, {"neighbours": 500}),),
    "itemknn:recent": (
        ({"half_life": 2.0}, {"half_life": 10.0}, {"half_life": None}),
        ({"shrinkage": 5.0}, {"shrinkage": 50.0}, {"shrinkage": 200.0}),
        ({"popularity": 0.0}, {"popularity": 0.2}, {"popularity": 0.4}),
    ),
    "ridge": (
        ({"decays": (0.8, 0.97)}, {"decays": (0.93, 1.0)}, {"decays": (1.0,)}),
        ({"horizon": 5, "future": 0.85}, {"horizon": 20, "future": 1.0}),
        ({"l2": 6000.0}, {"l2": 2000.0}, {"l2": 700.0}, {"l2": 20_000.0}, {"l2": 60_000.0}),
        ({"popularity": 0.2}, {"popularity": 0.0}, {"popularity": 0.1}, {"popularity": 0.3}),
    ),
}
