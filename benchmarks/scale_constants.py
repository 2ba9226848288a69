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
    """Something that was measured. provisional: why not is in docs/scale.md."""

    value: float
    unit: str
    meaning: str
    source: str
    provisional: bool = False


ROWS_READ = Constant(
    10e6 / 11.8,
    "rows a second",
    "CSV is read and counted by one thread (10M rows: 11.8 s of CPU; Parquet 7.3 s), one run",
    "`python benchmarks/reading.py` with `POLARS_MAX_THREADS=1`",
)
FIT_SECONDS = Constant(
    161.9 / 1e6,
    "s an interaction",
    "fit of a sequence model, all 10 epochs (GRU4Rec on MovieLens-1M: 162 s of CPU), seed 0",
    "`python benchmarks/gru4rec.py`",
)
EASE_SECONDS = Constant(
    14.8,
    "s",
    "fit of EASE with 10,000 items (CPU; 4.0 s with 5,000), one run of each",
    "`python benchmarks/ease.py` with `--repeats 1` and `--data "
    "synthetic-large:users=20000,items=10000,interactions=1000000,seed=1`",
)
EASE_ITEMS = 10_000
RIDGE_SECONDS = Constant(
    18.9,
    "s",
    "fit of ridge with 3,706 items (MovieLens-1M)",
    f"`python benchmarks/ridge.py`, {SPEED}",
)
RIDGE_ITEMS = 3_706
FAISS_MS = Constant(
    0.34,
    "ms",
    "best 200 of 100,000 x 64 drawn vectors by FAISS IVF (CPU; 0.29 to 0.40 in four runs)",
    "`python benchmarks/retrieval.py`",
)
EXACT_MS = Constant(
    3.0,
    "ms",
    "the same, exact (CPU; 2.4 to 3.7; 8.1 to 10.1 times the index of the same run)",
    "`python benchmarks/retrieval.py`",
)
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
