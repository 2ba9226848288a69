"""Tasks, and blocks of users, in workers: what is the same for processes and for Ray.

    with engine:
        for row in engine.each(tasks): ...          # independent tasks, such as trainings
        lists = engine.over_blocks(makers, serve)   # objects that stay in workers and are asked

Results do not depend on the engine. A task is a pure function of its fields, so it can be run again
when its worker is lost. A block is asked many questions; when one is lost, all of them are asked
again from the first.
"""

import os
import pickle
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar
from typing import Protocol as Interface

from fairhorizon.errors import FairHorizonError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Handle = Any  # of a task or a question without an answer yet; each engine has its own kind

ATTEMPTS = 3  # of a task or of a block whose worker is lost
PAUSE = 2.0  # seconds between two calls of `meanwhile`
AGAIN = "run the same command to continue"
THREADS = "OMP_NUM_THREADS"  # read by OpenMP, OpenBLAS and MKL


class Work(Interface[R_co]):
    """One task: a picklable description of what to do."""

    def prepare(self) -> None:
        """Read the data; warnings about it are not shown, as the command has shown them."""

    def rows(self) -> Iterator[R_co]:
        """Run the task and yield its results."""


class WorkerLostError(Exception):
    """A worker was killed, ran out of memory, or was lost with its machine."""


