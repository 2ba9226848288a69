"""Calls that nobody would think of: every route of the service, with values made by its schema.

    python benchmarks/fuzz_api.py [--calls 10000] [--database postgresql] [--seed 0] [--small]

schemathesis makes the calls, half of them as the schema allows and half as it does not; some are
about items and users that are there. No answer may be a server error other than 503, and every
answer has to be one that the schema has. The application runs in this process.

--database: sqlite (a temporary file), postgresql (a server of its own on a temporary folder), or
the address of an empty database.
"""

import argparse
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

import fairhorizon as fh
from fairhorizon.service.admin import jobs
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from local_postgres import Postgres
from shared import MARKET, parse

ADDRESS = "http://localhost"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
AWAY = HTTPStatus.SERVICE_UNAVAILABLE
SHOWN = 10  # failures that are printed
MOST_JOBS = 10_000
PATIENCE = 300.0  # seconds

# What is there after a fit on the small market: values of paths, and bodies that get far.
KNOWN = {"user": "1", "item": "1", "limit": 1, "model": 1, "job": 1, "type": "like"}
BODIES: dict[str, list[Any]] = {
    "POST /v1/limits": [
        {"Limit": "popular<=0.5", "Window": "10 showings", "Slack": 1},
        {"Limit": "popular<=0.2@3", "Window": "day"},
        {"Limit": "new>=0.01;weights=log", "Counts": "confirmed"},
        {"Limit": "popular<=0"},
    ],
    "POST /v1/rank": [
        {"UserId": "1", "Candidates": [{"Id": "1", "Score": -1e9}, {"Id": "2", "Score": 1e9}]},
        {"UserId": "x", "Candidates": [{"Id": str(n), "Score": 0} for n in range(60)], "N": 100},
    ],
    "POST /api/feedback": [
        [{"FeedbackType": kind, "UserId": "1", "ItemId": str(n), "Value": -1e308}]
        for n, kind in enumerate(("like", "dislike", "read"))
    ],
}


@dataclass
class Found:
    """What was answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)  # by route and kind, how to see it

    @property
    def calls(self) -> int:
        return self.statuses.total()

    @property
    def server_errors(self) -> int:
        return sum(n for status, n in self.statuses.items() if status >= 500 and status != AWAY)

    def look_at(self, case: Any) -> None:
        """Make a call and keep what is wrong with its answer."""
        answer = case.call(base_url=ADDRESS)
        self.statuses[answer.status_code] += 1
        if answer.status_code == AWAY:
            return
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                name = f"{case.operation.label}: {type(failure).__name__}"
                self.failures.setdefault(name, f"{failure}\n{case.as_curl_command()}")


@contextmanager
def served(url: str, run: Path) -> Iterator[Any]:
    """The schema of the application of a service that runs."""
    database, settings = Database(url), ServiceSettings(requests_per_second=1e9)
    set_up(database, settings, run=run)
    service = Service(database, settings)
    app = build_app(service)

    async def requests_only(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":  # begin and end are ours
            await app(scope, receive, send)

    service.start()
    try:
        yield schemathesis.openapi.from_asgi("/openapi.json", requests_only)
        wait_for_jobs(database)
    finally:
        service.stop()


def wait_for_jobs(database: Database) -> None:
    """A job that is under way is not ended with the service."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with database.reading() as connection:
            if not any(row.state in jobs.OPEN for row in jobs.newest(connection, MOST_JOBS)):
                return
        time.sleep(0.1)


def fuzzed(schema: Any, calls: int, seed: int, known: dict[str, Any]) -> Found:
    """Make at least so many calls, spread over all routes.

    known: values of parameters of paths that are there, for half of the calls.
    """
    found = Found()
    operations = [one.ok() for one in schema.get_all_operations()]
    ways = [
        way for one in operations for mode in GenerationMode for way in cases_of(one, mode, known)
    ]
    while found.calls < calls:
        each = math.ceil((calls - found.calls) / len(ways))
        for cases in ways:
            seed += 1
            try_some(found, cases, each, seed)
    return found


def cases_of(operation: Any, mode: GenerationMode, known: dict[str, Any]) -> Iterator[Any]:
    """Calls of one route: with everything made up, and with something that is there."""
    yield operation.as_strategy(mode)
    names = {one.name for one in operation.path_parameters}
    paths = {name: value for name, value in known.items() if name in names}
    if paths:
        yield operation.as_strategy(mode, path_parameters=paths)
    if mode is GenerationMode.POSITIVE:
        for body in BODIES.get(operation.label, ()):
            yield operation.as_strategy(mode, body=body, media_type="application/json")


def try_some(found: Found, cases: Any, calls: int, seed: int) -> None:
    """Some calls of one route."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=calls,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases)
    def look(case: Any) -> None:
        found.look_at(case)

    with suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong with such a call
        look()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--database", default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser, calls=60)
    with tempfile.TemporaryDirectory(prefix="fairhorizon-fuzz-") as folder:
        run = Path(folder) / "run"
        fh.fit(MARKET, "ease+lists", limits=["popular<=0.4"]).save(run)
        with place(options.database, Path(folder)) as url, served(url, run) as schema:
            found = fuzzed(schema, options.calls, options.seed, KNOWN)
    for name, text in list(found.failures.items())[:SHOWN]:
        print(f"{name}\n{text}\n")
    for status, count in sorted(found.statuses.items()):
        print(f"{status} {HTTPStatus(status).phrase:28}{count:8,}")
    print(f"answers that the schema does not have{len(found.failures):8,}")
    print(f"calls {found.calls}  server errors {found.server_errors}")


@contextmanager
def place(database: str, folder: Path) -> Iterator[str]:
    """The address of an empty database."""
    if database != "postgresql":
        yield str(folder / "fuzz.db") if database == "sqlite" else database
        return
    server = Postgres.make()
    try:
        server.start()
        yield server.new_database("fuzz")
    finally:
        server.remove()


if __name__ == "__main__":
    main()
