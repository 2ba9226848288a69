"""What a recommender can do, known before it is fitted."""

from dataclasses import dataclass
from enum import StrEnum


class Levels(StrEnum):
    """When the level of a method, such as its largest share of popular items, is chosen."""

    NONE = "none"  # it has none
    TRAINED = "trained"  # when it is trained: a model has one level
    SERVED = "served"  # when it serves: a model has any level


@dataclass(frozen=True)
class Abilities:
    """What a recommender can do, known before it is fitted."""

    levels: Levels = Levels.NONE
    level_is_share: bool = False  # its level is a largest share of showings for the group
    aims_at_level: bool = False  # it is given that share itself, not a setting found by search
    learns: bool = True  # False: a policy as it is before its training, for comparison
    feedback: bool = True  # what users like changes what they are shown next
    resume: bool = False  # its training keeps checkpoints and can be resumed
    limits: bool = False  # keeps several limits at once in the long run
    requests: bool = False  # serves users one by one under a limit on all of them
    worth: bool = False  # its lists are made of values, which the worth of a user can multiply
    long_run: bool = True  # has a server
    rounds: bool = False  # its level is for a whole round of a long run
    kinds: bool = False  # its server needs to know the kinds of items
