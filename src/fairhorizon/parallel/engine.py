"""Tasks, and blocks of users, in workers: processes of this machine, or a Ray cluster.

    with engine:
        for row in engine.each(tasks): ...          # independent tasks, such as trainings
        lists = engine.over_blocks(makers, serve)   # objects that stay in workers and are asked

Results do not depend on the engine. A task is a pure function of its fields, so it can be run again
when its worker is lost. A block is asked many questions; when one is lost, all of them are asked
again from the first.

Below: the interface; blocks; what runs inside a worker; processes. Ray is in `on_ray.py`.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from typing import Protocol as Interface

from fairhorizon.errors import FairHorizonError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Worker = Any  # keeps one block; a process pool of one, or a Ray actor
Handle = Any  # of a task or question without an answer yet; a future, or a Ray reference

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
    remedy = AGAIN  # if the present tasks cannot go on

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
        self.done, self.total, self.remedy = 0, len(tasks), remedy
        left, losses = deque(range(len(tasks))), Counter[int]()
        running: dict[Handle, int] = {}
        try:
            while left or running:
                # Processes are given as many as can run; Ray gets all, as it queues them itself.
                while left and len(running) < self._most_at_once:
                    number = left.popleft()
                    running[self._begin(tasks[number])] = number
                for handle in self._finished(list(running)):
                    number = running.pop(handle)
                    try:
                        rows = self.answer(handle)
                    except WorkerLostError as error:
                        losses[number] += 1
                        if losses[number] == ATTEMPTS:
                            raise FairHorizonError(
                                f"a training lost its worker {ATTEMPTS} times, perhaps for want of "
                                f"memory ({remedy}; fewer jobs need less)"
                            ) from error.__cause__
                        # It is next, as it has waited longest.
                        left.appendleft(number)
                        continue
                    self.done += 1
                    yield from _value(rows)
                meanwhile()
        finally:
            # Also when the caller stops in the middle: nothing of this call runs on.
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
                    # `start` makes lost blocks anew, and `serve` asks all its questions again.
                    continue
        finally:
            blocks.end()

    # ---- What an engine implements: tasks ...

    @property
    @abstractmethod
    def _most_at_once(self) -> int:
        """How many tasks are given to workers at a time."""

    @abstractmethod
    def _begin(self, task: Work[Any]) -> Handle:
        """Give a task to a worker (`run_task`)."""

    @abstractmethod
    def _finished(self, running: Sequence[Handle]) -> Iterable[Handle]:
        """Those that have finished, after waiting for the first for at most `PAUSE` seconds."""

    @abstractmethod
    def answer(self, handle: Handle) -> Any:
        """What a task or a question came to, after waiting for it; a WorkerLostError."""

    @abstractmethod
    def _cancel(self, running: Iterable[Handle]) -> None:
        """End tasks that still run."""

    # ---- ... and workers that keep a block.

    @abstractmethod
    def start_worker(self) -> Worker:
        """Start a worker that waits for the maker of its block."""

    @abstractmethod
    def ask(self, worker: Worker, parcel: Any) -> Handle:
        """Send a message to the block of a worker (`BlockHolder`), without waiting."""

    @abstractmethod
    def end_worker(self, worker: Worker) -> None: ...

    def parcel(self, message: bytes) -> Any:
        """The message in a form that can be sent to many workers."""
        return message


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
        self._workers: dict[int, Worker] = {}
        self._losses = Counter[int]()

    def __len__(self) -> int:
        return len(self._makers)

    def map(self, ask: Callable[..., R], /, *arguments: Any) -> list[R]:
        """The answers of all blocks to the same question, in order."""
        # Pickled once for all blocks.
        message = pickled((ask, arguments))
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
        # All workers are started before the first maker runs, so that they start side by side.
        new = [number for number in range(len(self)) if number not in self._workers]
        for number in new:
            self._workers[number] = self._engine.start_worker()
        for made in self._answers({number: self._makers[number] for number in new}):
            _value(pickle.loads(made))

    def end(self) -> None:
        while self._workers:
            self._engine.end_worker(self._workers.popitem()[1])

    def _asked(self, messages: dict[int, bytes]) -> list[Any]:
        # Equal messages are one parcel, which Ray puts into its object store once.
        parcels = {message: self._engine.parcel(message) for message in set(messages.values())}
        answers = self._answers({number: parcels[one] for number, one in messages.items()})
        self.messages.calls += 1
        self.messages.sent += sum(map(len, messages.values()))
        self.messages.received += sum(map(len, answers))
        return [_value(pickle.loads(answer)) for answer in answers]

    def _answers(self, parcels: dict[int, Any]) -> list[bytes]:
        """The answers of some blocks; a WorkerLostError if one is lost, after all were heard."""
        ask = self._engine.ask
        asked = {number: ask(self._workers[number], parcel) for number, parcel in parcels.items()}
        answers, lost = [], None
        for number, handle in asked.items():
            try:
                answers.append(self._engine.answer(handle))
            except WorkerLostError as error:
                self._engine.end_worker(self._workers.pop(number))
                self._losses[number] += 1
                if self._losses[number] == ATTEMPTS:
                    raise FairHorizonError(
                        f"block {number + 1} of {len(self)} was lost {ATTEMPTS} times, perhaps for "
                        "want of memory (more blocks are smaller, fewer at a time need less)"
                    ) from error.__cause__
                # The other answers are waited for, so that no block is in the middle of a question
                # when it is asked again.
                lost = error
        if lost is not None:
            raise lost
        return answers


def _value(answer: Any) -> Any:
    """What a worker has sent, which raises the error if it is one."""
    if isinstance(answer, Exception):
        raise answer
    return answer


# ---- Inside a worker, of whichever engine --------------------------------------------------------
# Errors are sent as values: Python's pools and Ray would each wrap them in their own way.


def run_task(task: Work[Any]) -> list[Any] | Exception:
    """All rows of a task, or what went wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task.prepare()
        return list(task.rows())
    except MemoryError:
        _end_without_memory()
    except Exception as error:
        return sendable(error)


