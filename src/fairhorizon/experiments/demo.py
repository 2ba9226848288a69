"""The demonstration: FCPO with and without an exposure limit, side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.progress import Listener, RoundReport
from fairhorizon.evaluation.short_term import Result, evaluate
from fairhorizon.experiments.runs import Dataset
from fairhorizon.vocabulary import Mode

ALPHA_PRIMES = (0.4, 1.0)


@dataclass(frozen=True)
class Trained:
    """One level of fairness: the model and its result in both modes."""

    alpha_prime: float
    model: Fcpo
    one_shot: Result
    interactive: Result

    @property
    def label(self) -> str:
        return f"FCPO, alpha' = {self.alpha_prime:g}"


class _Rounds(Listener):
    """Passes the rounds on with the level that they belong to."""

    def __init__(self, level: float, on_round: Callable[[float, RoundReport], object]) -> None:
        self.level, self.on_round = level, on_round

    def round(self, report: RoundReport) -> None:
        self.on_round(self.level, report)


def demonstrate(
    dataset: Dataset,
    *,
    rounds: int,
    seed: int,
    ks: Sequence[int],
    on_round: Callable[[float, RoundReport], object],
) -> Iterator[Trained]:
    """Train for a short while at each level, under the same seed."""
    for alpha_prime in ALPHA_PRIMES:
        config = FcpoConfig.preset("paper", alpha_prime=alpha_prime, rounds=rounds)
        model = Fcpo(config, seed=seed).fit(
            dataset.split,
            sensitive=dataset.sensitive,
            listener=_Rounds(alpha_prime, on_round),
        )
        results = (
            evaluate(model, dataset.split, ks=ks, mode=mode, sensitive=dataset.sensitive)
            for mode in (Mode.ONE_SHOT, Mode.INTERACTIVE)
        )
        yield Trained(alpha_prime, model, *results)
