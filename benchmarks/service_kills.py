"""Ends of processes at the worst moments: what is lost, and how soon it serves again."""

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairhorizon.service.store import database as databases
from fairhorizon.service.store.database import Database
from local_postgres import Postgres
from service_checks import accounts_agree, excesses, missing_events, missing_lists
from service_load import Server, ServerEndedError
from service_traffic import Traffic

APART = 7.0  # seconds: a worker that ends twice within 5.5 s ends the server
POINTS = (
    databases.AFTER_CHARGE,
    databases.BEFORE_COMMIT,
    databases.AFTER_COMMIT,
    databases.FEEDBACK_AFTER_COMMIT,
    databases.IN_EPOCH_SWITCH,
)


@dataclass
class Found:
    """What was seen after some kills."""

    kills: int
    answered: int
    unrecorded: int
    acknowledged: int
    lost: int
    worst: float  # showings above the share
    slack: float
    agree: bool
    slowest: float  # seconds until ready again

    @property
    def good(self) -> bool:
        return not self.unrecorded and not self.lost and self.worst <= self.slack and self.agree

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.answered:,} lists answered, {self.unrecorded} unrecorded; "
            f"{self.acknowledged:,} events acknowledged, {self.lost} lost; at most "
            f"{self.worst:.1f} showings over the share (C = {self.slack:g}); accounts "
            f"{'agree' if self.agree else 'DISAGREE'} with lists; ready after {self.slowest:.1f} s"
        )


def looked_at(server: Server, traffic: Traffic, kills: int, slowest: float) -> Found:
    """Check the database of a server that was stopped."""
    database = Database(server.database)
    found = excesses(database)
    worst = max((one.worst for one in found), default=0.0)
    slack = min((one.slack for one in found), default=0.0)
    result = Found(
        kills,
        len(traffic.answered),
        missing_lists(database, traffic.answered),
        len(traffic.acknowledged),
        missing_events(database, traffic.acknowledged),
        worst,
        slack,
        accounts_agree(database),
        slowest,
    )
    database.close()
    return result


def at_random(
    server: Server,
    users: list[str],
    kills: int,
    postgres: Postgres | None,
    seed: int = 0,
) -> Found:
    """Kill a worker, all of the server or the database under load, at random times."""
    draws, slowest = random.Random(seed), 0.0
    server.start()
    traffic = Traffic([server.port], users, seed=seed).start()

    def worker() -> None:
        server.kill(draws.choice(server.worker_pids()))

    def everything() -> None:
        server.kill_all()
        server.start()

    def database() -> None:
        assert postgres is not None
        postgres.kill()
        postgres.start_again()

    ways: list[Callable[[], None]] = [worker, everything]
    if postgres is not None:
        ways.append(database)
    for number in range(kills):
        time.sleep(APART + draws.random())
        started = time.perf_counter()
        ways[number % len(ways)]()
        time.sleep(0.05)
        server.wait_until_ready()
        slowest = max(slowest, time.perf_counter() - started)
    time.sleep(1)
    traffic.stop()
    server.stop()
    return looked_at(server, traffic, kills, slowest)


def at_point(server: Server, users: list[str], point: str) -> Found:
    """Let a server end itself at a named point under load, and serve again after it."""
    server.environment = {databases.CRASH_AT: point}
    with contextlib.suppress(ServerEndedError):  # after its first charge, before it is ready
        server.start()
    traffic = Traffic([server.port], users).start()
    server.call("POST", "/v1/jobs", {"Kind": "relabel"})
    until = time.monotonic() + 30
    while server.process is not None and server.process.poll() is None:
        if time.monotonic() > until:
            raise TimeoutError(f"did not end at {point}")
        time.sleep(0.1)
    server.environment = {}
    started = time.perf_counter()
    server.start()
    slowest = time.perf_counter() - started
    time.sleep(2)
    traffic.stop()
    server.stop()
    return looked_at(server, traffic, 1, slowest)


def fresh(folder: Path) -> str:
    """The path of a new SQLite database."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return str(folder / "service.db")
