"""An ordinary shop: what a fit, a call, lists for everybody and the model file cost, in one run.

    python benchmarks/shop.py [--scale 3] [--profile FILE] [--small]

The shop has 5,000 customers, 6,000 products and 150,000 rows, with --scale so many times each. The
measure of the fit is one dense solve of EASE on the same log, in CPU seconds; that of lists is the
bare scores of the rankers behind them. One thread. All lists are made under four limits: on big
sellers, on each seller, and floors for small sellers and for products of the last 30 days.
"""

import argparse
import cProfile
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

import fairhorizon as fh
from fairhorizon.data.interactions import Interactions, RepeatsWarning
from fairhorizon.model.serving import RepeatRule, Requests, ServingState
from fairhorizon.rankers.ease import Ease
from fairhorizon.ranking import standardised
from fairhorizon.simulation.feedback import Scenario
from shared import parse

LIMITS = (
    "seller_size=big<=0.4",
    "seller_size=small>=0.3",
    "seller:each<=0.05",
    "added_on:30d>=0.02",
)
SIZES, SMALL = (5000, 6000, 150_000), (60, 80, 1500)  # customers, products, rows
DAY, DAYS = 86_400, 365
PER_CATEGORY = 300  # products
DIM = 3  # of tastes within a category
USERS_AT_ONCE = 1024
K = 10


# ---- The shop ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shop:
    """Its log, and a row per product."""

    log: pl.DataFrame  # user, item, time in seconds
    products: pl.DataFrame  # item, seller, seller_size, category, price, added_on


