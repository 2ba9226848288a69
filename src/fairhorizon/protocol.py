"""The two ways to test a recommender, which are not comparable."""

from enum import StrEnum


class Protocol(StrEnum):
    """Which items may be recommended at test time."""

    STANDARD = "standard"  # nothing of the user's history, as every running system does
    PAPER = "paper"  # everything, training items included, as the paper's public code does
