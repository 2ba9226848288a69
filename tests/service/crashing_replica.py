"""A replica without HTTP, in a process that ends at a point."""

import os
from multiprocessing.connection import Connection

from fairhorizon.service.admin.set_up import relabel
from fairhorizon.service.replica.list_builder import ListRequest
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import database as databases
from fairhorizon.service.store.database import Database


def replica_until(url: str, point: str, answers: Connection) -> None:
    """Send the id of every list that it would answer."""
    os.environ[databases.CRASH_AT] = point
    engine = Engine(Database(url), ServiceSettings(slack=20))
    engine.prepare()
    engine.start()
    for number in range(5):
        answers.send(engine.submit(ListRequest(f"c{number}", 10)).result().id)
    relabel(engine.database)