class BlockHolder:
    """Keeps a block in its worker.

    enter: called before every message; its error is the answer.
    """

    def __init__(self, enter: Callable[[], object] = lambda: None) -> None:
        self._enter = enter
        self._block: Any = None

    def answer(self, message: bytes) -> bytes:
        """Make the block, which is the first message, or ask it; its pickled answer or error."""
        try:
            self._enter()
            function, arguments = pickle.loads(message)
            if self._block is None:
                self._block = function()
                return pickled(None)
            return pickled(function(self._block, *arguments))
        except MemoryError:
            _end_without_memory()
        except Exception as error:
            return pickled(sendable(error))


def set_threads(threads: int) -> None:
    """How many threads this worker computes with; the last bits of results can depend on it."""
    os.environ[THREADS] = str(threads)
    # Torch reads the variable when it is imported, which may have been before.
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)


def _end_without_memory() -> NoReturn:
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


# ---- Processes of this machine -------------------------------------------------------------------
# None outlives the command: Ctrl-C in a terminal goes to all of its processes; workers do not hear
# it, and the command ends them.

# Imported once for all workers. Torch imports its compiler when the first optimiser is made.
PRELOADED = ["scipy.optimize", "scipy.sparse", "torch", "torch._dynamo", "torch.distributed"]


