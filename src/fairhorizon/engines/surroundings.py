"""What a worker of another machine must have in common with the command that it works for."""

import os
import pickle
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fairhorizon import __version__
from fairhorizon.engines.worker import Answer, Shard, finished, pickled, sendable, set_threads
from fairhorizon.errors import ConfigError


@dataclass(frozen=True)
class Surroundings:
    """The folder of the command, the version of the package, and the threads of a worker."""

    folder: Path
    version: str
    threads: int

    @classmethod
    def here(cls, threads: int) -> Self:
        return cls(Path.cwd(), __version__, threads)

    def enter(self) -> None:
        """Make them those of this process, so that relative paths mean the same here."""
        node = socket.gethostname()
        if self.version != __version__:
            raise ConfigError(
                f"node {node} has fairhorizon {__version__}, the command {self.version} (install "
                "the same on all nodes)"
            )
        try:
            os.chdir(self.folder)
        except OSError:
            raise ConfigError(
                f"node {node} has no folder {self.folder} (run the command in a folder that all "
                "nodes share)"
            ) from None
        set_threads(self.threads)


def finished_there(task: bytes, own: Surroundings) -> Answer:
    """All rows of a pickled task."""
    try:
        own.enter()
        work = pickle.loads(task)
    except Exception as error:
        return Answer(error=sendable(error))
    return finished(work)


class FarShard:
    """A shard in such surroundings."""

    def __init__(self, own: Surroundings) -> None:
        self.own, self.shard = own, Shard()

    def answer(self, message: bytes) -> bytes:
        try:
            self.own.enter()
        except ConfigError as error:
            return pickled(Answer(error=sendable(error)))
        return self.shard.answer(message)
