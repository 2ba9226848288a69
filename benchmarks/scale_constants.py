"""What docs/scale.md is computed from: the assumed size, and constants with their source."""

from dataclasses import dataclass

SPEED, SERVICE = "[speed](results/speed.md)", "[service](results/service.md)"
TRIAL = "a trial before the code was written, one run"


@dataclass(frozen=True)
class Size:
    """How large it is assumed to be; nothing here was measured."""

    users: float = 1e8
    items: float = 1e7
    per_user: float = 100.0  # interactions in the log
    daily_users: float = 2e7
    lists_each: float = 10.0  # a day
    length: int = 10
    events_each: float = 2.0  # of feedback, for each list
    peak: float = 3.0  # busiest hour over the mean of the day
    factors: int = 64  # of a vector
    candidates: int = 400  # of a user, kept by retrieval
    replicas: int = 1000
    retrieval_shards: int = 4
    user_shards: int = 1000
    bins: int = 4096  # of a histogram of gains
    rounds_of_price: int = 3
    limits: int = 1
    workers: int = 64  # of a training
    price: float = 0.05  # of a core for an hour, in any currency

    @property
    def interactions(self) -> float:
        return self.users * self.per_user

    @property
    def lists_a_day(self) -> float:
        return self.daily_users * self.lists_each

    @property
    def lists_at_peak(self) -> float:
        """A second."""
        return self.peak * self.lists_a_day / 86_400


@dataclass(frozen=True)
class Constant:
    """Something that was measured. provisional: to be measured again at 100,000 items."""

    value: float
    unit: str
    meaning: str
    source: str
    provisional: bool = False


ROWS_READ = Constant(
    10e6 / 60,
    "rows a second",
    "a log is read and counted: the aim of 60 s for 10M rows, not a measurement",
    "data info, 10M rows",
    provisional=True,
)
FIT_SECONDS = Constant(
    177 / 1e6,
    "s an interaction",
    "fit of a sequence model, all epochs (GRU4Rec on MovieLens-1M: 177 s)",
    SPEED,
    provisional=True,
)
EASE_SECONDS = Constant(
    160.0, "s", "fit of EASE with 20,000 items", f"{TRIAL} (log of 68,500 items)", provisional=True
)
EASE_ITEMS = 20_000
RIDGE_SECONDS = Constant(
    18.9,
    "s",
    "fit of ridge with 3,706 items (MovieLens-1M)",
    f"`python benchmarks/ridge.py`, {SPEED}",
)
RIDGE_ITEMS = 3_706
FAISS_MS = Constant(
    0.8, "ms", "best 200 of 100,000 x 64 vectors by FAISS IVF", TRIAL, provisional=True
)
EXACT_MS = Constant(20.0, "ms", "the same, exact", TRIAL, provisional=True)
FAISS_ITEMS = 100_000
JOINT_MS = Constant(
    1000 * 8.1 / 6040,
    "ms a user",
    "joint lists of 20 under one limit, 3,706 candidates each (MovieLens-1M: 8.1 s)",
    f"`python benchmarks/several_limits.py`, {SPEED}",
    provisional=True,
)
BARE_MS = Constant(
    4.9,
    "ms",
    "`model.recommend` of one user, 3,706 items (4.9 to 7.0 in four runs)",
    f"`python benchmarks/service.py` with `--postgresql`, {SERVICE}",
)
LISTS_PER_WORKER = Constant(
    184.0,
    "lists a second",
    "one worker on PostgreSQL (209 to 256 on SQLite), beside its load generator",
    f"`python benchmarks/service.py` with `--postgresql`, {SERVICE}",
)
EVENTS = Constant(
    5010.0,
    "events a second",
    "feedback into one PostgreSQL (13,311 to 15,539 on SQLite)",
    f"`python benchmarks/service.py` with `--postgresql`, {SERVICE}",
)
LOCK_MS = Constant(
    2.5,
    "ms",
    "a transaction under the lock (299 to 440 a second from four processes, PostgreSQL 15)",
    f"{TRIAL}; `python benchmarks/lock_time.py` with `--postgresql`",
    provisional=True,
)
LIST_MS = Constant(
    0.1,
    "ms",
    "each list in it: assumed",
    "`python benchmarks/lock_time.py` with `--postgresql`",
    provisional=True,
)
LIST_BYTES = Constant(
    910.0, "bytes", "a recorded list of 10, with indices", "`python benchmarks/lock_time.py`"
)
ACTOR = Constant(
    403.0,
    "parameters",
    "the actor of preset `fast` under one limit",
    "`actor.body` in model.safetensors of a fit",
)
CG_PRODUCTS = Constant(
    10.0, "products", "of conjugate gradients for each gradient (`cg_iterations`)", "default"
)
BATCH = Constant(16.0, "lists", "in a transaction at most (`batch`)", "default")
TIMEOUT = Constant(
    10.0, "s", "without a sign of life (`replica_timeout`); five signs in that time", "default"
)

CONSTANTS: dict[str, Constant] = {
    name: one for name, one in globals().items() if isinstance(one, Constant)
}