class Processes(TaskEngine):
    """At most `jobs` tasks at a time; a single one runs in this process, with the threads it has.

    threads: of each of several workers.

    A worker is a pool of one process, so that what it has read is kept and it can be ended alone.
    """

    def __init__(self, jobs: int = 1, threads: int = 1) -> None:
        self.jobs, self.threads = jobs, threads
        self._is_entered = False
        self._pools: list[ProcessPoolExecutor] = []  # those that run tasks
        self._busy: dict[Future[Any], ProcessPoolExecutor] = {}

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_entered = False
        self._end(list(self._pools))

    @property
    def workers(self) -> int:
        return self.jobs

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        remedy: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        if min(self.jobs, len(tasks)) <= 1:
            for task in tasks:
                yield from task.rows()
            return
        try:
            yield from super().each(tasks, remedy=remedy, meanwhile=meanwhile)
        finally:
            if not self._is_entered:
                self._end(list(self._pools))

    @property
    def _most_at_once(self) -> int:
        return self.jobs

    def _begin(self, task: Work[Any]) -> Future[Any]:
        busy = self._busy.values()
        pool = next((pool for pool in self._pools if pool not in busy), None)
        if pool is None:
            pool = self.start_worker()
            # Before its process starts, so that Ctrl-C can end it.
            self._pools.append(pool)
        future = self._call(pool, run_task, task)
        self._busy[future] = pool
        return future

    def _finished(self, running: Sequence[Future[Any]]) -> Iterable[Future[Any]]:
        return wait(running, PAUSE, return_when=FIRST_COMPLETED).done

    def answer(self, handle: Future[Any]) -> Any:
        pool = self._busy.pop(handle, None)  # None: a question to a block
        try:
            return handle.result()
        except BrokenProcessPool as error:
            if pool is not None:
                self._end([pool])
            raise WorkerLostError from error

    def _cancel(self, running: Iterable[Future[Any]]) -> None:
        self._end([self._busy.pop(future) for future in running if future in self._busy])

    def _end(self, pools: Iterable[ProcessPoolExecutor]) -> None:
        for pool in pools:
            self.end_worker(pool)
            self._pools.remove(pool)
        self._busy = {future: pool for future, pool in self._busy.items() if pool in self._pools}

    def start_worker(self) -> ProcessPoolExecutor:
        beginning = (self.threads, dict(os.environ))
        method = start_method(self.threads)
        return ProcessPoolExecutor(1, method, initializer=_begin_process, initargs=beginning)

    def ask(self, worker: ProcessPoolExecutor, parcel: bytes) -> Future[bytes]:
        return self._call(worker, _block_answer, parcel)

    def end_worker(self, worker: ProcessPoolExecutor) -> None:
        """End its process, in the middle of what it does."""
        # A pool has no public way to end a task that runs, so its processes are ended. They are
        # read first: `shutdown` drops them.
        processes = list((worker._processes or {}).values())
        worker.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()

    def _call(
        self, pool: ProcessPoolExecutor, function: Callable[..., R], *arguments: Any
    ) -> Future[R]:
        with _starting_processes(self.threads):  # which the pool does with the first task
            return pool.submit(function, *arguments)


HERE = Processes()  # one task after the other, in this process


_block = BlockHolder()  # of this process


def _block_answer(message: bytes) -> bytes:
    return _block.answer(message)


def start_method(threads: int) -> "ForkServerContext | SpawnContext":
    """How processes are started that compute with so many threads.

    On Linux they are forked from one that has imported torch, which each would otherwise do for
    seconds. It has one thread and has computed nothing, so nothing is lost in a fork. Where more
    threads are asked for, libraries would start them in it while they are imported.
    """
    if sys.platform != "linux" or threads != 1:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _begin_process(threads: int, variables: Mapping[str, str]) -> None:
    """The first thing that a process does.

    variables: of the environment; those of a fork are from when the first process was started.
    """
    # A forked process has the environment of the fork server, which may be older than the
    # command's.
    os.environ.clear()
    os.environ.update(variables)
    set_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the parent: otherwise a process would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _starting_processes(threads: int) -> Iterator[None]:
    """Processes started here compute with so many threads and do not hear Ctrl-C.

    Ctrl-C is delayed until all have started; it is the parent that ends them.
    """
    # If the resource tracker started later, it would unblock Ctrl-C.
    resource_tracker.ensure_running()
    before = os.environ.get(THREADS)
    # A new process reads it when it imports its libraries, before the first line of ours.
    os.environ[THREADS] = str(threads)
    try:
        with _interrupt_delayed():
            yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


@contextmanager
def _interrupt_delayed() -> Iterator[None]:
    # Only the main thread may set a handler of signals, and only it hears Ctrl-C.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    # Processes started here inherit the blocked signal.
    if can_block:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    # Only now, when every process is known to somebody who ends it.
    if pressed:
        raise KeyboardInterrupt