class TaskEngine(ABC):
    """Where tasks and blocks run.

    Enter it before the first and leave it after the last of them: workers are kept in between, with
    the data that they have read. An error raised in a worker is raised here.
    """

    done = total = 0  # of the present tasks

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many tasks can run at a time; also a good number of blocks."""

    @property
    def progress(self) -> str:
        """How many tasks are done, on how many machines; empty where a line per row is enough."""
        return ""

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        remedy: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        """The rows of all tasks, task by task as they finish.

        remedy: what to do when a task has lost its worker three times.
        meanwhile: called at least every other second while tasks run.
        """
        self.done, self.total = 0, len(tasks)
        left, losses = deque(range(len(tasks))), Counter[int]()
        running: dict[Handle, int] = {}
        try:
            while left or running:
                while left and len(running) < self._most_at_once:
                    number = left.popleft()
                    running[self._begin(tasks[number])] = number
                for handle in self._finished(list(running)):
                    number = running.pop(handle)
                    try:
                        answer = self._answer(handle)
                    except WorkerLostError as error:
                        losses[number] += 1
                        if losses[number] == ATTEMPTS:
                            raise FairHorizonError(
                                f"a training lost its worker {ATTEMPTS} times, perhaps for want of "
                                f"memory ({remedy}; fewer jobs need less)"
                            ) from error.__cause__
                        left.appendleft(number)
                        continue
                    self.done += 1
                    yield from answer.get()
                meanwhile()
        finally:
            self._cancel(running)

    def over_blocks(
        self, makers: Sequence[Callable[[], object]], serve: Callable[["WorkerBlocks"], R]
    ) -> R:
        """What `serve` makes of one block per maker, each in a worker of its own.

        makers: picklable; each makes its block in its worker.
        serve: asks the blocks. It is called again, with a new block for each that was lost, so its
        first questions must put the blocks into a known state.
        """
        blocks = WorkerBlocks(makers, self)
        try:
            while True:
                try:
                    blocks.start()
                    return serve(blocks)
                except WorkerLostError:
                    continue
        finally:
            blocks.end()

    # What an engine adds: tasks ...

    @property
    @abstractmethod
    def _most_at_once(self) -> int:
        """How many tasks are given to workers at a time."""

    @abstractmethod
    def _begin(self, task: Work[Any]) -> Handle:
        """Give a task to a worker."""

    @abstractmethod
    def _finished(self, running: Sequence[Handle]) -> Iterable[Handle]:
        """Those that have finished, after waiting for the first for at most `PAUSE` seconds."""

    @abstractmethod
    def _answer(self, finished: Handle) -> "Answer":
        """The rows of a task; a WorkerLostError with its cause."""

    @abstractmethod
    def _cancel(self, running: Iterable[Handle]) -> None:
        """End what still runs."""

    # ... and workers that keep a block.

    @abstractmethod
    def start_worker(self) -> "BlockWorker":
        """Start a worker that waits for the maker of its block."""

    def parcel(self, message: bytes) -> Any:
        """The message in a form that can be sent to many workers."""
        return message


class BlockWorker(Interface):
    """A worker that keeps a block (`BlockHolder`)."""

    def ask(self, parcel: Any) -> Handle:
        """Send a message without waiting."""

    def answer(self, asked: Handle) -> bytes:
        """The answer to a message; a WorkerLostError."""

    def end(self) -> None: ...


@dataclass
class Messages:
    """The pickled questions to blocks and their answers, without those that make the blocks."""

    calls: int = 0  # questions to all blocks
    sent: int = 0  # bytes
    received: int = 0  # bytes


class WorkerBlocks:
    """Blocks of users in workers (`allocation.engine.Blocks`).

    A question is a function that can be imported in the worker, of a block and of some arguments.
    """

    def __init__(self, makers: Sequence[Callable[[], object]], engine: TaskEngine) -> None:
        self.messages = Messages()
        self._engine = engine
        self._makers = [engine.parcel(pickled((maker, ()))) for maker in makers]
        self._workers: dict[int, BlockWorker] = {}
        self._losses = Counter[int]()

    def __len__(self) -> int:
        return len(self._makers)

    def map(self, ask: Callable[..., R], /, *arguments: Any) -> list[R]:
        """The answers of all blocks to the same question, in order."""
        message = pickled((ask, arguments))  # once for all
        return self._asked(dict.fromkeys(range(len(self)), message))

    def map_each(self, ask: Callable[..., R], arguments: Sequence[tuple[Any, ...]], /) -> list[R]:
        """The answers of all blocks to a question in which each has arguments of its own."""
        if len(arguments) != len(self):
            raise ValueError(f"arguments for {len(arguments)} blocks, there are {len(self)}")
        return self._asked({number: pickled((ask, own)) for number, own in enumerate(arguments)})

    def one(self, number: int, ask: Callable[..., R], /, *arguments: Any) -> R:
        """The answer of one of them."""
        found: list[R] = self._asked({number: pickled((ask, arguments))})
        return found[0]

    def start(self) -> None:
        """Make the blocks that are not there, all at the same time."""
        new = [number for number in range(len(self)) if number not in self._workers]
        for number in new:
            self._workers[number] = self._engine.start_worker()
        for made in self._answers({number: self._makers[number] for number in new}):
            pickle.loads(made).get()

    def end(self) -> None:
        while self._workers:
            self._workers.popitem()[1].end()

    def _asked(self, messages: dict[int, bytes]) -> list[Any]:
        parcels = {message: self._engine.parcel(message) for message in set(messages.values())}
        answers = self._answers({number: parcels[one] for number, one in messages.items()})
        self.messages.calls += 1
        self.messages.sent += sum(map(len, messages.values()))
        self.messages.received += sum(map(len, answers))
        return [pickle.loads(answer).get() for answer in answers]

    def _answers(self, parcels: dict[int, Any]) -> list[bytes]:
        """The answers of some blocks; a WorkerLostError if one is lost, after all were heard."""
        asked = {number: self._workers[number].ask(parcel) for number, parcel in parcels.items()}
        answers, lost = [], None
        for number, handle in asked.items():
            try:
                answers.append(self._workers[number].answer(handle))
            except WorkerLostError as error:
                self._workers.pop(number).end()
                self._losses[number] += 1
                if self._losses[number] == ATTEMPTS:
                    raise FairHorizonError(
                        f"block {number + 1} of {len(self)} was lost {ATTEMPTS} times, perhaps for "
                        "want of memory (more blocks are smaller, fewer at a time need less)"
                    ) from error.__cause__
                lost = error
        if lost is not None:
            raise lost
        return answers


# Inside a worker, of whichever engine.


@dataclass(frozen=True)
class Answer:
    """What a worker sends back: a value, or an error to be raised where it was asked."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def run_task(task: Work[Any]) -> Answer:
    """All rows of a task."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task.prepare()
        return Answer(list(task.rows()))
    except MemoryError:
        end_without_memory()
    except Exception as error:
        return Answer(error=sendable(error))


class BlockHolder:
    """Keeps a block in its worker."""

    def __init__(self) -> None:
        self._block: Any = None

    def answer(self, message: bytes) -> bytes:
        """Make the block, which is the first message, or ask it; the pickled `Answer`."""
        try:
            function, arguments = pickle.loads(message)
            if self._block is None:
                self._block = function()
                return pickled(Answer())
            return pickled(Answer(function(self._block, *arguments)))
        except MemoryError:
            end_without_memory()
        except Exception as error:
            return pickled(Answer(error=sendable(error)))


def set_threads(threads: int) -> None:
    """How many threads this worker computes with; the last bits of results can depend on it."""
    os.environ[THREADS] = str(threads)
    # Torch reads the variable when it is imported, which may have been before.
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)


def end_without_memory() -> NoReturn:
    """End the worker as if it had been killed: the engine tries elsewhere, or a little later."""
    os._exit(1)


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def sendable(error: Exception) -> Exception:
    """The error with its traceback as a note, as itself if it can be pickled."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickled(error))
    except Exception:  # its class needs more than a message
        kind = FairHorizonError if isinstance(error, FairHorizonError) else RuntimeError
        plain = kind(str(error) if kind is FairHorizonError else f"{type(error).__name__}: {error}")
        plain.__notes__ = error.__notes__
        return plain
    return error
