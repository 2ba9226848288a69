"""Which round of a training serves, and whether its policy kept the limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.recommenders.progress import RoundReport


@dataclass(frozen=True)
class ChosenRound:
    """The round whose policy serves, of a policy that is trained for one limit."""

    number: int
    share: float  # of the group in its training episodes
    limit: float  # on that share
    tolerance: float  # excess over the limit, as a share of it, that counts as kept
    keeps_limit: bool  # within the limit and its tolerance

    def __str__(self) -> str:
        return (
            f"round {self.number} serves, with {100 * self.share:.1f} % of the showings of the "
            f"group in training episodes ({self.allowed})"
        )

    @property
    def allowed(self) -> str:
        """The limit and what counts as keeping it, in words."""
        highest = min(1.0, self.limit * (1 + self.tolerance))
        return (
            f"limit {100 * self.limit:g} %; up to {100 * highest:.3g} % counts as kept, by "
            f"cost_tolerance {self.tolerance:g}"
        )

    @property
    def remark(self) -> str:
        """What has to be said of a policy that serves although it broke the limit; or nothing."""
        if self.keeps_limit:
            return ""
        return (
            "no evaluated round of the training kept the limit, so the last one serves: round "
            f"{self.number}, with {100 * self.share:.1f} % of the showings of the group "
            f"({self.allowed})"
        )


def chosen_round(reports: Sequence[RoundReport], config: FcpoConfig) -> ChosenRound | None:
    """The evaluated round that kept the limit and has the best NDCG, or else the last round.

    None where there were no rounds, and where any level is served: what the episodes of such a
    training cost says nothing about the lists.
    """
    if not reports or config.serves_any_level:
        return None
    tolerance, limit = config.cost_tolerance, config.limit_in_training
    kept = {
        report.round: (report.validation, -report.round)  # of equals, the first
        for report in reports
        if report.validation is not None and report.keeps_limit(tolerance)
    }
    number = max(kept, key=kept.__getitem__) if kept else reports[-1].round
    chosen = next(report for report in reports if report.round == number)
    return ChosenRound(
        number,
        share=chosen.cost / chosen.limit * limit,  # both are sums over an episode
        limit=limit,
        tolerance=tolerance,
        keeps_limit=chosen.keeps_limit(tolerance),
    )
