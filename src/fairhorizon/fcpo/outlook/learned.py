"""What was learned from a record of answers, and the standing of its users at the end of it.

    worth(u) = (1 + gamma (W_1(s_u) - W_0(s_u))) / its mean over the showings of the record

The mean changes no list, as it is the same for everybody; with it, values and prices stay in the
units that they have without worth. No user is worth more or less than any was in the record: beyond
its states, critics say anything.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from fairhorizon.fcpo.looking_ahead import LookingAhead
from fairhorizon.fcpo.outlook.outlook import Outlook
from fairhorizon.fcpo.outlook.standing import AnswersSoFar
from fairhorizon.storage import as_bytes, below, load_model, of_bytes, save_model, understood

KIND, OUTLOOK = "outlook", "outlook.safetensors"  # and its file in a run folder
LEARNED, STANDING, USERS = "learned.", "standing.", "users"
OF_USERS = ("run", STANDING, "kinds.")  # tensors of an outlook that belong to users
SIDES = torch.tensor([0.0, 1.0])  # whether a column is of the group
LEAST = 1e-6  # chance


@dataclass(frozen=True)
class UsualWorth:
    """What a like was worth at the showings of a record: on average, at least and at most."""

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, worth: Tensor) -> Self:
        return cls(float(worth.double().mean()), float(worth.min()), float(worth.max()))

    def relative(self, worth: Tensor) -> Tensor:
        """Worth within these bounds, in units of the mean."""
        return worth.clamp(self.least, self.most) / self.mean


ANY_WORTH = UsualWorth(1.0, 1.0, float("inf"))


@dataclass(frozen=True, eq=False)
class LearnedOutlook:
    """The worth of a like by state, and the states of the users of a record at its end."""

    gamma: float
    learned: Mapping[str, Tensor]  # of an `Outlook`
    standing: Mapping[str, Tensor]  # (n, ...) of an `AnswersSoFar`
    users: tuple[str, ...]  # (n,) ids
    until: float  # the end of the record
    usual: UsualWorth = ANY_WORTH

    @cached_property
    def rows(self) -> dict[str, int]:
        """Where users stand, by id."""
        return {one: row for row, one in enumerate(self.users)}

    def standing_of(self, users: Sequence[object | None], taken: Tensor) -> AnswersSoFar:
        """The standing of users at the end of the record; of the others that of newcomers.

        users: their ids; None: somebody without one.
        taken: (b,) how many items each has taken; those of the record at its beginning count there.
        """
        found = AnswersSoFar(taken)
        found.history = found.history.clamp(*self._histories)
        at = [-1 if one is None else self.rows.get(str(one), -1) for one in users]
        known = torch.tensor([row >= 0 for row in at], dtype=torch.bool)
        stored = torch.tensor([row for row in at if row >= 0], dtype=torch.int64)
        for name, own in found.tensors().items():
            own[known] = self.standing[name][stored]
        return found

    @torch.no_grad()
    def worth(self, standing: AnswersSoFar, best: Tensor) -> Tensor:
        """(b,) float32: what a like of each user is worth, 1 on average over the record.

        best: (b, 2) of `best_open`.
        """
        outlook = copy.copy(self._restored)  # other threads may ask at the same time
        outlook.runs = []
        outlook.begin(torch.zeros(len(best)))
        outlook.standing = standing
        outlook.values(best, SIDES)
        return self.usual.relative(1 + outlook.gains())

    @cached_property
    def _histories(self) -> tuple[float, float]:
        """The shortest and the longest of the record, as a standing has them."""
        shortest, longest = self.standing["history"].aminmax()
        return float(shortest), float(longest)

    @cached_property
    def _restored(self) -> Outlook:
        return restored(self.gamma, self.learned)

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        tensors = {LEARNED + name: value for name, value in self.learned.items()}
        tensors |= {STANDING + name: value for name, value in self.standing.items()}
        tensors[USERS] = as_bytes({USERS: list(self.users)})
        numbers = {"gamma": self.gamma, "until": self.until, "usual": vars(self.usual)}
        save_model(path, KIND, tensors, numbers)

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote, tried once: a file of another version is refused here."""
        with understood(path):
            tensors, numbers = load_model(path, KIND)
            users = tuple(of_bytes(tensors[USERS])[USERS])
            parts = below(LEARNED, tensors), below(STANDING, tensors)
            usual = UsualWorth(**numbers["usual"])
            found = cls(numbers["gamma"], *parts, users, numbers["until"], usual)
            found.worth(found.standing_of(users[:1], torch.zeros(1)), torch.zeros(1, 2))
            return found


def learned_part(outlook: Outlook) -> dict[str, Tensor]:
    """What an outlook knows of likes in general, and nothing of any user."""
    tensors = outlook.tensors()
    return {name: value for name, value in tensors.items() if not name.startswith(OF_USERS)}


def restored(gamma: float, learned: Mapping[str, Tensor], seed: int = 0) -> Outlook:
    """An outlook that knows this, before anybody is served."""
    # no offers are recorded, and likes alone count
    settings = LookingAhead(rounds=0, presence=0.0)
    outlook = Outlook(gamma, settings=settings, seed=seed)
    outlook.begin(torch.zeros(1))
    outlook.restore({**outlook.tensors(), **learned})
    return outlook


def log_odds(chances: Tensor) -> Tensor:
    """Of chances; a score whose slope and level the answers calibrate."""
    return torch.logit(chances.float(), eps=LEAST)


def best_open(items: Tensor, chances: Tensor, sensitive: Tensor) -> Tensor:
    """(b, 2) log-odds of the best item outside the group and in it; -inf where there is none.

    items: (b, n) codes, -1 for what is not open.  chances: (b, n).
    """
    inside, shut = sensitive.cpu()[items.clamp(min=0)], items < 0
    scores = log_odds(chances.cpu()).masked_fill(shut, -torch.inf)
    sides = [scores.masked_fill(inside != side, -torch.inf).amax(1) for side in (False, True)]
    return torch.stack(sides, dim=1)
