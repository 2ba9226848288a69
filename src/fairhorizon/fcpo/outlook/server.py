"""FCPO at work among users who can leave: items by the likes that they bring, now and later."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.outlook.outlook import Outlook
from fairhorizon.fcpo.server import FcpoServer
from fairhorizon.limits.counts import Exposure
from fairhorizon.policy.actor import Actor
from fairhorizon.policy.softmax import explored, propensities
from fairhorizon.recommenders.tasks import ServingPlan
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below


class LongFcpoServer(FcpoServer):
    """The policy orders items, the outlook says what they are worth to whom.

    The control's price comes on top of that, so who gets the scarce showings is what was learned.
    Online, it is the outlook that learns; the weights of the policy stay.
    """

    def __init__(self, actor: Actor, config: FcpoConfig, *, learn: bool, **plan: Any) -> None:
        quiet = config.model_copy(update={"explore": 0.0})  # noise is added to values instead
        super().__init__(actor, quiet, learn=False, **plan)
        self.explore = config.explore
        if config.list_length != 1:
            raise ConfigError("value=long is for lists of one item (set value to score)")
        self.outlook = Outlook(
            config.gamma_r,
            settings=config.looking_ahead,
            share=self.limits[0].limit_per_showing if self.limits else 1.0,
            seed=plan["seed"],
        )
        self.learns_online, self._is_begun = learn and config.looking_ahead.online, False

    def _valued(
        self, scores: Sequence[Tensor], state: State, exposure: Exposure
    ) -> Sequence[Tensor]:
        if not self._is_begun:
            self.outlook.begin(state.blocked_sets.counts())
            self._is_begun = True
        (slot,) = scores
        values = self.outlook.values(slot, exposure.sensitive).to(slot)
        self._before_noise = values
        if self.explore:
            (values,) = explored([values], self.explore, self.generator)
        return [values]

    @property
    def propensities(self) -> Tensor | None:
        """(b, 1) the chance of each item shown, given the prices of the step."""
        if not self.explore:
            return super().propensities
        charges = self.control.charges.to(self._before_noise)
        return propensities([self._before_noise - charges[0]], self._lists, self.explore)

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        super().observe(lists, outcome, exposure)
        self._lists = lists
        self.outlook.note(lists, outcome.hits, outcome.state.here, self.control.charges[0])

    def update(self) -> None:
        super().update()
        if self.learns_online and self.outlook.has_news:
            self.outlook.learn(going_on=1)

    def notes(self) -> dict[str, float]:
        """Also what a like is worth, in the mean over the users, and where it explores the mean
        propensity of what was shown."""
        notes = {**super().notes(), "worth of a like": float(self.outlook.worth().mean())}
        shown = self._lists >= 0
        if self.explore and self.propensities is not None and shown.any():
            notes["mean propensity"] = float(self.propensities[shown].mean())
        return notes

    def tensors(self) -> dict[str, Tensor]:
        own = {f"outlook.{name}": value for name, value in self.outlook.tensors().items()}
        return {**super().tensors(), **own}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        super().restore(tensors, state)
        self.outlook.restore(below("outlook.", tensors))
        self._is_begun = True


def fcpo_server(
    actor: Actor, config: FcpoConfig, queue_length: int, plan: ServingPlan, seed: int
) -> FcpoServer:
    """The server that the settings ask for."""
    kind = LongFcpoServer if config.value == "long" else FcpoServer
    return kind(
        actor,
        config,
        queue_length=queue_length,
        limits=plan.limits,
        learn=plan.learn,
        seed=seed,
        retraining=plan.retraining(),
    )
