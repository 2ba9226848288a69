"""The paper's efficiency study: time to make lists of 100 for all users on one thread."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fairhorizon.datasets import Dataset
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.methods import Method
from fairhorizon.metrics.spread import Spread
from fairhorizon.rankers import RANKERS
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.studies.rows import row_content
from fairhorizon.vocabulary import Mode, Protocol

LENGTH = 100
CANDIDATES = (200, 400, 800, None)  # None: the whole catalogue


@dataclass(frozen=True)
class EfficiencyRow:
    """How long a method takes to make a list for every user."""

    dataset: str
    method: str
    step: str  # what is timed: the re-ranker, or else the ranker or agent
    candidates: int | None  # per user, of a re-ranker
    protocol: Protocol
    mode: Mode
    users: int
    length: int
    seconds: Spread

    def to_json(self) -> dict[str, Any]:
        keys = ("dataset", "method", "candidates", "protocol", "mode", "users", "length")
        return {
            **row_content(self, keys),
            "metrics": {"seconds": row_content(self.seconds)},
            "seconds": self.seconds.mean,
        }


def efficiency(
    dataset: Dataset,
    *,
    ranker: str = "mf",
    length: int = LENGTH,
    candidates: Sequence[int | None] = CANDIDATES,
    repeats: int = 3,
    seed: int = 0,
    on_row: Callable[[EfficiencyRow], object] = lambda _: None,
) -> list[EfficiencyRow]:
    """CPU seconds of the ranker alone, of fairness of exposure over so many candidates, of FCPO.

    FCPO is that of the paper, `fcpo:paper`, trained for one round only: what a policy has learned
    does not change its speed.
    """
    rows = []
    with one_thread():
        for name, step, model, count in _timed_models(dataset, ranker, candidates, seed):
            seconds = [_seconds(model, dataset, length) for _ in range(repeats)]
            rows.append(
                EfficiencyRow(
                    dataset=dataset.log.name,
                    method=name,
                    step=step,
                    candidates=count,
                    protocol=Protocol.STANDARD,
                    mode=Mode.ONE_SHOT,
                    users=dataset.log.n_users,
                    length=length,
                    seconds=Spread.from_values(seconds),
                )
            )
            on_row(rows[-1])
    return rows


def _timed_models(
    dataset: Dataset, ranker: str, candidates: Sequence[int | None], seed: int
) -> Iterator[tuple[str, str, Recommender, int | None]]:
    """Each method, what makes its lists, its fitted model, how many candidates it re-ranks."""
    plain = Ranked(RANKERS[ranker](seed=seed)).fit(dataset.split, sensitive=dataset.sensitive)
    yield plain.method, ranker, plain, None
    n_items = dataset.log.n_items
    # Counts beyond the catalogue are all the same.
    for n in dict.fromkeys(min(count or n_items, n_items) for count in candidates):
        fair = plain.reranked(ExposureFairness(candidates=n))
        yield fair.method, ExposureFairness.method, fair, n
    policy = Fcpo(FcpoConfig.preset("paper", rounds=1), seed=seed)
    policy.fit(dataset.split, sensitive=dataset.sensitive)
    yield str(Method(policy.method, preset="paper")), policy.method, policy, None


def _seconds(model: Recommender, dataset: Dataset, length: int) -> float:
    """CPU seconds of this process, from the state of the users to their lists."""
    # Not timed: the states of the users are there when a system is asked for lists.
    scenario = evaluation_scenario(dataset.split, model.queue_length, Protocol.STANDARD)
    begin = time.process_time()
    model.recommend(scenario, length=length)
    return time.process_time() - begin


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as the paper did."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
