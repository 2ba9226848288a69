"""A replica: lists under limits, recorded before they are answered."""

from collections.abc import Callable

import numpy as np
import sqlalchemy as sa
from asking import ask

from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.store.schema import lists


def test_a_single_replica_keeps_the_share_itself_after_every_list(
    replicas: Callable[..., Engine],
) -> None:
    engine = replicas()
    for number in range(60):
        ask(engine, f"c{number % 40}")
    with engine.database.reading() as connection:
        rows = connection.execute(sa.select(lists).order_by(lists.c.number)).all()
    shown = np.cumsum([len(row.items) for row in rows])
    inside = np.cumsum([sum(map(bool, row.labels)) for row in rows])
    assert [row.number for row in rows] == list(range(1, 61))
    assert (inside <= 0.3 * shown).all()
    assert inside[-1] > 0.25 * shown[-1]
