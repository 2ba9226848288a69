"""PPO of Stable-Baselines3 among users who leave: its training, and the server of a long run."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from stable_baselines3 import PPO
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.limits.counts import Exposure
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.vocabulary import Labels
from quit_env import PresentRollouts, StaysVecEnv
from quit_view import View

EPOCHS = 10  # over the showings of a rollout
HIDDEN = (64, 64)


@dataclass(frozen=True)
class PpoSettings:
    """Settings of a training; what is not here is as Stable-Baselines3 has it."""

    learning_rate: float = 3e-4
    gamma: float = 0.99
    entropy: float = 0.0
    trace: float = 0.98  # lambda of generalised advantages
    noise: float = -1.0  # logarithm of the standard deviation of a weight, at the start
    steps: int = 10  # of a rollout, for all users
    penalty: float = 0.0  # multiplier of the limit at the start, in likes
    ascent: float = 0.0  # by how much it rises after a rollout, per unit of share over the limit

    def __str__(self) -> str:
        return (
            f"learning rate {self.learning_rate:g}, gamma {self.gamma:g}, entropy "
            f"{self.entropy:g}, penalty {self.penalty:g}, ascent {self.ascent:g}"
        )


def trained(env: StaysVecEnv, settings: PpoSettings, budget: int, seed: int) -> PPO:
    """A policy that has learned from at least so many showings, and less than a rollout more.

    The multiplier of the limit rises while the group has more than its share, and falls while it
    has less.
    """
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=settings.learning_rate,
        n_steps=settings.steps,
        batch_size=env.num_envs,
        n_epochs=EPOCHS,
        gamma=settings.gamma,
        gae_lambda=settings.trace,
        ent_coef=settings.entropy,
        policy_kwargs={"log_std_init": settings.noise, "net_arch": list(HIDDEN)},
        rollout_buffer_class=PresentRollouts,
        seed=seed,
        device="cpu",
    )
    env.penalty = settings.penalty
    while env.showings < budget:
        model.learn(env.num_envs * settings.steps, reset_num_timesteps=False)
        rate = env.exposure.rate(Labels.RETROSPECTIVE)  # NaN if a run has just begun
        if rate == rate:
            over = rate - env.view.limit
            env.penalty = max(0.0, env.penalty + settings.ascent * over)
    return model


class WeightsServer:
    """Serves a long run by weights: those of a policy, or the same for everybody.

    policy: None: the weights of the ensemble, or with a generator random ones.
    control: keeps a limit by a price on the weighted sums.
    """

    remarks: Sequence[str] = ()

    def __init__(
        self,
        view: View,
        policy: PPO | None = None,
        control: OnlineControl | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.view, self.policy, self.control, self.generator = view, policy, control, generator
        self.queue_length = view.panel.queue_length
        self._is_begun = False

    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if not self._is_begun:
            taken = state.blocked_sets.counts()
            self.view.begin(state.users, state.queue, taken, exposure.sensitive)
            self._is_begun = True
        available = ~state.blocked
        actions = self._actions(available, exposure)
        return self.view.choose(actions, available, exposure, self.control)

    def _actions(self, available: Tensor, exposure: Exposure) -> Tensor:
        shape = (len(available), self.view.n_weights)
        if self.policy is not None:
            known = self.view.known(available, exposure).numpy()
            return torch.from_numpy(self.policy.predict(known, deterministic=True)[0])
        if self.generator is not None:
            return torch.randn(shape, generator=self.generator)
        return torch.zeros(shape)

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        here = outcome.state.here
        assert here is not None
        self.view.note(lists[:, 0], outcome.hits[:, 0], outcome.state.queue, here)

    def update(self) -> None:
        """What there is to learn was learned before."""

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        raise NotImplementedError("such a run is short: make it anew")
