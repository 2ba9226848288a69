"""The service under load: speed, kills, replicas, memory. Loopback only.

    python benchmarks/service.py [speed|kills|restarts|replicas|memory] [--data ml-1m]
        [--run FOLDER] [--postgresql] [--workers 1] [--small]

speed: lists a second and their times, feedback events a second, and the ratio of the time of a
request to a bare call of `model.recommend`, measured in turns. Load generator and service share the
machine; users are distinct, no answer is cached, every list is recorded.
kills: kill -9 at named points and at random under load (worker, server, database).
restarts: seconds until it is ready again after a kill.
replicas: servers on one database, with label epochs that change and a model that is swapped.
memory: of the worker, over many requests after a warm-up.

--run: a folder of a model of the whole log; without it fcpo:fast is fitted, and kept there.
--postgresql: a server of its own on a temporary folder in place of SQLite.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import fairhorizon as fh
from fairhorizon.service.store.database import Database
from local_postgres import Postgres
from service_checks import accounts_agree, count_events, excesses
from service_kills import APART, POINTS, at_point, at_random
from service_load import (
    Answers,
    Connection,
    Server,
    Work,
    closed_loop,
    open_loop,
    served,
)
from service_traffic import Traffic
from shared import parse

RATE = 200.0  # lists a second of the open loop
LIMIT = "popular<=0.4"
SERVED = {"slack": 200}  # C, as by default


class Place:
    """Databases for servers, in a temporary folder or on a PostgreSQL of its own."""

    def __init__(self, postgresql: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fairhorizon-service-"))
        self.postgres = Postgres.make() if postgresql else None
        if self.postgres is not None:
            self.postgres.start()
        self.count = 0

    def new(self) -> str:
        self.count += 1
        if self.postgres is None:
            return str(self.folder / f"{self.count}.db")
        return self.postgres.new_database(f"service{self.count}")

    def config(self, **settings: object) -> list[str]:
        """Options for a server with these settings."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        file = self.folder / f"config{time.time_ns()}.toml"
        file.write_text("\n".join(["[service]", *lines, ""]))
        return ["--config", str(file)]

    def remove(self) -> None:
        if self.postgres is not None:
            self.postgres.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def fitted(data: str, method: str, folder: Path | None, place: Place) -> Path:
    """A folder with a model of the whole log."""
    folder = folder or place.folder / "run"
    if not (folder / "run.json").exists():
        fh.fit(data, method, limits=[LIMIT]).save(folder)
    return folder


def list_of(user: str) -> Work:
    async def work(connection: Connection) -> int:
        return (await connection.call("GET", f"/api/recommend/{user}?n=10"))[0]

    return work


def batch_of(first: int, users: list[str], items: list[str]) -> Work:
    """100 events that were never sent."""
    events = [
        {
            "FeedbackType": "click",
            "UserId": users[number % len(users)],
            "ItemId": items[number % len(items)],
            "EventId": f"event-{number}",
        }
        for number in range(first, first + 100)
    ]
    body = json.dumps(events).encode()

    async def work(connection: Connection) -> int:
        return (await connection.call("POST", "/api/feedback", body))[0]

    return work


def described(name: str, answers: Answers) -> None:
    wrong = sum(status != 200 for status in answers.statuses)
    print(
        f"{name:44}{answers.per_second:8.0f} a second   p50 {1000 * answers.quantile(0.5):6.1f} ms"
        f"   p99 {1000 * answers.quantile(0.99):6.1f} ms   {wrong} refused"
    )


def speed(run: Path, place: Place, options: argparse.Namespace) -> None:
    model = fh.open_model(run)
    users, items = [str(one) for one in model.users], [str(one) for one in model.items]
    n = min(options.requests, len(users))
    with served(Server(run, place.new(), workers=options.workers)) as server:

        async def measure() -> None:
            warm = [list_of(user) for user in users[:50]]
            await closed_loop(server.port, 1, iter(warm))
            described("lists, 8 clients", await closed_loop(
                server.port, 8, iter([list_of(user) for user in users[:n]])
            ))  # fmt: skip
            described(f"lists, {RATE:g} a second asked for", await open_loop(
                server.port, RATE, [list_of(user) for user in users[-n:]]
            ))  # fmt: skip
            works = [batch_of(100 * number, users, items) for number in range(options.batches)]
            answers = await closed_loop(server.port, 2, iter(works))
            described("feedback, calls of 100 events", answers)
            print(f"feedback events{100 * answers.per_second:37.0f} a second")
            await one_at_a_time()

        async def one_at_a_time() -> None:
            connection, bare, asked = Connection(server.port), [], []
            for user in users[: min(n, 300)]:
                started = time.perf_counter()
                model.recommend([user], k=10)
                middle = time.perf_counter()
                await list_of(user)(connection)
                bare.append(middle - started)
                asked.append(time.perf_counter() - middle)
            await connection.close()
            print(f"bare model.recommend of one user, median{1000 * median(bare):17.2f} ms")
            print(f"a request, from end to end, median{1000 * median(asked):23.2f} ms")
            print(f"request / bare recommend, of the medians{median(asked) / median(bare):17.2f}")

        asyncio.run(measure())


def kills(run: Path, place: Place, options: argparse.Namespace) -> None:
    users = [str(one) for one in fh.open_model(run).users]
    results = []
    for point in POINTS[: options.points]:
        found = at_point(Server(run, place.new()), users, point)
        print(f"{point:24}{found}", flush=True)
        results.append(found)
    if options.kills:
        found = at_random(Server(run, place.new(), workers=2), users, options.kills, place.postgres)
        print(f"{'at random':24}{found}", flush=True)
        results.append(found)
    print(f"all good{sum(one.good for one in results):8d} of {len(results)}")


