"""The demonstration: FCPO with and without an exposure limit, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.progress import Listener, RoundReport
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.experiments.datasets import Dataset
from fairhorizon.metrics.fairness import exposure_counts
from fairhorizon.results.evaluation import DemoLevel, DemoResult, TrainingHistory
from fairhorizon.vocabulary import Mode

METHOD = "fcpo:paper"  # the policy of the paper, not the default preset
ALPHA_PRIMES = (0.4, 1.0)


class _Rounds(Listener):
    """Passes every round on, with the level it belongs to."""

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
) -> DemoResult:
    """Train briefly at each level, with the same seed."""
    levels = []
    for alpha_prime in ALPHA_PRIMES:
        config = FcpoConfig.preset("paper", alpha_prime=alpha_prime, rounds=rounds)
        model = Fcpo(config, seed=seed).fit(
            dataset.split,
            sensitive=dataset.sensitive,
            listener=_Rounds(alpha_prime, on_round),
        )
        levels.append(evaluated(model, dataset, ks))
    training = dataset.split.train.item_counts()
    return DemoResult(
        dataset.log.name, tuple(levels), training, dataset.sensitive, dataset.group_name
    )


def evaluated(model: Fcpo, dataset: Dataset, ks: Sequence[int]) -> DemoLevel:
    """One level: how the model was trained, and its results in both modes."""
    one_shot, interactive = (
        evaluate(model, dataset.split, ks=ks, mode=mode, sensitive=dataset.sensitive)
        for mode in (Mode.ONE_SHOT, Mode.INTERACTIVE)
    )
    return DemoLevel(
        f"{METHOD}, alpha' = {model.alpha_prime:g}",
        history_of(model.history_),
        replace(one_shot.row(dataset.group_name), method=METHOD),
        replace(interactive.row(dataset.group_name), method=METHOD),
        exposure_counts(one_shot.lists, dataset.log.n_items, max(ks)),
    )


def history_of(reports: Sequence[RoundReport]) -> TrainingHistory:
    return TrainingHistory(
        [report.round for report in reports],
        [report.reward for report in reports],
        [report.cost for report in reports],
        reports[0].limit,
    )
