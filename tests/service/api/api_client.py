"""How tests of the interface call it, wait for it, and look at what was recorded."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import lists

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2, which nothing else needs
    from starlette.testclient import TestClient

__all__ = ["Open", "TestClient", "get", "recorded", "send", "wait_for"]

Open = Callable[..., TestClient]  # opens the shop with some settings

PATIENCE = 60.0  # seconds


def get(client: TestClient, path: str, **more: Any) -> Any:
    """The content of an answer that has to be a good one."""
    answer = client.get(path, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def send(client: TestClient, method: str, path: str, content: Any = None) -> Any:
    """The same for what is sent."""
    answer = client.request(method, path, json=content)
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


def wait_for(true: Callable[[], Any], what: str) -> Any:
    """What the function returns once it is true."""
    until = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def recorded(url: str) -> list[Any]:
    """All lists that were recorded, in order."""
    database = Database(url)
    with database.reading() as connection:
        rows = list(connection.execute(sa.select(lists).order_by(lists.c.number)))
    database.close()
    return rows
