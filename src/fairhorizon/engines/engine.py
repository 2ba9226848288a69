"""What an engine can do: many tasks side by side, and parts that keep their data between calls."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from typing import Protocol as Interface

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Maker = Callable[[], object]  # picklable: a frozen dataclass with __call__, functools.partial
ATTEMPTS = 3  # of a task or of a call whose worker was lost
PAUSE = 2.0  # seconds between two looks at how far the tasks are
AGAIN = "run the same command to continue"


class Work(Interface[R_co]):
    """One task: a pure function of its fields, because it begins again where a worker is lost."""

    def prepare(self) -> None:
        """Read the data; warnings about it are not shown."""

    def rows(self) -> Iterator[R_co]:
        """Run the task and yield its results."""


@dataclass
class Messages:
    """What went to shards and came back: the pickled sizes of arguments and results, in bytes."""

    calls: int = 0  # of a method on all shards
    sent: int = 0
    received: int = 0


class Shards(Interface):
    """Objects that live in workers, each made there once and then called by method name.

    Methods must be pure functions of what the maker made and of their arguments: a shard that is
    lost is made anew, and the call in which it was lost is repeated.
    """

    @property
    def messages(self) -> Messages:
        """What was sent and received so far; the makers do not count."""

    def __len__(self) -> int: ...

    def call(self, method: str, *arguments: Any, **named: Any) -> list[Any]:
        """The results of the method with the same arguments on all shards, in their order."""

    def call_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """The results of the method on all shards, in their order, each with its own arguments."""


class TaskEngine(Interface):
    """Where tasks and shards run; entered before the first and left after the last of them.

    The same tasks and makers give the same results on every engine. An exception of ours that is
    raised in a worker is raised here; anything else that is raised there ends the run too.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def workers(self) -> int:
        """How many tasks can run at a time; also a good number of shards."""

    @property
    def progress(self) -> str:
        """How many of the present tasks are done, on how many nodes; empty on one machine."""

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        goes_on: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        """The rows of all tasks, task by task as they finish.

        A task whose worker is lost is tried again; its rows come once. `goes_on` is the remedy
        where that does not help. While the tasks run, `meanwhile` is called every other second.
        """

    def shards(self, makers: Sequence[Maker]) -> AbstractContextManager[Shards]:
        """A worker for each maker, which has made its object there; ended with the context."""


def lost_task(goes_on: str) -> str:
    """What to say of a task that cannot be finished."""
    return (
        f"a training lost its worker {ATTEMPTS} times, perhaps for want of memory ({goes_on}; "
        "fewer jobs need less)"
    )
