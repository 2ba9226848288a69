"""Inside a worker, of whichever engine: tasks are finished, shards are made and called."""

import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from fairhorizon.engines.engine import Maker, Work
from fairhorizon.errors import FairHorizonError

THREADS = "OMP_NUM_THREADS"  # of OpenMP, OpenBLAS and MKL


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def set_threads(threads: int) -> None:
    """How many threads this worker computes with; results can depend on it in their last bits.

    Torch reads the variable when it is first imported, which not every worker does.
    """
    os.environ[THREADS] = str(threads)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)


def end_without_memory() -> NoReturn:
    """End the worker as if it had been killed: the engine tries elsewhere, or a little later."""
    os._exit(1)


@dataclass(frozen=True)
class Answer:
    """What a worker sends back: a value, or an error to be raised where it was asked."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def finished(task: Work[Any]) -> Answer:
    """All rows of a task."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the data: the parent has shown them already
            task.prepare()
        return Answer(list(task.rows()))
    except MemoryError:
        end_without_memory()
    except Exception as error:
        return Answer(error=sendable(error))


class Shard:
    """The object of one maker, and its answers to calls."""

    def __init__(self) -> None:
        self._answers: Callable[[bytes], Any] = self._make

    def answer(self, message: bytes) -> bytes:
        """To the first message, which is the maker; to all others, which are calls."""
        try:
            return pickled(Answer(self._answers(message)))
        except MemoryError:
            end_without_memory()
        except Exception as error:
            return pickled(Answer(error=sendable(error)))

    def _make(self, message: bytes) -> None:
        maker: Maker = pickle.loads(message)
        made = maker()

        def called(message: bytes) -> Any:
            method, arguments, named = pickle.loads(message)
            return getattr(made, method)(*arguments, **named)

        self._answers = called


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
