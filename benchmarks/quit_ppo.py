"""PPO of Stable-Baselines3 among users who leave: its training, and the server of a long run."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer, RolloutBufferSamples
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.limits.counts import Counts, Exposure
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.ranking import first_best
from fairhorizon.recommenders.lists.features import EnsembleFeatures
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import UserModel
from fairhorizon.simulation.gym import RecommendationVectorEnv
from fairhorizon.vocabulary import Labels

# What PPO can know of the users it serves, and the item that its weights choose.


LAST = 8  # answers that are remembered one by one
FADING = (0.8, 0.95)  # parts of earlier likes that still count after a showing
FORGETTING = 0.9  # part of earlier showings of a kind that still counts, as for fcpo:long
SCALES = (3.0, 3.0, 20.0)  # of a weight on the group, on being near it, and on kinds lately
NUMBERS = 8  # of an observation beside answers, likes that fade and kinds
CELLS = 2**20  # users times items at once: they should stay in the cache


class View:
    """All users of a run: their features, and what was seen of them so far.

    kinds: (n_items, kinds) the part that each kind has in an item; none of them: no such feature.
    limit: what the share of the group is compared with.
    horizon: steps of a run.
    """

    def __init__(self, ensemble: Ensemble, kinds: Tensor, limit: float, horizon: int) -> None:
        self.ensemble, self.kinds, self.limit, self.horizon = ensemble, kinds, limit, horizon
        self.base = torch.tensor(ensemble.weights, dtype=torch.float32)
        self._features: EnsembleFeatures | None = None

    @property
    def n_weights(self) -> int:
        """Rankers, the group, being near it, kinds lately."""
        return len(self.ensemble.rankers) + 2 + bool(self.kinds.shape[1])

    @property
    def n_known(self) -> int:
        """Length of an observation; its first number is 1 for users who are there, else 0."""
        return 1 + LAST + len(FADING) + NUMBERS + self.kinds.shape[1]

    def begin(self, users: Tensor, queues: Tensor, taken: Tensor, group: Tensor) -> None:
        """A new run of users with these queues (b, N), who took so many items (b,) before.

        Scores of the first state are kept: a later run of the same users begins with them.
        """
        if self._features is None or not torch.equal(users, self._users):
            self._users = users.clone()
            self._features = EnsembleFeatures(self.ensemble, users, queues, group)
            self._table = _weighed(self.base, self._features.values)
            self._first = []
        self._back_to_the_first()
        b = len(users)
        self.here = torch.ones(b, dtype=torch.bool)
        self.taken = taken.float().log1p()
        self.answers = torch.zeros(b, LAST)  # newest last: 1 for a like, -1 for none, 0: not yet
        self.faded = torch.zeros(b, len(FADING))
        self.since, self.stay, self.likes = torch.zeros(3, b).unbind()
        self.lately = torch.zeros(b, self.kinds.shape[1])

    def known(self, available: Tensor, exposure: Exposure) -> Tensor:
        """(b, n_known) of the moment; zeros for those who left.

        available: (b, n_items) bool, what may be shown.
        """
        rate = exposure.rate(Labels.RETROSPECTIVE)
        room = self.limit - rate if exposure.n_shown else 0.0
        stay = self.stay / self.horizon
        numbers = [self.since.log1p(), stay, self.taken, torch.full_like(stay, 10 * room)]
        like_rate = (self.likes + 1) / (self.stay + 8)
        best = self._best_by_group(available, exposure.sensitive)
        most = self.lately.amax(1, keepdim=True) if self.kinds.shape[1] else stay[:, None] * 0
        parts = [torch.ones(len(stay), 1), self.answers, self.faded, torch.stack(numbers, 1)]
        known = torch.cat([*parts, like_rate[:, None], best, self.lately, most], dim=1)
        return known * self.here[:, None]

    def choose(
        self,
        actions: Tensor,
        available: Tensor,
        exposure: Exposure,
        control: OnlineControl | None = None,
    ) -> Tensor:
        """(b, 1) the open item with the highest weighted sum; -1 for who left or has none.

        A control takes the price of its limit off the sums, and gives the group to whom it is
        worth most.
        """
        items, of_items = torch.full((len(actions), 1), -1), group_features(exposure)
        table = actions.new_full(available.shape if control is not None else (0, 0), -torch.inf)
        for rows in self.rows_here():
            scores = self.scores(rows, actions[rows], of_items)
            scores.masked_fill_(~available[rows], -torch.inf)
            if control is None:
                items[rows, 0] = first_best(scores)
            else:
                table[rows] = scores
        return items if control is None else control.choose(table, exposure)

    def scores(self, rows: Tensor, actions: Tensor, of_items: Tensor) -> Tensor:
        """(len(rows), n_items) weighted sums of some users; of_items: from `group_features`."""
        assert self._features is not None
        n, (on_group, on_near, on_lately) = len(self.ensemble.rankers), SCALES
        scores = self._table[rows]
        for number, values in enumerate(self._features.values):
            scores.addcmul_(actions[:, number, None], values[rows])
        scores.addmm_(actions[:, n : n + 2] * torch.tensor([on_group, on_near]), of_items)
        if self.kinds.shape[1]:
            weights = on_lately * actions[:, n + 2, None]
            scores.addmm_(weights * self.lately[rows], self.kinds.T)
        return scores

    def note(self, items: Tensor, hits: Tensor, queues: Tensor, here: Tensor) -> None:
        """The answers (b,) to items (b,), -1 for none; the queues and who is there after them."""
        shown, like = items >= 0, hits.float()
        newer = torch.cat([self.answers[:, 1:], (2 * like - 1)[:, None]], dim=1)
        self.answers = torch.where(shown[:, None], newer, self.answers)
        faded = self.faded * torch.tensor(FADING) + like[:, None]
        self.faded = torch.where(shown[:, None], faded, self.faded)
        since = torch.where(hits, torch.zeros_like(self.since), self.since + 1)
        self.since = torch.where(shown, since, self.since)
        self.stay, self.likes = self.stay + shown, self.likes + like
        self.lately = FORGETTING * self.lately + self.kinds[items.clamp(min=0)] * shown[:, None]
        self.here = here
        self._refresh((hits & here).nonzero().squeeze(1), queues)

    def _refresh(self, rows: Tensor, queues: Tensor) -> None:
        """Scores of users whose history has changed; those of the first state are kept."""
        features = self._features
        assert features is not None
        if not len(rows):
            return
        new = rows[~self._has_changed[rows]]
        self._first.append((new, *(table[new] for table in (*features.values, self._table))))
        self._has_changed[new] = True
        features.refresh(rows, self._users[rows], queues[rows])
        self._table[rows] = _weighed(self.base, [values[rows] for values in features.values])

    def _back_to_the_first(self) -> None:
        assert self._features is not None
        for rows, *first in self._first:
            for table, own in zip((*self._features.values, self._table), first, strict=True):
                table[rows] = own
        self._first: list[tuple[Tensor, ...]] = []
        self._has_changed = torch.zeros(len(self._users), dtype=torch.bool)

    def _best_by_group(self, available: Tensor, group: Tensor) -> Tensor:
        """(b, 2) how good the best open item outside the group is, and how much better one in it.

        By the weights of the ensemble; 0 where there is none.
        """
        best = torch.zeros(len(available), 2)
        inside, outside = group.nonzero().squeeze(1), (~group).nonzero().squeeze(1)
        for rows in self.rows_here():
            table = self._table[rows].masked_fill_(~available[rows], -torch.inf)
            popular, other = table[:, inside].amax(1), table[:, outside].amax(1)
            best[rows] = torch.stack([other, popular - other], 1).nan_to_num_(0.0, 0.0, 0.0)
        return best

    def rows_here(self) -> tuple[Tensor, ...]:
        """Users who are there, some at a time."""
        rows = self.here.nonzero().squeeze(1)
        return rows.split(max(1, CELLS // len(self.kinds)))


def group_features(exposure: Exposure) -> Tensor:
    """(2, n_items) whether items are in the group, and how near they are: 1 in it, 0 never taken.

    What is shown often enters the group, with all its showings.
    """
    counts, group = torch.from_numpy(exposure.counts).float(), exposure.sensitive
    least = counts[group].amin().clamp(min=1) if group.any() else counts.amax().clamp(min=1)
    return torch.stack([group.float(), (counts / least).clamp(max=1)])


def _weighed(weights: Tensor, values: list[Tensor]) -> Tensor:
    """The sum of the tables (b, n_items), each times its weight."""
    table = torch.zeros_like(values[0])
    for weight, own in zip(weights, values, strict=True):
        table.addcmul_(weight, own)
    return table


# The Gymnasium environment of users who leave, as a vector environment of Stable-Baselines3.


MOST = 3.0  # largest deviation of a weight
Infos = list[dict[str, Any]]
Floats = NDArray[np.float32]


class StaysVecEnv(VecEnv):
    """An action is a row of weights, `View` says of what; the reward is a like.

    counts: of the training log, from which the popular group begins.
    control: makes one for each run that keeps the limit in it; None: nothing does.
    served: (b,) codes of the users who are served; None: all.

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
        served: Tensor | None = None,
    ) -> None:
        self.view, self.penalty, self._counts = view, 0.0, counts
        self._make_control = control
        self.exposure = Exposure(counts)
        self.gym = RecommendationVectorEnv(
            users,
            self.exposure.sensitive,
            list_length=1,
            horizon=view.horizon,
            users=None if served is None else served.numpy(),
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
        self.queue_length = view.ensemble.queue_length
        self._has_started = False

    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if not self._has_started:
            taken = state.blocked_sets.counts()
            self.view.begin(state.users, state.queue, taken, exposure.sensitive)
            self._has_started = True
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
