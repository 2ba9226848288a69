"""The lists of all users together: allocated at once, or step by step under control."""

from dataclasses import dataclass

from fairhorizon.errors import ConfigError
from fairhorizon.limits.kept_by_lists import are_several, of_gini
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.recommenders.lists.chances import WeightedChances
from fairhorizon.recommenders.lists.item_lists import Evenness, ItemLists, step_limits
from fairhorizon.recommenders.ranked.control_server import ControlServer
from fairhorizon.recommenders.ranked.fitted import FittedRanker, view_of
from fairhorizon.recommenders.ranked.variety import variety_of
from fairhorizon.recommenders.served import Served
from fairhorizon.recommenders.steps import serve_under_control
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
    ) -> Served:
        lists, limits = self.item_lists(), self.fitted.limits
        if feedback and of_gini(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} limits the Gini index of "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        if feedback and are_several(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} keeps several limits in "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        # without anything to learn from answers there is no reason to plan step by step
        if feedback and self.fitted.ranker.uses_history:
            return Served.of(lists.interactive(scenario, length))
        return lists.served(scenario, length)

    def in_blocks(self, *, feedback: bool, seed: int) -> ItemLists | None:  # noqa: ARG002
        return None if feedback else self.item_lists()

    def item_lists(self) -> ItemLists:
        fitted, calibration = self.fitted, self.fitted.calibration
        lists = ItemLists(
            WeightedChances(
                view_of(fitted.ranker, self.reranker.candidates), (calibration.sharpness,)
            ),
            fitted.sensitive,
            calibration.histories,
            self.reranker.place_rule,
            None if self.reranker.spread is None else Evenness(self.reranker.spread),
        )
        return lists.under(fitted.limits, fitted.level)

    def server(self, plan: ServingPlan) -> ControlServer:  # noqa: ARG002
        name = self.fitted.ranker.method
        raise ConfigError(
            f"{name}+{self.reranker.method} makes whole lists at once and serves in no long run "
            f"(use {name}+{StepControl.method})"
        )

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""


@dataclass(frozen=True)
class ControlledLists:
    """Step control over the standardised scores of one ranker: `NAME+control`."""

    fitted: FittedRanker
    reranker: StepControl

    def serve(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool,
        seed: int,  # noqa: ARG002  # nothing is drawn
    ) -> Served:
        if self.reranker.needs_kinds:
            raise ConfigError(
                f"{self._name}: mmr and kind_quota are rules of a long run (leave them out, or use "
                "longterm)"
            )
        limits = step_limits(self.fitted.limits) or [PopularityLimit(self.reranker.share)]
        server = ControlServer(self.fitted.ranker, limits)
        shown = serve_under_control(
            server, scenario, self.fitted.sensitive, length=length, feedback=feedback
        )
        texts = [str(one) for one in self.fitted.limits] or [self.fitted.level]
        # those of the last place, in units of the standardised scores
        prices = dict(zip(texts, server.control.prices.values(), strict=True))
        return Served.of(shown, prices=prices)

    def in_blocks(self, *, feedback: bool, seed: int) -> None:
        """Every place of all lists depends on the places before it."""

    def server(self, plan: ServingPlan) -> ControlServer:
        return ControlServer(
            self.fitted.ranker,
            plan.limits,
            list_length=1 if plan.list_length is None else plan.list_length,
            retraining=plan.retraining(),
            variety=variety_of(self.reranker, plan.kinds, self._name),
        )

    @property
    def _name(self) -> str:
        return f"{self.fitted.ranker.method}+{self.reranker.method}"

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""
