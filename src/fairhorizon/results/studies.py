"""What the short-term studies found: compare, frontier, levels, efficiency and ablation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingRow:
    """A model that was trained, and how long that took."""

    name: str
    seconds: float
