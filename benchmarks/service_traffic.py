"""Traffic that goes on while things happen: lists and feedback, with what came back."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from service_load import Connection

HOUR = 3600.0


@dataclass
class Traffic:
    """Clients of several servers, in a thread of their own.

    Some events are sent twice, some late, some out of order, some with a clock that is an hour off.
    """

    ports: Sequence[int]
    users: Sequence[str]
    clients: int = 4
    pause: float = 0.0  # seconds between two requests of a client
    seed: int = 0
    answered: set[str] = field(default_factory=set)  # ids of lists
    acknowledged: set[str] = field(default_factory=set)  # ids of events
    statuses: dict[int, int] = field(default_factory=dict)
    late: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> "Traffic":
        self._thread.start()
        return self

    def stop(self) -> "Traffic":
        self._ended.set()
        self._thread.join(60)
        return self

    async def _run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self.clients)))

    async def _client(self, number: int) -> None:
        draws = random.Random(self.seed * 1000 + number)
        connections = [Connection(port) for port in self.ports]
        count = 0
        while not self._ended.is_set():
            connection, user = draws.choice(connections), draws.choice(self.users)
            status, headers, content = await connection.call("GET", f"/api/recommend/{user}?n=10")
            self._seen(status)
            if status == 200:
                self.answered.add(headers["x-list-id"])
                count += 1
                events = self._events(user, json.loads(content), headers["x-list-id"], draws, count)
                await self._send(draws.choice(connections), events)
            else:
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.pause)
        for connection in connections:
            await connection.close()

    def _events(
        self, user: str, items: list[str], made: str, draws: random.Random, count: int
    ) -> list[dict[str, object]]:
        """Seen items and now and then one that is taken."""
        now = time.time()
        skew = draws.choice([0.0, 0.0, HOUR, -HOUR])
        events: list[dict[str, object]] = [
            {
                "FeedbackType": "read" if place else "take",
                "UserId": user,
                "ItemId": item,
                "EventId": f"{made}-{place}",
                "ListId": made,
                "Timestamp": now + skew,
            }
            for place, item in enumerate(items[:3])
        ]
        if count % 5 == 0:  # comes later, with others
            self.late.append(events.pop())
        if count % 7 == 0 and self.late:
            events = [self.late.pop(0), *events]
        if count % 3 == 0:
            events.append(events[0])  # twice in one call
        return events

    async def _send(self, connection: Connection, events: list[dict[str, object]]) -> None:
        body = json.dumps(events).encode()
        for _ in range(2 if len(events) % 2 else 1):  # sometimes the whole call again
            status, _, _ = await connection.call("POST", "/api/feedback", body)
            self._seen(status)
            if status == 200:
                self.acknowledged |= {str(one["EventId"]) for one in events}

    def _seen(self, status: int) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
