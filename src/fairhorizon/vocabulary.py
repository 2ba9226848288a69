"""The words that users choose from, on the command line as in Python; nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

POPULAR = "popular"  # the name of the group of the most shown items; others are by an attribute
OnEpoch = Callable[[int, float], object]  # is called with an epoch's number and validation NDCG


class Protocol(StrEnum):
    """Which items may be recommended at test time; the two are not comparable."""

    STANDARD = "standard"  # nothing of the user's history, as every running system does
    PAPER = "paper"  # everything, training items included, as the paper's public code does


class Mode(StrEnum):
    """How lists are handed out."""

    ONE_SHOT = "one-shot"  # a user's whole list at once, as a service and a static ranker do
    INTERACTIVE = "interactive"  # list after list, feedback from the test items in between


class Preset(StrEnum):
    """Settings of FCPO to start from."""

    FAST = "fast"  # a policy over the scores of rankers in closed form, which serves any limit
    STRONG = "strong"  # with a neural network among the rankers
    PAPER = "paper"  # the paper's own, trained for one limit
    TUNED = "tuned"  # the paper's design, what its text leaves open chosen on validation items


class ExampleKind(StrEnum):
    """The kinds of made-up logs that can be written."""

    SHOP = "shop"
    CHECKINS = "checkins"
    SESSIONS = "sessions"


class LogFormat(StrEnum):
    """The kinds of files that a log is written to."""

    CSV = "csv"
    PARQUET = "parquet"


class Cut(StrEnum):
    """How a log is split."""

    PER_USER = "per-user"  # the last fifth of each user's items is test
    TIME = "time"  # one moment for everybody
    GIVEN = "given"  # files train, validation and test


class AsOf(StrEnum):
    """Which history lists are made after."""

    TRAINING = "training"  # the training items, as in an evaluation
    NOW = "now"  # everything in the log


class ListFormat(StrEnum):
    """How lists are written to a file."""

    CSV = "csv"
    PARQUET = "parquet"
    JSONL = "jsonl"  # a JSON object per line


class ListValue(StrEnum):
    """What lists make as much of as they can."""

    NDCG = "ndcg"  # of the moment
    LONG = "long"  # the same, weighed by what a like is worth for later


class Users(StrEnum):
    """Who answers in a long run."""

    LOGGED = "logged"  # they like their test items
    SIMULATED = "simulated"  # they click by chance, any item
    LEAVING = "leaving"  # the same, and they leave when their patience is at an end


class Retrain(StrEnum):
    """Which rankers are fitted anew between rounds of a long run, on all that was liked since."""

    RERANKERS = "rerankers"  # those behind a re-ranker, as MF-FOE in the paper
    ALL = "all"
    NONE = "none"


class PaperPart(StrEnum):
    """What the paper shows."""

    TABLE1 = "table1"  # the data sets
    TABLE2 = "table2"  # accuracy and fairness of all methods
    FIGURE3 = "figure3"  # one against the other
    FIGURE4 = "figure4"  # the long run
    EFFICIENCY = "efficiency"
    INTRODUCTION = "introduction"  # the example of items that become popular


class EngineName(StrEnum):
    """What runs many tasks."""

    PROCESSES = "processes"  # of this machine
    RAY = "ray"  # a Ray cluster, or Ray on this machine


@dataclass(frozen=True)
class MethodName:
    """The parts of a method's name, `fcpo:paper@0.4` or `ease:recent+quota`; None: not written."""

    base: str
    preset: str | None = None
    reranker: str | None = None
    level: str | None = None

    @classmethod
    def split(cls, text: str) -> Self:
        """Any text can be split; whether there is such a method is not looked up."""
        name, at, level = text.strip().partition("@")
        name, plus, reranker = name.partition("+")
        base, colon, preset = name.partition(":")
        return cls(
            base, preset if colon else None, reranker if plus else None, level if at else None
        )

    @property
    def model(self) -> tuple[str, str | None]:
        """What is trained: the same for all re-rankings of a method and all their levels."""
        return self.base, self.preset

    @property
    def settings_name(self) -> str:
        """Under which the settings of what is trained are given, where there are several methods.

        Presets of an agent have the same settings, variants of a ranker have their own.
        """
        is_variant = self.preset is not None and self.base != "fcpo"
        return f"{self.base}:{self.preset}" if is_variant else self.base


class Labels(StrEnum):
    """Which label of an item counts, where groups move."""

    FIRST = "first"  # that of the beginning
    MOMENT = "moment"  # when it was shown
    LAGGED = "lagged"  # some steps before it was shown
    RETROSPECTIVE = "retrospective"  # now, for everything that was shown so far


class Scope(StrEnum):
    """Of what the share is one."""

    ALL = "all"  # all showings to all users together
    LIST = "list"  # every list
    PREFIX = "prefix"  # every list and every beginning of it


class Weighing(StrEnum):
    """What a showing counts, by its place in the list."""

    NONE = "none"  # 1 everywhere
    LOG = "log"  # 1 / log2(1 + place)
    GIVEN = "given"  # numbers
