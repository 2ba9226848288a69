"""The lists of all users together, allocated at once: `NAME+lists`."""

from dataclasses import dataclass

from fairhorizon.errors import ConfigError
from fairhorizon.limits.supported import gini_limits, is_multi_limit
from fairhorizon.recommenders.lists.chances import WeightedProbabilities
from fairhorizon.recommenders.lists.item_lists import GiniTarget, ItemLists
from fairhorizon.recommenders.ranked.calibration import FittedRanker, view_of
from fairhorizon.recommenders.ranked.controlled import OnlineControlled
from fairhorizon.recommenders.ranked_lists import RankedLists
from fairhorizon.recommenders.tasks import ServingPlan
from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.simulation.feedback import Scenario


@dataclass(frozen=True)
class AllocatedLists:
    """The joint allocation over the chances by one ranker: `NAME+lists`."""

    fitted: FittedRanker
    reranker: ListAllocation

    def serve(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool,
        seed: int,  # noqa: ARG002  # nothing is drawn
    ) -> RankedLists:
        lists, limits = self.item_lists(), self.fitted.limits
        if feedback and gini_limits(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} limits the Gini index of "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        if feedback and is_multi_limit(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} keeps several limits in "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        # without anything to learn from answers there is no reason to plan step by step
        if feedback and self.fitted.ranker.uses_history:
            return RankedLists.of(lists.interactive(scenario, length))
        return lists.served(scenario, length)

    def in_blocks(self, *, feedback: bool, seed: int) -> ItemLists | None:  # noqa: ARG002
        return None if feedback else self.item_lists()

    def item_lists(self) -> ItemLists:
        fitted, calibration = self.fitted, self.fitted.calibration
        lists = ItemLists(
            WeightedProbabilities(
                view_of(fitted.ranker, self.reranker.candidates), (calibration.sharpness,)
            ),
            fitted.sensitive,
            calibration.histories,
            self.reranker.place_rule,
            None if self.reranker.spread is None else GiniTarget(self.reranker.spread),
        )
        return lists.with_limits(fitted.limits, fitted.level)

    def server(self, plan: ServingPlan) -> OnlineControlled:  # noqa: ARG002
        name = self.fitted.ranker.method
        raise ConfigError(
            f"{name}+{self.reranker.method} makes whole lists at once and serves in no long run "
            f"(use {name}+{StepControl.method})"
        )

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""
