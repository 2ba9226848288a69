"""The recommendation CMDP as Gymnasium environments, for agents of other libraries.

An observation is a user and the queue of recently liked items (n_items stands for "no item"), an
action a list of K items. The reward is equation 8; `info["cost"]` is equation 9 and
`info["available"]` the mask of items that may still be shown. Showing another one earns nothing.
`info["costs"]` has what the list used of each of several limits.

Any user model can be used. Simulated users drift and are reset with every episode. Where users can
leave, the episode of one who does is terminated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, Unpack

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from fairhorizon.errors import ConfigError
from fairhorizon.simulation.dynamics import State, advance
from fairhorizon.simulation.feedback import UserModel

Observation = dict[str, Any]
Info = dict[str, Any]
Lists = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CostLimit:
    """One of several limits of an environment."""

    name: str
    cost: NDArray[np.float64]  # (n_items,) of a showing
    budget: float  # the most that a showing may cost, on average


class EpisodeOptions(TypedDict):
    """What an environment needs besides a user model and a group."""

    list_length: int
    horizon: int
    users: NotRequired[ArrayLike | None]  # all of the user model unless given
    limits: NotRequired[Sequence[CostLimit]]  # the columns of info["costs"]


class RecommendationVectorEnv(VectorEnv[Observation, Lists, NDArray[Any]]):
    """`num_envs` users at once, each for an episode of `horizon` steps; all end together.

    Users who leave before stay terminated until then: they are shown nothing and earn nothing. Such
    environments do not reset themselves. Call `reset` when all have ended.

    Episodes take the users in the order given, round and round; a reset with a seed shuffles that
    order first and seeds random feedback. By Gymnasium's next-step autoreset, the step
    after the last begins new episodes.
    """

    def __init__(
        self,
        user_model: UserModel,
        sensitive: ArrayLike,
        *,
        list_length: int,
        horizon: int,
        users: ArrayLike | None = None,
        limits: Sequence[CostLimit] = (),
        num_envs: int | None = None,
    ) -> None:
        self.user_model = user_model
        self.limits = tuple(limits)
        # (n_items, limits)
        self._costs = np.stack([one.cost for one in limits], axis=1) if limits else None
        self.sensitive = torch.as_tensor(sensitive, dtype=torch.bool)
        self.horizon = horizon
        self.users = np.array(np.arange(user_model.n_users) if users is None else users, np.int64)
        self.num_envs = len(self.users) if num_envs is None else num_envs
        _check(len(self.users) > 0, "there must be at least one user")
        example, _ = user_model.begin(torch.from_numpy(self.users[:1]))
        n_items, history = example.blocked_sets.shape[1], example.queue.shape[1]
        can_leave = example.here is not None
        # Gymnasium resets single environments once they end. Here all users share one batch with
        # one clock, so where users end at different times the caller resets all of them.
        mode = AutoresetMode.DISABLED if can_leave else AutoresetMode.NEXT_STEP
        self.metadata = {"autoreset_mode": mode}
        _check(len(self.sensitive) == n_items, f"sensitive must have one entry for {n_items} items")
        if self._costs is not None:
            _check(len(self._costs) == n_items, f"a cost must have one entry for {n_items} items")
        for name, value in (
            ("list_length", list_length),
            ("horizon", horizon),
            ("num_envs", self.num_envs),
        ):
            _check(value >= 1, f"{name} must be at least 1, not {value}")

        self.single_observation_space = Dict(
            user=Discrete(user_model.n_users),
            queue=MultiDiscrete([n_items + 1] * history),
        )
        self.single_action_space = MultiDiscrete([n_items] * list_length)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._order = self.users
        self._next = 0  # position in the order of the first user of the next episodes
        self._state: State | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._order, self._next = self.np_random.permutation(self.users), 0
        places = (self._next + np.arange(self.num_envs)) % len(self._order)
        self._next = (self._next + self.num_envs) % len(self._order)
        users = torch.from_numpy(self._order[places])
        # Drawn from the environment's generator, so that a seed in `reset` fixes all later episodes
        # too.
        chance = int(self.np_random.integers(2**63))  # other feedback in every episode
        self._state, self._audience = self.user_model.begin(users, seed=chance)
        self._gone = torch.zeros(self.num_envs, dtype=torch.bool)
        self._elapsed = 0
        nothing = torch.full((self.num_envs, 1), -1)
        cost = np.zeros(self.num_envs)
        return _observation(self._state), _info(self._state, cost, self._used(nothing))

    def step(
        self, actions: Lists
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        if self._elapsed == self.horizon:
            never = np.zeros(self.num_envs, dtype=np.bool_)
            observation, info = self.reset()
            return observation, np.zeros(self.num_envs), never, never.copy(), info
        lists = torch.tensor(np.asarray(actions), dtype=torch.int64)  # (num_envs, K)
        # Actions of users who left are ignored: they are shown nothing.
        lists = lists.masked_fill(self._gone[:, None], -1)
        outcome = advance(self._state, lists, self._audience, self.sensitive)
        self._audience.pass_time()
        self._state = outcome.state
        if outcome.state.here is not None:  # whoever comes back begins another episode elsewhere
            self._gone = self._gone | ~outcome.state.here
        self._elapsed += 1
        return (
            _observation(outcome.state),
            outcome.reward.double().numpy(),
            self._gone.numpy().copy(),
            # Terminated is who left; truncated, whom the horizon cut off. A learner bootstraps only
            # the latter, so an episode is never both.
            np.full(self.num_envs, self._elapsed == self.horizon) & ~self._gone.numpy(),
            _info(outcome.state, outcome.cost.double().numpy(), self._used(lists)),
        )

    def _used(self, lists: torch.Tensor) -> NDArray[np.float64] | None:
        """(num_envs, limits) what the lists (num_envs, K) use of each limit; -1 uses nothing."""
        if self._costs is None:
            return None
        shown = lists.numpy()
        used: NDArray[np.float64] = (self._costs[shown] * (shown >= 0)[:, :, None]).sum(axis=1)
        return used


class RecommendationEnv(gymnasium.Env[Observation, Lists]):
    """One user after the other: the vector environment with a single row."""

    def __init__(
        self,
        user_model: UserModel,
        sensitive: ArrayLike,
        **episodes: Unpack[EpisodeOptions],
    ) -> None:
        self._row = RecommendationVectorEnv(user_model, sensitive, num_envs=1, **episodes)
        self.limits = self._row.limits
        self.observation_space = self._row.single_observation_space
        self.action_space = self._row.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        observation, info = self._row.reset(seed=seed, options=options)
        return _first(observation), _first(info)

    def step(self, action: Lists) -> tuple[Observation, float, bool, bool, Info]:
        observation, rewards, ended, cut, info = self._row.step(np.asarray(action)[None])
        return _first(observation), float(rewards[0]), bool(ended[0]), bool(cut[0]), _first(info)


def _observation(state: State) -> Observation:
    """Copies, so that an agent may keep observations."""
    return {"user": state.users.numpy().copy(), "queue": state.queue.numpy().copy()}


def _info(state: State, cost: NDArray[np.float64], costs: NDArray[np.float64] | None) -> Info:
    """With Gymnasium's masks `_key` of the rows that have the key: all of them."""
    everyone = np.ones(len(cost), dtype=np.bool_)
    found = {"cost": cost, "available": (~state.blocked).numpy()}
    if costs is not None:
        found["costs"] = costs
    return found | {f"_{key}": everyone.copy() for key in found}


def _first(batch: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The only row of a batch, without the masks that only batches have."""
    return {key: values[0] for key, values in batch.items() if not key.startswith("_")}


def _check(holds: bool, fault: str) -> None:
    if not holds:
        raise ConfigError(fault)
