"""Words, sizes and settings of the service: the table [service] of fairhorizon.toml."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fairhorizon.settings import Settings
from fairhorizon.vocabulary import ListValue

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


FeedbackTypes = tuple[Annotated[str, Field(min_length=1, max_length=64)], ...]


class ServiceSettings(Settings):
    """How lists are served, counted and watched."""

    n: Annotated[int, Field(ge=1, le=LONGEST_LIST)] = 10
    """Length of a list where a request does not say."""
    window: str = "always"
    """Window of limits that are given without one: always, day, or a number of showings, as in
    "10000 showings"."""
    slack: Annotated[int, Field(ge=1)] = 200
    """C: by how many showings replicas together may exceed the share of a limit for a moment. Each
    of them holds a lease: an equal part of it, or what its lists need if that is more."""
    counts: Counts = Counts.SERVED
    """Which showings count under limits: served, or confirmed by `read` feedback."""
    confirm_within: Annotated[float, Field(gt=0)] = 3600
    """Seconds after which a showing that was not confirmed is given up."""
    read: FeedbackTypes = ("read",)
    """Types of feedback that say that an item was seen."""
    negative: FeedbackTypes = ("dislike", "hide", "report")
    """Types of feedback after which an item is not shown to the user again. All types that are
    neither these nor `read` say that the user took the item."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of lists in which one place, drawn at random, goes to another item of the same groups;
    the probability of every showing is recorded."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the exploration."""
    value: ListValue = ListValue.NDCG
    """What lists make as much of as they can: ndcg, what users like now; long, every user's values
    count by what a like of theirs is worth for later, learned by a model that was fitted with
    --answers."""
    relabel: Annotated[float, Field(ge=0)] = 86_400
    """Seconds between two epochs of labels: who is popular is decided anew, by the training log and
    all showings. 0: never by itself."""
    provider: str | None = None
    """Column of the items that names who provides them, for exposure by provider."""
    requests_per_second: Annotated[float, Field(gt=0)] = 1000
    """Requests that one key, or one address without keys, may make to one worker."""
    replica_timeout: Annotated[float, Field(gt=0)] = 10
    """Seconds without a sign of life after which the lease of a replica is taken back."""
    batch: Annotated[int, Field(ge=1, le=256)] = 64
    """Requests that are decided and recorded together at most."""
    alert_at: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Part of a share from which on a limit is called near, and below which a floor is missed."""
    alert_after: Annotated[int, Field(ge=0)] = 1000
    """Showings of a window before which no alert is made of its shares."""
    silence: Annotated[float, Field(ge=0)] = 900
    """Seconds without feedback, while lists are served, after which an alert says that it stopped.
    0: never."""
    webhook: str | None = None
    """Address that alerts are sent to as JSON, by POST."""