def replicas(run: Path, place: Place, options: argparse.Namespace) -> None:
    other = place.folder / "other-run"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("service.db*"))
    url, users = place.new(), [str(one) for one in fh.open_model(run).users]
    config = place.config(relabel=options.seconds / 10, **SERVED)
    servers = [Server(run, url, options=config) for _ in range(options.servers)]
    for server in servers:
        server.start()
    traffic = Traffic([one.port for one in servers], users, clients=8).start()
    time.sleep(options.seconds / 3)
    _swap(servers[0], other)
    time.sleep(options.seconds * 2 / 3)
    traffic.stop()
    for server in servers:
        server.stop()
    database = Database(url)
    for one in excesses(database):
        print(
            f"{one.limit}: {one.showings:,.0f} showings, {100 * one.share:.2f} % reached, at most "
            f"{one.worst:.1f} over the share after any list (C = {one.slack:g})"
        )
    kept = all(one.kept for one in excesses(database))
    print(f"lists {len(traffic.answered):,}, statuses {traffic.statuses}")
    sent = len(traffic.acknowledged)
    print(f"events acknowledged {sent:,}, stored {count_events(database):,}")
    with database.reading() as connection:
        epochs, models = _epochs_and_models(connection)
    print(f"label epochs {epochs}, models {models}, accounts agree {accounts_agree(database)}")
    print(f"kept after every list{' yes' if kept else ' NO'}")
    database.close()


def _epochs_and_models(connection: object) -> tuple[int, int]:
    import sqlalchemy as sa

    from fairhorizon.service.store.schema import lists

    query = sa.select(
        sa.func.count(sa.distinct(lists.c.epoch)), sa.func.count(sa.distinct(lists.c.model_id))
    )
    row = connection.execute(query).one()  # type: ignore[attr-defined]
    return int(row[0]), int(row[1])


def _swap(server: Server, folder: Path) -> None:
    """Register a model and promote it."""
    for path, body in (("/v1/models", {"Folder": str(folder)}), ("/v1/models/2/promote", None)):
        status, content = server.call("POST", path, body or {})
        assert status == 202, content
        job = json.loads(content)["Id"]
        while True:
            state = json.loads(server.get(f"/v1/jobs/{job}")[1])
            if state["State"] in ("done", "failed"):
                print(f"{path}: {state['State']}, {state['Message']}")
                break
            time.sleep(0.2)


def memory(run: Path, place: Place, options: argparse.Namespace) -> None:
    users = [str(one) for one in fh.open_model(run).users]
    with served(Server(run, place.new())) as server:
        (worker,) = server.worker_pids()

        def asked(n: int) -> Iterator[Work]:
            return iter([list_of(users[number % len(users)]) for number in range(n)])

        asyncio.run(closed_loop(server.port, 8, asked(options.warm_up)))
        before = resident(worker)
        answers = asyncio.run(closed_loop(server.port, 8, asked(options.requests)))
        after = resident(worker)
    described("lists, 8 clients", answers)
    print(f"memory of the worker {before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB")
    print(f"growth{100 * (after / before - 1):28.2f} %")


def restarts(run: Path, place: Place, options: argparse.Namespace) -> None:
    """Seconds until it is ready again after kill -9 of its only worker, and of all of it."""
    with served(Server(run, place.new())) as server:
        for _ in range(options.restarts):
            time.sleep(options.apart)
            started = time.perf_counter()
            server.kill(*server.worker_pids())
            time.sleep(0.05)  # until the socket is closed
            server.wait_until_ready()
            print(f"the worker{time.perf_counter() - started:20.2f} s", flush=True)
        for _ in range(options.restarts):
            started = time.perf_counter()
            server.kill_all()
            server.start()
            print(f"the server{time.perf_counter() - started:20.2f} s", flush=True)


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
    raise ValueError(pid)


PARTS: dict[str, Callable[[Path, Place, argparse.Namespace], None]] = {
    one.__name__: one for one in (speed, kills, restarts, replicas, memory)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS, default="speed")
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="speed: processes that serve")
    parser.add_argument("--requests", type=int, help="speed: 3000, memory: 100000")
    parser.add_argument("--batches", type=int, default=200, help="speed: calls of 100 events")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--points", type=int, default=len(POINTS))
    parser.add_argument("--restarts", type=int, default=3, help="restarts: of each kind")
    parser.add_argument("--seconds", type=float, default=180.0, help="replicas: how long")
    parser.add_argument("--servers", type=int, default=4, help="replicas: how many")
    parser.add_argument("--warm-up", type=int, default=10_000)
    parser.add_argument("--method", default="fcpo:fast", help="that is fitted without --run")
    parser.add_argument("--apart", type=float, default=APART, help="seconds between two restarts")
    small = {"requests": 20, "batches": 1, "kills": 0, "points": 1, "restarts": 1, "seconds": 1.5}
    options = parse(parser, **small, servers=2, warm_up=20, method="ease+lists", apart=0.0)
    if options.requests is None:
        options.requests = 100_000 if options.part == "memory" else 3000
    place = Place(options.postgresql)
    try:
        run = fitted(options.data, options.method, options.run, place)
        PARTS[options.part](run, place, options)
    finally:
        place.remove()


if __name__ == "__main__":
    main()
