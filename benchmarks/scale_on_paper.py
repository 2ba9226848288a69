"""The arithmetic of docs/scale.md: a hundred million users and ten million items, on paper.

    python benchmarks/scale_on_paper.py [--write] [--users 1e8] [--items 1e7] [--price 0.05]
        [--small]

Nothing is run: measured constants (scale_on_paper.py) are multiplied by assumed sizes. Prints the
tables of the page; --write puts them there, between markers that name them:

    <!-- scale: parts -->
    <!-- scale: end -->
"""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import scale_on_paper as measured
from fairhorizon.service.budget.leases import TIMES
from shared import parse

# What docs/scale.md is computed from: the assumed size, and constants with their source.


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
    "`python benchmarks/rankers.py`",
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
    f"`python benchmarks/rankers.py`, {SPEED}",
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


PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
MARKER = re.compile(r"(<!-- scale: (\w+) -->\n)(.*?)(<!-- scale: end -->)", re.DOTALL)
DAY, HOUR, YEAR = 86_400.0, 3600.0, 365.25 * 86_400


def bytes_(amount: float) -> str:
    return _scaled(amount, (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "B")


def seconds(amount: float) -> str:
    return _scaled(amount, (("years", YEAR), ("days", 2 * DAY), ("h", HOUR), ("min", 60.0)), "s")


def _scaled(amount: float, units: Sequence[tuple[str, float]], smallest: str) -> str:
    for unit, size in units:
        if amount >= size:
            amount /= DAY if unit == "days" else size
            return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
    return f"{amount:.3g} {smallest}"


def table(header: str, rows: Sequence[Sequence[str]], align: str = "") -> str:
    names = header.split(" | ")
    rule = "|".join("---:" if letter == "r" else "---" for letter in align.ljust(len(names), "l"))
    return "\n".join([f"| {header} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def assumptions(size: Size) -> str:
    rows = [
        ("users, items", f"{size.users:.0e}, {size.items:.0e}"),
        ("interactions in the log", f"{size.per_user:g} a user: {size.interactions:.0e}"),
        ("traffic", f"{size.daily_users:.0e} users a day, {size.lists_each:g} lists each, "
         f"{size.length} items: {size.lists_a_day:.0e} lists, "
         f"{size.lists_a_day * size.length:.0e} showings a day"),
        ("peak", f"{size.peak:g} times the mean: {size.lists_at_peak:,.0f} lists a second"),
        ("feedback", f"{size.events_each:g} events a list"),
        ("vectors", f"{size.factors} numbers of 4 bytes"),
        ("limits", f"{size.limits}"),
        ("price", f"{size.price:g} for a core and an hour, in any currency (`--price`)"),
    ]  # fmt: skip
    return table("assumed | value", rows)


def constants(_size: Size) -> str:
    rows = [
        (f"`{name}`", f"{one.value:.4g} {one.unit}", one.meaning, one.source)
        for name, one in CONSTANTS.items()
    ]
    rows = [
        (
            name,
            value,
            meaning,
            source + (", provisional" if CONSTANTS[name[1:-1]].provisional else ""),
        )
        for name, value, meaning, source in rows
    ]
    return table("constant | value | of what | source", rows)


def retrieval_ms(size: Size) -> float:
    """Of one list on one shard: an inverted index is searched in time ~ sqrt(items)."""
    of_shard = size.items / size.retrieval_shards
    return measured.FAISS_MS.value * (of_shard / measured.FAISS_ITEMS) ** 0.5


def between_reports(size: Size) -> float:
    """sqrt(n s H / 3), a budget of a day: see fleet.py."""
    return (size.replicas * measured.LOCK_MS.value / 1000 * DAY / TIMES) ** 0.5


def most_lists_together(_size: Size) -> float:
    """A second through one lock, all batches full."""
    batch = measured.BATCH.value
    return 1000 * batch / (measured.LOCK_MS.value + measured.LIST_MS.value * batch)


def fitting(size: Size) -> str:
    ease = measured.EASE_SECONDS.value * (size.items / measured.EASE_ITEMS) ** 3
    ridge = measured.RIDGE_SECONDS.value * (size.items / measured.RIDGE_ITEMS) ** 3
    read = size.interactions / measured.ROWS_READ.value
    fit = size.interactions * measured.FIT_SECONDS.value
    vectors = size.items * size.factors * 4
    vectors_of = 1 + measured.CG_PRODUCTS.value
    summed = 8 * measured.ACTOR.value * (1 + size.limits) * vectors_of
    rows = [
        ("reading logs", "rows / rows a second; 24 bytes a row",
         f"{seconds(read)} of one core; {bytes_(24 * size.interactions)}",
         "one reader", "parts by user, read side by side; new parts only"),
        ("counts, histories", "8 (items + interactions) bytes",
         bytes_(8 * (size.items + size.interactions)), "memory",
         "shards of users; counts are added up"),
        ("EASE", "4 items² bytes; time ~ items³",
         f"{bytes_(4 * size.items**2)}; {seconds(ease)}", "never above some 10,000 items",
         "a sampled model in its place, or EASE of the head only"),
        ("ridge, two scales", "4 (2 items)² bytes; time ~ items³",
         f"{bytes_(4 * (2 * size.items) ** 2)}; {seconds(ridge)}", "the same", "the same"),
        ("item-kNN", "interactions x history pairs; 200 neighbours of 8 bytes",
         f"{size.interactions * size.per_user:.0e} pairs; {bytes_(1600 * size.items)}",
         "pairs of long histories", "the latest 50 items of a history; shards of items"),
        ("sampled sequence model", "interactions x s an interaction; 4 x factors x items bytes, "
         "three times with Adam",
         f"{seconds(fit)} of one process, {seconds(fit / size.workers)} of {size.workers} at best; "
         f"{bytes_(vectors)}, {bytes_(3 * vectors)}", "gradients of all vectors cannot be summed",
         "vectors in shards, only rows that were used are sent"),
        ("rounds of CPO", "8 x parameters x (1 + limits) x (1 + products) bytes a round and worker",
         f"{bytes_(summed)}; of {size.workers} workers {bytes_(size.workers * summed)}",
         "nothing: the actor is small", "users in shards, whose sums are added"),
    ]  # fmt: skip
    return table("part | formula | at this size | what limits it | what would be done", rows)


def serving(size: Size) -> str:
    vectors = size.items * size.factors * 4
    shards = size.retrieval_shards
    joint = measured.JOINT_MS.value / 1000 * size.users
    every, n = between_reports(size), size.replicas
    signs = n * 5 / measured.TIMEOUT.value
    histograms = 8 * size.bins * size.user_shards * size.rounds_of_price * size.limits
    exact = measured.EXACT_MS.value * size.items / measured.FAISS_ITEMS
    day = size.lists_a_day
    rows = [
        ("retrieval", "4 x factors x items bytes; ms ~ sqrt(items of a shard)",
         f"{bytes_(vectors)}, {bytes_(vectors / shards)} a shard; {retrieval_ms(size):.1f} ms on "
         f"each of {shards} (exact: {seconds(exact / 1000)})", "time of a core",
         "shards of items, each copied; the best of each shard are merged"),
        ("scoring candidates", "ms ~ candidates",
         f"{measured.BARE_MS.value * size.candidates / measured.RIDGE_ITEMS:.1f} ms a list",
         "nothing", "candidates of retrieval in place of all items"),
        ("deciding a list", "peak / lists a second of a worker",
         f"{size.lists_at_peak / measured.LISTS_PER_WORKER.value:.0f} workers",
         "time of a core", "more replicas"),
        ("recording in one database", "batch / (lock + batch x list)",
         f"at most {most_lists_together(size):,.0f} lists a second in full batches, "
         f"{1000 / (measured.LOCK_MS.value + measured.LIST_MS.value):,.0f} one by one; "
         f"{size.lists_at_peak:,.0f} are asked for", "**one lock for all lists**",
         "lists are recorded apart, in shards; only leases go to the account"),
        ("leases, lists apart", "replicas / T reports a second, T = sqrt(n s H / 3)",
         f"every {every:.0f} s: {n / every:.1f} a second, {n / every * DAY:,.0f} a day; "
         f"lock held {100 * n * measured.LOCK_MS.value / 1000 / every:.2f} %, budget unused "
         f"{100 * TIMES * every / DAY:.2f} %", "nothing",
         "the rule of the service, with a lease that expires"),
        ("signs of life", "5 replicas / timeout",
         f"{signs:,.0f} a second, {signs * DAY:,.0f} a day",
         "writes of the same database", "a longer timeout, or with the reports"),
        ("storage of lists", "bytes a list", f"{bytes_(day * measured.LIST_BYTES.value)} a day",
         "disk", "shards by user, columns, days that age out"),
        ("feedback", "peak events / events a second",
         f"{size.events_each * size.lists_at_peak:,.0f} a second: "
         f"{size.events_each * size.lists_at_peak / measured.EVENTS.value:.1f} databases",
         "inserts", "shards by user"),
        ("joint lists of everybody", "users x ms", f"{seconds(joint)} of one core; lists "
         f"{bytes_(size.users * 20 * 8)}", "time of cores", "shards of users"),
        ("joint prices over shards", "rounds x shards x bins x 8 bytes, for each limit",
         bytes_(histograms), "nothing", "histograms of gains; several limits by their dual"),
        ("evaluation", "blocks of users, with their candidates",
         f"{bytes_(4 * size.candidates * 1e5)} for a block of 100,000 users",
         "nothing", "shards of users; sums are added up"),
    ]  # fmt: skip
    return table("part | formula | at this size | what limits it | what would be done", rows)


def costs(size: Size) -> str:
    """Core-hours a day; the machines that stand ready are paid for all day, at the peak."""
    deciding = size.lists_at_peak / measured.LISTS_PER_WORKER.value * 24
    retrieval = size.lists_at_peak * size.retrieval_shards * retrieval_ms(size) / 1000 * 24
    found = {
        "deciding and recording, ready for the peak": deciding,
        "retrieval, ready for the peak": retrieval,
        "feedback, ready for the peak": (
            2 * 24 * size.events_each * size.lists_at_peak / measured.EVENTS.value
        ),
        "fit of one sampled model a day": size.interactions * measured.FIT_SECONDS.value / HOUR,
        "joint lists of everybody once a day": size.users * measured.JOINT_MS.value / 1000 / HOUR,
        "reading the whole log once a day": size.interactions / measured.ROWS_READ.value / HOUR,
    }
    found["together"] = sum(found.values())
    rows = [(name, f"{hours:,.0f}", f"{hours * size.price:,.0f}") for name, hours in found.items()]
    return table("a day | core-hours | cost", rows, "lrr")


TABLES: dict[str, Callable[[Size], str]] = {
    one.__name__: one for one in (assumptions, constants, fitting, serving, costs)
}


def filled(text: str, size: Size) -> str:
    """A page with its tables."""
    return MARKER.sub(lambda found: f"{found[1]}\n{TABLES[found[2]](size)}\n\n{found[4]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=float, default=Size.users)
    parser.add_argument("--items", type=float, default=Size.items)
    parser.add_argument("--price", type=float, default=Size.price)
    parser.add_argument("--write", action="store_true", help="the tables into docs/scale.md")
    options = parse(parser, write=False)
    size = Size(users=options.users, items=options.items, price=options.price)
    if options.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), size), encoding="utf-8")
        return
    for name, make in TABLES.items():
        print(f"{name}\n\n{make(size)}\n")


if __name__ == "__main__":
    main()
