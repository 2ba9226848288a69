"""Recorded runs that a policy with a horizon learns from before the run that counts.

They are of the same simulated users and under the same limits, with other answers. What is learned
is how answers foretell other answers and departures; it knows no user and no item by name.
"""

from collections.abc import Callable
from pathlib import Path

from fairhorizon.errors import ModelError
from fairhorizon.evaluation.long_term import LongRun
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.storage import load_model, save_model

KIND = "outlook"
APART = 1000  # seeds of rehearsals are so far from those of runs, and from each other


def rehearse(
    outlook: RetentionModel, begin: Callable[[int, RetentionModel], LongRun], count: int, seed: int
) -> None:
    """Let the outlook learn from `count` runs, each by what was learned in those before.

    begin: the run with a seed, by a server with this outlook that does not learn meanwhile.
    """
    for number in range(1, count + 1):
        run = begin(seed + APART * number, outlook)
        while not run.finished:
            run.step()
        outlook.learn()


def kept(outlook: RetentionModel, file: Path, learn: Callable[[], None]) -> None:
    """What the outlook learned before, from its file; else it learns now, and that is kept."""
    try:
        outlook.restore(load_model(file, KIND)[0])
    except ModelError:
        learn()
        save_model(file, KIND, outlook.tensors(), {"runs": len(outlook.runs)})
