"""How long lists under limits take, as ratios to the bare scores of the same users.

    python benchmarks/list_speed.py --model FOLDER [--data ml-100k] [--users 60] [--repeats 5]
        [--json FILE] [--small]

Bare scores are those of the rankers behind the model with the best 10 items of each: nothing keeps
a limit. Both are measured in turns in one run, in CPU time of one thread, which other work on the
machine changes little, and the medians of the repetitions are compared. The model is fitted once
(fcpo, preset fast, 1 round: what it has learned does not matter for time), written to --model/DATA
and read from there the next time.

    one user    a call `Model.recommend([user])`
    everybody   a call `Model.recommend()`
    request     a call `ModelServer.recommend(user)`, counted by the guard
    decision    a list of a service's replica, within its leases, without its database

With --json the ratios are also added to a file, under the name of the data.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import fairhorizon as fh
from shared import parse

METHOD, SETTINGS = "fcpo:fast", {"rounds": 1}
LENGTH = 10
ONE = ("popular<=0.4",)
THREE = ("popular<=0.4", "genre=Drama>=0.3", "genre=Comedy<=0.2")
SMALL_THREE = ("popular<=0.4", "kind=a>=0.2", "kind=b<=0.5")
BY_PLACE = ("popular<=0.4;weights=log",)
Work = Callable[[], object]


def milliseconds(work: Work) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def fitted(data: str, folder: Path, items: Any) -> fh.Model:
    """The model under one limit, from its folder or fitted now."""
    if (folder / "run.json").exists():
        return fh.open_model(folder)
    model = fh.fit(data, METHOD, limits=ONE, items=items, settings=SETTINGS)
    model.save(folder)
    return model


def under(folder: Path, limits: Sequence[str]) -> fh.Model:
    """The stored model under other limits: its card is rewritten, and read again."""
    with tempfile.TemporaryDirectory() as other:
        for file in folder.iterdir():
            (Path(other) / file.name).symlink_to(file.resolve())
        card = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        (Path(other) / "run.json").unlink()
        text = json.dumps(card | {"limits": list(limits)})
        (Path(other) / "run.json").write_text(text, encoding="utf-8")
        return fh.open_model(other)


def bare_scores(model: fh.Model, users: Sequence[Any]) -> Work:
    """The scores of all rankers for some users, and the best items of each."""
    from fairhorizon.model.serving import RepeatRule, Requests

    state = model.state
    persons = [state.users.find(user) for user in users]
    asked = Requests(persons, None, RepeatRule())
    scenario = asked.scenario(state.users, state.n_items, state.serving.queue_length)
    codes = scenario.codes_of(torch.arange(len(users)))

    @torch.inference_mode()
    def work() -> None:
        for ranker in state.unlimited.rankers:
            if len(users) == 1:
                ranker.score_small_batch(codes, scenario.queue).topk(LENGTH)
                continue
            for rows in torch.arange(len(users)).split(1024):
                ranker.scores(codes[rows], scenario.queue[rows]).topk(LENGTH)

    return work


@contextmanager
def decisions(folder: Path, limits: Sequence[str]) -> Iterator[Callable[[str], object]]:
    """Decides the list of a user as a replica of the service does, with leases that last."""
    from fairhorizon.service.admin.set_up import set_up
    from fairhorizon.service.budget.leases import LeaseBalance
    from fairhorizon.service.replica.list_builder import ListBuilder, ListRequest, UserHistories
    from fairhorizon.service.replica.snapshot import SnapshotLoader
    from fairhorizon.service.settings import ServiceSettings
    from fairhorizon.service.store.database import Database

    with tempfile.TemporaryDirectory() as place:
        database, settings = Database(str(Path(place) / "service.db")), ServiceSettings()
        set_up(database, settings, run=folder, asked=limits)
        with database.reading() as connection:
            snapshot = SnapshotLoader(database).load(connection)
        m, lots = len(snapshot.rules), 2**50
        none = [np.zeros(m, dtype=np.int64) for _ in range(4)]
        windows = [0] * len(snapshot.rules.limits)
        names = [""] * len(windows)
        left, prices = np.full(m, lots, dtype=np.int64), np.zeros(m)
        balance = LeaseBalance(snapshot.rules, windows, names, none[0], left, *none[1:], prices)
        builder = ListBuilder(snapshot, prices, settings, np.random.default_rng(0))

        def decide(user: str) -> object:
            (decided,) = builder.build([ListRequest(user, LENGTH)], UserHistories(), balance)
            if isinstance(decided, Exception):
                raise decided
            return decided

        yield decide
        database.close()


def ratio(name: str, works: Sequence[tuple[Work, Work]], found: dict[str, Any]) -> None:
    """The medians of lists and bare scores, which take turns."""
    lists, bare = zip(*[(milliseconds(a), milliseconds(b)) for a, b in works], strict=True)
    measured = {"lists_ms": median(lists), "bare_ms": median(bare)}
    measured["ratio"] = measured["lists_ms"] / measured["bare_ms"]
    found[name] = {key: round(value, 3) for key, value in measured.items()}
    print(
        f"{name:34} {measured['lists_ms']:10.2f} ms  bare {measured['bare_ms']:10.2f} ms"
        f"  ratio {measured['ratio']:8.2f}",
        flush=True,
    )


def measure(folder: Path, three: Sequence[str], users: int, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    models = {"one limit": under(folder, ONE), "three limits": under(folder, three)}
    models["by place"] = under(folder, BY_PLACE)
    first = models["one limit"]
    drawn = np.random.default_rng(0).permutation(len(first.users))[:users]
    some = [first.users[number] for number in drawn]
    bare = {user: bare_scores(first, [user]) for user in some}
    for name, model in models.items():
        model.recommend(some[:1], LENGTH)
        works = [
            (lambda model=model, user=user: model.recommend([user], LENGTH), bare[user])
            for user in some
        ]
        ratio(f"one user, {name}", works, found)
    for name, model in models.items():
        server = model.server()
        for user in some[: users // 4]:  # the first requests find the prices
            server.recommend(user, LENGTH)
        works = [
            (lambda server=server, user=user: server.recommend(user, LENGTH), bare[user])
            for user in some
        ]
        ratio(f"request, {name}", works, found)
    for name, limits in (("one limit", ONE), ("three limits", three), ("by place", BY_PLACE)):
        with decisions(folder, limits) as decide:
            for user in some[: users // 4]:
                decide(str(user))
            works = [
                (lambda user=user, decide=decide: decide(str(user)), bare[user]) for user in some
            ]
            ratio(f"decision, {name}", works, found)
    everybody = bare_scores(first, first.users)
    everybody()
    for name, model in models.items():
        works = [
            (lambda model=model: model.recommend(None, LENGTH), everybody) for _ in range(repeats)
        ]
        ratio(f"everybody, {name}", works, found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parse(parser, users=4, repeats=1)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # ties in time, limits that few users cannot keep
    with tempfile.TemporaryDirectory() as place:
        name = "small" if options.small else options.data
        folder = (Path(place) if options.model is None else options.model) / name
        three = THREE
        if not options.small:
            items = fh.items_of(options.data)
        else:
            import polars as pl

            log, three = fh.load(options.data), SMALL_THREE
            kinds = ["ab"[number % 2] for number in range(log.n_items)]
            items = pl.DataFrame({"item": log.item_ids.tolist(), "kind": kinds})
        model = fitted(options.data, folder, items)
        print(f"{name}: {METHOD} {SETTINGS}, {len(model.users)} users, {len(model.items)} items")
        load = os.getloadavg()
        found = measure(folder, three, options.users, options.repeats)
    if options.json is not None:
        there = json.loads(options.json.read_text("utf-8")) if options.json.exists() else {}
        there[name] = {
            "model": f"{METHOD} {SETTINGS}",
            "users": options.users,
            "repeats": options.repeats,
            "load_average": {
                "before": load[0],
                "after": os.getloadavg()[0],
                "cores": os.cpu_count(),
            },
            "ratios": found,
        }
        options.json.write_text(json.dumps(there, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
