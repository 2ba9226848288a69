"""What a fit reports while it runs."""

import sys
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepDetails:
    """The numbers behind one step of CPO (fcpo/dual.py)."""

    q: float  # g.H⁻¹g
    r: tuple[float, ...]  # g.H⁻¹b of every constraint
    s: tuple[float, ...]  # b.H⁻¹b of every constraint
    trust_multiplier: float | None  # lambda; None where the reward has no part in the step
    cost_multipliers: tuple[float, ...]  # nu of every constraint; 0 where lambda is None
    attempts: int  # of the line search


@dataclass(frozen=True)
class RoundReport:
    """One round of training: means per trajectory, cost and limit discounted alike."""

    round: int
    reward: float
    cost: float
    limit: float
    kl: float
    case: str
    fraction: float  # of the CPO step that the line search let through
    validation: float | None  # NDCG, in rounds with an evaluation
    rounds: int = field(default=0, compare=False)  # that there will be at most
    seconds: float = field(default=0.0, compare=False)
    details: StepDetails | None = field(default=None, compare=False)

    def keeps_limit(self, tolerance: float) -> bool:
        return self.cost <= self.limit * (1 + tolerance)

    def stored(self) -> dict[str, object]:
        """What belongs into a file: the same for the same seed, however long it took."""
        names = ("round", "reward", "cost", "limit", "kl", "case", "fraction", "validation")
        return {name: getattr(self, name) for name in names}


class LimitNotKeptWarning(UserWarning):
    """No evaluated round of a training kept the limit, so the policy of the last one serves."""


class Listener:
    """Receives the progress of a fit; here nothing happens, override what is of interest."""

    stop = False  # set it to stop a training after the present round

    def stage(self, text: str, metric: str = "NDCG") -> None:
        """A new part of the fit begins; its epochs report this metric on the validation items."""

    def epoch(self, number: int, value: float) -> None:
        """One epoch of a ranker or of embeddings, and the metric of the stage."""

    def round(self, report: RoundReport) -> None:
        """One round of a method that is trained in rounds."""


class PrintedProgress(Listener):
    """Prints a line for every part of a fit, round and tenth epoch, to standard error."""

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        print(text, file=sys.stderr, flush=True)

    def epoch(self, number: int, value: float) -> None:
        if number % 10 == 0:
            print(f"epoch {number}: {value:.4f}", file=sys.stderr, flush=True)

    def round(self, report: RoundReport) -> None:
        print(f"round {report.round} of at most {report.rounds}", file=sys.stderr, flush=True)


SILENT = Listener()


def shown_to_people() -> Listener:
    """Printed progress in a terminal or a notebook, and nothing elsewhere."""
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    return PrintedProgress() if watched else SILENT
