"""What the fit of a stack has found out about a log, in three lines."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from fairhorizon.data.splits import MOST_TIED, Split, tied_share
from fairhorizon.settings import Settings

SHORT, LONG = 10, 40  # items of a user's history
RECENCY = ("half_life", "decays")  # settings by which recent items count more


@dataclass(frozen=True)
class Member:
    """A ranker that was tried: its weight, its settings, and its accuracy alone."""

    method: str
    weight: float
    config: Settings
    ndcg: float

    @property
    def recent(self) -> bool | None:
        """Whether recent items count more; None for a ranker without such a setting."""
        settings = self.config.model_dump()
        values = [settings[name] for name in RECENCY if name in settings]
        return any(value is not None and value != (1.0,) for value in values) if values else None

    def __str__(self) -> str:
        changes = self.config.model_dump(exclude_defaults=True, exclude={"protocol"})
        words = " ".join(f"{name}={_short(value)}" for name, value in changes.items())
        return f"{self.method} {self.weight:.2g}" + (f" ({words})" if words else "")


@dataclass(frozen=True)
class Findings:
    """The kind of log, the rankers with weights and settings, the accuracy of each and of all."""

    kind: str
    panel: str
    accuracy: str
    members: tuple[Member, ...] = ()  # not stored

    @classmethod
    def of(cls, split: Split, members: tuple[Member, ...], together: float) -> Self:
        weighed = [member for member in members if member.weight > 0]
        without = [member.method for member in members if not member.weight]
        panel = ", ".join(str(member) for member in weighed)
        if without:
            panel += f"; without {', '.join(without)}"
        alone = ", ".join(f"{member.method} {member.ndcg:.4f}" for member in members)
        return cls(
            f"log: {_kind(split, weighed)}",
            f"rankers, by weight: {panel}",
            f"NDCG@20 of what came later in training, and of validation: {alone}; "
            f"together {together:.4f}",
            members,
        )

    @property
    def lines(self) -> tuple[str, str, str]:
        return self.kind, self.panel, self.accuracy

    def stored(self) -> dict[str, Any]:
        parts = asdict(self)
        del parts["members"]
        return parts


def _kind(split: Split, weighed: list[Member]) -> str:
    counts = split.train.user_counts()
    median = float(np.median(counts[counts > 0])) if (counts > 0).any() else 0.0
    length = "short" if median < SHORT else "long" if median >= LONG else "medium"
    words = f"{length} histories (median {median:g} training items)"
    if (tied := tied_share(split.train)) > MOST_TIED:
        words += f", {100 * tied:.0f} % of the rows tied in time"
    recent = [member.recent for member in weighed if member.recent is not None]
    if recent:
        words += (
            ", where recent items say more"
            if all(recent)
            else ", where recent items say no more than others"
            if not any(recent)
            else ", where recent items say more to some rankers"
        )
    return words


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(_short(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
