"""The Gymnasium environment of users who leave, as a vector environment of Stable-Baselines3.

All users are served at once, an environment per user. The episode of a user is done when the user
leaves, or with the last step of the run: a run has so many steps and no more, and the observation
tells the step, so nothing is expected after it. Users who left wait for the end of the run. Their
rows are done at every step, earn nothing, and `PresentRollouts` keeps them from the learner. When
nobody is there any more, or after the last step, all rows begin anew, with other answers.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.buffers import RolloutBuffer, RolloutBufferSamples
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.limits.counts import Counts, Exposure
from fairhorizon.simulation.feedback import UserModel
from fairhorizon.simulation.gym import RecommendationVectorEnv
from quit_view import View

MOST = 3.0  # largest deviation of a weight
Infos = list[dict[str, Any]]
Floats = NDArray[np.float32]


class StaysVecEnv(VecEnv):
    """An action is a row of weights, `View` says of what; the reward is a like.

    counts: of the training log, from which the popular group begins.
    control: makes one for each run that keeps the limit in it; None: nothing does.

    `penalty`, which may be changed, is the multiplier of the limit, in likes: a showing of the
    group loses penalty (1 - limit), another one gains penalty limit. A limit on a share has to be
    taken so: with a price on the group alone it would be best that users leave.
    """

    render_mode = None

    def __init__(
        self,
        users: UserModel,
        counts: Counts,
        view: View,
        *,
        seed: int,
        control: Callable[[], OnlineControl] | None = None,
    ) -> None:
        self.view, self.penalty, self._counts = view, 0.0, counts
        self._make_control = control
        self.exposure = Exposure(counts)
        self.gym = RecommendationVectorEnv(
            users, self.exposure.sensitive, list_length=1, horizon=view.horizon
        )
        known = Box(-np.inf, np.inf, (view.n_known,), np.float32)
        weights = Box(-MOST, MOST, (view.n_weights,), np.float32)
        super().__init__(self.gym.num_envs, known, weights)
        self.showings = 0  # to users who were there, since the first run
        self._first_seed: int | None = seed
        self._actions: Floats | None = None

    def reset(self) -> Floats:
        observation, info = self.gym.reset(seed=self._first_seed)
        self._first_seed = None  # other answers in every run
        self.exposure = Exposure(self._counts)
        self.gym.sensitive = self.exposure.sensitive
        self._control = None if self._make_control is None else self._make_control()
        self._available = torch.from_numpy(info["available"])
        users, queues = (torch.from_numpy(observation[name]) for name in ("user", "queue"))
        taken = (~self._available).sum(1)
        self.view.begin(users, queues, taken, self.exposure.sensitive)
        return self._known()

    def step_async(self, actions: Floats) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Floats, Floats, NDArray[np.bool_], Infos]:
        assert self._actions is not None, "call step_async before step_wait"
        view, was_here = self.view, self.view.here
        weights = torch.from_numpy(np.asarray(self._actions, dtype=np.float32))
        lists = view.choose(weights, self._available, self.exposure, self._control)
        observation, likes, gone, cut, info = self.gym.step(lists.numpy())
        here = torch.from_numpy(~gone)
        queues, hits = torch.from_numpy(observation["queue"]), torch.from_numpy(likes > 0)
        self._count(lists)
        view.note(lists[:, 0], hits, queues, here)
        self._available = torch.from_numpy(info["available"])
        over = info["cost"] - view.limit * (lists[:, 0] >= 0).numpy()
        rewards = (likes - self.penalty * over).astype(np.float32)
        done, known = (gone | cut), self._known()
        infos: Infos = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done & was_here.numpy()):
            infos[row]["terminal_observation"] = known[row]
        if done.all():
            known = self.reset()
        return known, rewards, done, infos

    def _count(self, lists: Tensor) -> None:
        """Groups follow what is shown, as in a long run."""
        self.showings += int((lists >= 0).sum())
        self.exposure.add(lists)
        self.exposure.relabel()
        self.gym.sensitive = self.exposure.sensitive

    def _known(self) -> Floats:
        return self.view.known(self._available, self.exposure).numpy()

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: ArrayLike | None = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(self._rows(indices))

    def set_attr(self, attr_name: str, value: Any, indices: ArrayLike | None = None) -> None:
        raise NotImplementedError("rows have no attributes of their own")

    def env_method(self, method_name: str, *_: Any, **__: Any) -> list[Any]:
        raise NotImplementedError(f"rows have no method {method_name!r} of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: ArrayLike | None = None) -> list[bool]:
        del wrapper_class
        return [False] * len(self._rows(indices))

    def _rows(self, indices: ArrayLike | None) -> Sequence[int]:
        return range(self.num_envs) if indices is None else list(np.atleast_1d(indices))


class PresentRollouts(RolloutBuffer):
    """A rollout buffer that gives the learner users who were there, and nobody who waits.

    Who waits is done at every step, so nothing of it enters the returns of others.
    """

    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        if not self.generator_ready:
            names = ("observations", "actions", "values", "log_probs", "advantages", "returns")
            for name in names:
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        present = np.random.permutation(np.flatnonzero(self.observations[:, 0]))  # noqa: NPY002
        parts = 1 if batch_size is None else max(1, round(len(present) / batch_size))
        for some in np.array_split(present, parts):
            yield self._get_samples(some)