def drawn(customers: int, products: int, rows: int, seed: int = 0) -> Shop:
    """Customers visit, stay with a category for a while, and buy by taste, fame and price.

    Fame is zipf within a category, sellers have zipf sizes, half of the products come during the
    year, and a seventh of the rows buys again what the customer had before.
    """
    rng = np.random.default_rng(seed)
    categories = max(2, products // PER_CATEGORY)
    sellers = max(25, products // 30)
    category = rng.integers(0, categories, products)
    # Sellers of rank r have a part of the catalogue like r^-0.8; the first tenth is big.
    parts = np.arange(1, sellers + 1) ** -0.8
    seller = rng.choice(sellers, products, p=parts / parts.sum())
    price = np.exp(rng.normal(3, 0.8, products))
    launched = np.where(rng.random(products) < 0.5, 0, rng.integers(0, DAYS, products))
    fame = rng.permutation(products).argsort() + 1.0
    appeal = -0.7 * np.log(fame)
    traits = rng.normal(0, 1, (products, DIM))

    user = np.sort(rng.choice(customers, rows, p=_activity(customers, rng)))
    day = _days(user, customers, rng)
    wanted = _categories(user, customers, categories, rng)
    tastes = rng.normal(0, 1, (customers, DIM))
    budget = rng.normal(3, 0.5, customers)
    item = np.full(rows, -1)
    for one in range(categories):
        own = np.flatnonzero(category == one)
        if not len(own):
            continue
        for some in np.array_split(np.flatnonzero(wanted == one), max(1, rows // 50_000)):
            who = user[some]
            logits = appeal[own] + tastes[who] @ traits[own].T
            logits -= 0.5 * (np.log(price[own]) - budget[who, None]) ** 2
            logits[launched[own] > day[some, None]] = -np.inf
            item[some] = own[(logits + rng.gumbel(size=logits.shape)).argmax(1)]
    item = _with_repeats(user, np.where(item < 0, 0, item), rng)
    time_of = (day * DAY + rng.integers(0, DAY, rows)).astype(np.int64)
    order = np.argsort(time_of, kind="stable")
    log = pl.DataFrame({"user": user[order], "item": item[order], "time": time_of[order]})
    sizes = np.where(seller < sellers // 10, "big", np.where(seller < sellers // 3, "mid", "small"))
    return Shop(
        log,
        pl.DataFrame(
            {
                "item": np.arange(products),
                "seller": [f"s{code}" for code in seller.tolist()],
                "seller_size": sizes.tolist(),
                "category": [f"c{code}" for code in category.tolist()],
                "price": price.round(2),
                "added_on": np.datetime64("2025-01-01") + launched,
            }
        ),
    )


def _activity(customers: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(customers,) the part that each has of all rows."""
    parts = np.exp(rng.normal(0, 0.8, customers))
    return parts / parts.sum()


def _days(user: NDArray[np.int64], customers: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(rows,) rising within each customer, who came at some time of the year."""
    came = rng.integers(0, DAYS * 3 // 4, customers)
    day = came[user] + (rng.random(len(user)) * (DAYS - came[user])).astype(np.int64)
    return day[np.lexsort((day, user))]


def _categories(
    user: NDArray[np.int64], customers: int, categories: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(rows,) one of a customer's eight, the same as in the row before in half of the rows."""
    own = rng.integers(0, categories, (customers, 8))
    fresh = own[user, (8 * rng.random(len(user)) ** 2).astype(np.int64)]
    begins = (rng.random(len(user)) < 0.5) | np.append(True, user[1:] != user[:-1])
    return fresh[np.maximum.accumulate(np.where(begins, np.arange(len(user)), 0))]


def _with_repeats(
    user: NDArray[np.int64], item: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """A seventh of the rows replaced by one of the customer's earlier ones."""
    first = np.searchsorted(user, user)
    back = first + (rng.random(len(user)) * (np.arange(len(user)) - first)).astype(np.int64)
    return np.where(rng.random(len(user)) < 0.15, item[back], item)


# ---- What is measured ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What one shop costs: seconds of CPU unless said otherwise."""

    customers: int
    products: int
    rows: int
    solve: float  # of EASE, dense
    fit: float
    fit_gib: float  # peak memory
    file_mb: float
    call_ms: float  # for two users, the median
    bare: float
    everybody: float
    one_by_one: float
    gib: float  # peak memory of all of it


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def peak() -> float:
    """GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def everybody_of(model: fh.Model) -> tuple[ServingState, Scenario]:
    state = model.state
    people = [state.users.find(user) for user in model.users]
    requests = Requests([one for one in people if one is not None], None, RepeatRule())
    return state, requests.scenario(state.users, state.n_items, state.serving.queue_length)


def bare_scores(model: fh.Model) -> None:
    """The rankers' scores of everybody, their sum, and the best of it."""
    state, scenario = everybody_of(model)
    for users in torch.arange(scenario.n_users).split(USERS_AT_ONCE):
        queue, blocked = scenario.queue[users], scenario.state(users).blocked
        codes = scenario.codes_of(users)
        scores = [ranker.scores(codes, queue) for ranker in state.unlimited.rankers]
        total = torch.stack([standardised(some) for some in scores]).sum(0)
        total.masked_fill_(blocked, -torch.inf).topk(K, dim=1)


def one_by_one(model: fh.Model) -> None:
    """As `fairhorizon recommend --one-by-one`."""
    state, scenario = everybody_of(model)
    state.serving.rank_one_by_one(scenario, K, state.serving.request_guard(K))


def measured(
    customers: int, products: int, rows: int, *, calls: int, profile: Path | None
) -> Figures:
    """Everything, in this process, on one thread.

    calls: for two users.  profile: a file for that of the fit.
    """
    torch.set_num_threads(1)
    shop = drawn(customers, products, rows)
    log = fh.load(shop.log)
    assert isinstance(log, Interactions)
    whole = fh.split(log, test_share=0.0)
    solve, _ = cpu_seconds(lambda: Ease().fit(whole))
    with cProfile.Profile() if profile is not None else nullcontext() as watched:
        fit, model = cpu_seconds(lambda: fh.fit(log, limits=LIMITS, items=shop.products))
    if profile is not None:
        watched.dump_stats(profile)
    fit_gib = peak()
    print("\n".join(model.state.recommender.policy_.ensemble.summary), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "shop")
        file_mb = (Path(folder) / "shop" / "model.safetensors").stat().st_size / 1e6
    pairs = np.random.default_rng(0).permutation(len(model.users))[: 2 * calls + 2]
    users = [[model.users[number] for number in pair] for pair in pairs.reshape(-1, 2)]
    # The first call does what is done once.
    taken = [cpu_seconds(lambda pair=pair: model.recommend(pair, k=K))[0] for pair in users][1:]
    bare, _ = cpu_seconds(lambda: bare_scores(model))
    everybody, _ = cpu_seconds(lambda: model.recommend(k=K))
    single, _ = cpu_seconds(lambda: one_by_one(model))
    sizes = log.n_users, log.n_items, len(shop.log)
    lists = 1000 * median(taken), bare, everybody, single
    return Figures(*sizes, solve, fit, fit_gib, file_mb, *lists, peak())


def row(name: str, value: str, ratio: str = "") -> None:
    print(f"{name:36s} {value:>26s}  {ratio}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--profile", type=Path, help="where the profile of the fit is written")
    options = parse(parser)
    sizes = SMALL if options.small else tuple(int(options.scale * size) for size in SIZES)
    of = measured(*sizes, calls=2 if options.small else 20, profile=options.profile)
    row("customers x products x rows", f"{of.customers:,} x {of.products:,} x {of.rows:,}")
    row("EASE, one dense solve", f"{of.solve:.2f} s")
    row("fit", f"{of.fit:.1f} s", f"{of.fit / of.solve:.1f} x the solve of EASE")
    row("peak memory of the fit", f"{of.fit_gib:.2f} GiB")
    row("model file", f"{of.file_mb:.0f} MB")
    row("a call for two users, median", f"{of.call_ms:.1f} ms")
    row("bare scores of everybody", f"{of.bare:.2f} s")
    row(
        "lists of everybody", f"{of.everybody:.2f} s", f"{of.everybody / of.bare:.1f} x bare scores"
    )
    ratio = of.one_by_one / of.everybody
    row("one by one", f"{of.one_by_one:.2f} s", f"{ratio:.1f} x lists of everybody")
    row("peak memory of everything", f"{of.gib:.2f} GiB")


def silent() -> None:
    """Customers buy again, and a share of a few showings is kept in whole showings."""
    for expected in (RepeatsWarning, fh.LimitsNotKeptWarning):
        warnings.simplefilter("ignore", expected)


if __name__ == "__main__":
    with warnings.catch_warnings():
        silent()
        main()
