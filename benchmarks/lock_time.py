"""How long the transaction of a batch of lists holds the lock, and the bytes of a recorded list.

    python benchmarks/lock_time.py [--batches 200] [--postgresql] [--small]

One replica records lists of 10 under one limit in a new database, nothing else does: the time from
begin to commit is the time that all others have to wait. benchmarks/fleet.py and docs/scale.md use
it. Prints the median and, for machines that do other work, the fastest tenth.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import fairhorizon as fh
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.replica.list_builder import BuiltList, ListRequest, UserHistories
from fairhorizon.service.replica.replica import Replica
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from local_postgres import Postgres
from shared import MARKET, parse

LISTS = (1, 4, 16, 64)  # in a batch


def record(replica: Replica, users: list[str], batch: int, first: int) -> float:
    """Decide a batch and record it; the seconds of the second."""
    balance, builder = replica._balance, replica._builder
    assert balance is not None
    assert builder is not None
    asked = [ListRequest(users[(first + number) % len(users)], 10) for number in range(batch)]
    answers = builder.build(asked, UserHistories(), balance.copy())
    made = [one for one in answers if isinstance(one, BuiltList)]
    started = time.perf_counter()
    replica._balance = replica._record(
        made, balance, builder.prices, generation=builder.snapshot.generation
    )
    return time.perf_counter() - started


def measure(url: str, run: Path, users: list[str], batches: int) -> int:
    """Print the times; how many lists were recorded."""
    database, settings = Database(url), ServiceSettings()
    set_up(database, settings, run=run)
    replica = Replica(database, settings)
    replica.make_ready()
    for batch in LISTS:
        times = [record(replica, users, batch, batch * number) for number in range(batches)]
        low, middle = 1000 * np.quantile(times, (0.1, 0.5))
        print(f"transaction of {batch:2d} lists{middle:12.2f} ms, fastest tenth{low:8.2f} ms")
    database.close()
    return batches * sum(LISTS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--postgresql", action="store_true")
    options = parse(parser, batches=3)
    folder = Path(tempfile.mkdtemp(prefix="fairhorizon-lock-"))
    postgres = Postgres.make() if options.postgresql else None
    try:
        model = fh.fit(MARKET, "ease+lists", limits=["popular<=0.4"])
        model.save(folder / "run")
        users = [str(one) for one in model.users]
        if postgres is None:
            file = folder / "service.db"
            lists = measure(str(file), folder / "run", users, options.batches)
            print(f"bytes of a recorded list{file.stat().st_size / lists:12.0f}")
        else:
            postgres.start()
            measure(postgres.new_database("lock"), folder / "run", users, options.batches)
    finally:
        if postgres is not None:
            postgres.remove()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
