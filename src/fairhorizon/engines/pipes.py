"""Shards in processes of this machine, called over pipes."""

from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from fairhorizon.engines.children import Beginning, starting, starting_children
from fairhorizon.engines.worker import Shard


@dataclass(frozen=True)
class Pipes:
    """Starts a process for each shard; threads: of each."""

    threads: int

    def parcel(self, message: bytes) -> bytes:
        return message

    def start(self) -> "Child":
        with starting_children(self.threads):
            return Child(self.threads)


class Child:
    """A process with a shard."""

    def __init__(self, threads: int) -> None:
        context = starting(threads)
        self.pipe, far_end = context.Pipe()
        own = (far_end, Beginning.here(threads))
        self.process = context.Process(target=_serve, args=own, daemon=True)
        self.process.start()
        far_end.close()  # so that the pipe ends with the child

    def send(self, parcel: bytes) -> None:
        with suppress(OSError):
            self.pipe.send_bytes(parcel)

    def receive(self) -> bytes | None:
        try:
            return self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection, beginning: Beginning) -> None:
    """Make the object of the first message and answer all others."""
    beginning.begin()
    shard = Shard()
    with suppress(EOFError, OSError):  # nobody asks any more
        while True:
            pipe.send_bytes(shard.answer(pipe.recv_bytes()))
