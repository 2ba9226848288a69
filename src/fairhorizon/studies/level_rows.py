"""All that a comparison at levels of fairness found."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairhorizon.limits.reached import LimitRow
from fairhorizon.studies.rows import GainRow, LevelRow
from fairhorizon.studies.who_pays_rows import UserGroupRow
from fairhorizon.vocabulary import POPULAR


@dataclass(frozen=True)
class LevelResults:
    """Methods under limits, ours against rivals, and users by group."""

    rows: Sequence[LevelRow]
    gains: Sequence[GainRow]
    who_pays: Sequence[UserGroupRow]
    k: int  # length of the lists
    group: str = POPULAR  # the name of the limited group
    limits: Sequence[LimitRow] = ()  # what each method made of its limit
