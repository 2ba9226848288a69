"""Words and sizes of the service; no database, no torch."""

from enum import StrEnum

ID_LENGTH = 256  # characters of an id of a user, an item or an event
LONGEST_LIST = 100
MOST_ROWS = 10_000  # of one call that writes several
MOST_CANDIDATES = 10_000
LARGEST_BODY = 16 * 2**20  # bytes


class Role(StrEnum):
    """What a key may do; each may do what those before it may."""

    READ = "read"  # ask for lists and for the state of things
    FEEDBACK = "feedback"  # say what was shown and taken
    ADMIN = "admin"  # everything

    def allows(self, needed: "Role") -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Counts(StrEnum):
    """Which showings count under a limit."""

    SERVED = "served"  # every one that a list was answered with
    CONFIRMED = "confirmed"  # those that `read` feedback confirms


class Source(StrEnum):
    """Whose values a list was made of."""

    RECOMMEND = "recommend"  # the model's
    RANK = "rank"  # the caller's


class JobState(StrEnum):
    """How far a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
