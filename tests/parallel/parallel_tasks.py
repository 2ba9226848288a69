"""Tasks and blocks for tests of engines; workers import them from here."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError, NoColumnError


@dataclass(frozen=True)
class Squares:
    """The squares of the numbers below `n`, after a first row with the number itself."""

    n: int

    def prepare(self) -> None: ...

    def rows(self) -> Iterator[tuple[int, int]]:
        yield from ((self.n, number**2) for number in range(self.n))


@dataclass(frozen=True)
class LostAt:
    """Loses its worker in the first attempts, in the middle of its rows."""

    marks: Path  # a folder: a file in it for every attempt
    losses: int
    how: str = "killed"

    def prepare(self) -> None:
        (self.marks / f"{time.monotonic_ns()}").touch()

    def rows(self) -> Iterator[str]:
        yield "first"
        if len(list(self.marks.iterdir())) <= self.losses:
            lose(self.how)
        yield "second"


def lose(how: str) -> None:
    """Lose this process, from outside or for want of memory."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    address_space = 8 * 2**40
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    np.ones(address_space // 8)


@dataclass(frozen=True)
class Fails:
    """Raises an error of ours, one whose class cannot be pickled, or one that is nobody's."""

    how: str

    def prepare(self) -> None: ...

    def rows(self) -> Iterator[int]:
        yield 1
        if self.how == "ours":
            raise ConfigError("this cannot work (do that)")
        if self.how == "unpicklable":
            raise NoColumnError("genre", ["year"], file="items.csv", remedy="give another")
        raise ZeroDivisionError("a bug")


@dataclass(frozen=True)
class Place:
    """What a task sees: threads, folder and process."""

    def prepare(self) -> None: ...

    def rows(self) -> Iterator[tuple[str, str, int]]:
        yield os.environ["OMP_NUM_THREADS"], str(Path.cwd()), os.getpid()


@dataclass(frozen=True)
class Waits:
    """Begins, and waits until a file is there."""

    marks: Path  # a folder: a file in it for every attempt
    until: Path
    name: str

    def prepare(self) -> None: ...

    def rows(self) -> Iterator[str]:
        (self.marks / f"{self.name}.{os.getpid()}").touch()
        while not self.until.exists():
            time.sleep(0.05)
        yield self.name


@dataclass(frozen=True)
class Sleeps:
    """Says its process into a named pipe and sleeps."""

    pipe: Path

    def prepare(self) -> None: ...

    def rows(self) -> Iterator[int]:
        self.pipe.write_text(f"{os.getpid()}")
        time.sleep(600)
        yield 0


class Numbers:
    """A range of numbers, and sums over them; its process is lost once at the file `lose_at`."""

    def __init__(self, numbers: NDArray[np.float64], lose_at: Path | None) -> None:
        self.numbers, self.lose_at = numbers, lose_at
        self.offset = 0.0

    def begin(self, offset: float) -> None:
        """Add this to all numbers from now on."""
        self.offset = offset

    def total(self, weights: NDArray[np.float64]) -> float:
        """The sum of weight * number, by the place of the number in the whole range."""
        if self.lose_at is not None and not self.lose_at.exists():
            self.lose_at.touch()
            lose("killed")
        return float(weights[self.numbers.astype(int)] @ (self.numbers + self.offset))

    def echo(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return numbers

    def fail(self, how: str) -> None:
        list(Fails(how).rows())

    def lost(self) -> None:
        lose("killed")

    def node(self) -> str:
        """The name of the node, if it is one of Ray."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def process(self) -> int:
        return os.getpid()


@dataclass(frozen=True)
class MakeNumbers:
    """Makes the numbers from `first` up to `last`; `log` gets a line per making."""

    first: int
    last: int
    log: Path | None = None
    lose_at: Path | None = None
    fails: str = ""

    def __call__(self) -> Numbers:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{self.first}\n")
        if self.fails == "lost":
            lose("killed")
        if self.fails:
            list(Fails(self.fails).rows())
        return Numbers(np.arange(self.first, self.last, dtype=np.float64), self.lose_at)
