"""Calls to all shards at once, wherever they live; a lost one is made anew."""

import pickle
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

from fairhorizon.engines.engine import ATTEMPTS, Maker, Messages
from fairhorizon.engines.worker import pickled
from fairhorizon.errors import FairHorizonError


class Home(Interface):
    """A worker with one shard: the first message has its maker, all others are calls."""

    def send(self, parcel: Any) -> None:
        """Give it a message without waiting; nothing happens if it is lost."""

    def receive(self) -> bytes | None:
        """The answer to the message before; None: the worker is lost."""

    def end(self) -> None:
        """End the worker, if it is there."""


class Homes(Interface):
    """How an engine starts workers and hands messages to them."""

    def parcel(self, message: bytes) -> Any:
        """The message in the form in which it can be sent to many."""

    def start(self) -> Home: ...


class CalledShards:
    """A worker for every maker; messages are pickled once, also if they go to all."""

    def __init__(self, makers: Sequence[Maker], homes: Homes) -> None:
        self.messages = Messages()
        self._start, self._parcel = homes.start, homes.parcel
        self._makers = [self._parcel(pickled(maker)) for maker in makers]
        self._homes: list[Home] = []

    def __len__(self) -> int:
        return len(self._makers)

    def make(self) -> None:
        """Start the workers, which all make their objects at the same time."""
        for maker in self._makers:
            self._homes.append(self._start())
            self._homes[-1].send(maker)
        for answer in self._received([None] * len(self)):
            pickle.loads(answer).get()

    def call(self, method: str, *arguments: Any, **named: Any) -> list[Any]:
        message = pickled((method, arguments, named))
        self.messages.sent += len(self) * len(message)
        return self._ask([self._parcel(message)] * len(self))

    def call_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        if len(arguments) != len(self):
            raise ValueError(f"arguments for {len(arguments)} shards, there are {len(self)}")
        messages = [pickled((method, tuple(own), {})) for own in arguments]
        self.messages.sent += sum(map(len, messages))
        return self._ask([self._parcel(message) for message in messages])

    def close(self) -> None:
        for home in self._homes:
            home.end()
        self._homes.clear()

    def _ask(self, calls: Sequence[Any]) -> list[Any]:
        for home, call in zip(self._homes, calls, strict=True):
            home.send(call)
        answers = self._received(calls)
        self.messages.calls += 1
        self.messages.received += sum(map(len, answers))
        return [pickle.loads(answer).get() for answer in answers]

    def _received(self, calls: Sequence[Any]) -> list[bytes]:
        """The answers to what was sent; None in place of a call: to the maker."""
        answers = [home.receive() for home in self._homes]  # all, before any is tried again
        return [
            self._again(number, calls[number]) if answer is None else answer
            for number, answer in enumerate(answers)
        ]

    def _again(self, number: int, call: Any) -> bytes:
        """The answer of a shard that was lost, made anew."""
        for _ in range(ATTEMPTS - 1):
            self._homes[number].end()
            home = self._homes[number] = self._start()
            home.send(self._makers[number])
            answer = home.receive()
            if answer is not None and call is not None:
                pickle.loads(answer).get()
                home.send(call)
                answer = home.receive()
            if answer is not None:
                return answer
        raise FairHorizonError(
            f"shard {number + 1} of {len(self)} was lost {ATTEMPTS} times, perhaps for want of "
            "memory (more shards are smaller, fewer at a time need less)"
        )
