"""Rankers before their fit, and the fits of several, side by side where there are cores."""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Given, changed
from fairhorizon.vocabulary import OnEpoch, Protocol

Ready = Mapping[str, Ranker[Any]]  # fitted rankers, by method
LARGE = 8192  # items; matrices of more take gigabytes, so there are few fits at a time
FEW = 2

Job = TypeVar("Job")
Result = TypeVar("Result")


def draft_of(kind: type[Ranker[Any]], given: Given, protocol: Protocol, seed: int) -> Ranker[Any]:
    """A ranker that is not fitted yet; one that validates is given the protocol."""
    validates = "protocol" in kind.config_class.model_fields
    known = {"protocol": protocol} if validates else {}
    return kind(changed(kind.config_class(), {**known, **given}), seed=seed)


def fresh(ranker: Ranker[Any]) -> Ranker[Any]:
    """The same ranker before its fit."""
    return type(ranker)(ranker.config, seed=ranker.seed)


@dataclass(frozen=True)
class FitJob:
    """A ranker to be fitted on a log; one that is ready with the same settings is taken as it is.

    The draft stays as it is: the result is another object.
    """

    draft: Ranker[Any]
    split: Split
    ready: Ready = field(default_factory=dict)

    def run(self, on_epoch: OnEpoch | None) -> Ranker[Any] | DataError:
        known = self.ready.get(self.draft.method)
        if known is not None and known.config == self.draft.config:
            return known
        try:
            return fresh(self.draft).fit(self.split, on_epoch=on_epoch)
        except DataError as error:
            return error


def fit_all(jobs: Sequence[FitJob], on_epoch: OnEpoch | None = None) -> list[Ranker[Any] | None]:
    """The fitted rankers in order, None for one that cannot be fitted on its log."""
    large = any(job.split.train.n_items > LARGE for job in jobs)
    results = side_by_side(
        lambda job: job.run(on_epoch),
        jobs,
        lambda job: job.draft.in_thread,
        at_once=min(FEW, cores()) if large else cores(),
    )
    refusals = [result for result in results if isinstance(result, DataError)]
    if refusals and len(refusals) == len(jobs):
        raise refusals[0]
    for text in dict.fromkeys(str(refusal) for refusal in refusals):
        warnings.warn(f"without one of its rankers: {text}", stacklevel=2)
    return [None if isinstance(result, DataError) else result for result in results]


def side_by_side(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    in_thread: Callable[[Job], bool],
    *,
    at_once: int,
) -> list[Result]:
    """The results of all jobs, in order.

    A job in a thread of its own has one core, also where only one is at work at a time: on several,
    sums would be rounded otherwise, and the result would depend on the machine. A job that may not
    be in a thread, because it draws from the generator that threads share, runs in the present one.
    """
    with ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        futures = {
            number: threads.submit(work, job) for number, job in enumerate(jobs) if in_thread(job)
        }
        try:
            here = {n: work(job) for n, job in enumerate(jobs) if n not in futures}
            return [here[n] if n in here else futures[n].result() for n in range(len(jobs))]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """That this process may use; in one of several processes at work, one."""
    if multiprocessing.parent_process() is not None:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
