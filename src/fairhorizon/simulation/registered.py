"""The environments by an id of Gymnasium, for libraries that make them by name.

    import gymnasium

    env = gymnasium.make(
        "fairhorizon.simulation.registered:FairHorizon/Recommendation-v0",
        data="ml-100k", limits=["popular<=0.4", "genre=Drama>=0.3"], horizon=20,
    )

The part before the colon is imported, which registers the id; `make_vec` works, too. A limit at
most s of a group costs 1 for a showing of the group, and s a showing may be spent. A floor of at
least s is a limit of 1 - s on everything else. Groups are those of the training log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.synthetic import market_of
from fairhorizon.datasets import Dataset, DataSpec, bound_limits, open_dataset
from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.simulation.churn import ChurnConfig
from fairhorizon.simulation.feedback import UserModel, evaluation_scenario
from fairhorizon.simulation.gym import (
    CostLimit,
    EpisodeOptions,
    RecommendationEnv,
    RecommendationVectorEnv,
)
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.vocabulary import Protocol

ID = "FairHorizon/Recommendation-v0"
MARKET = "synthetic:users=200,items=100,interactions_per_user=20"


def recommendation_env(num_envs: int | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """One user after the other; options as for `recommendation_envs`."""
    if num_envs is not None:
        raise ConfigError(f"num_envs={num_envs}: one environment has one user (use make_vec)")
    users, group, episodes = _parts(**options)
    return RecommendationEnv(users, group, **episodes)


def recommendation_envs(num_envs: int = 1, **options: Any) -> RecommendationVectorEnv:
    """So many users at once.

    data: a named set or a path, as for `load`. Users of a synthetic market like what its truth
        says; users of any other log like their test items.
    limits: in the language of limits; of all showings alike. `info["costs"]` has a column for each,
        and `limits` of the environment their names and budgets, what a showing may cost on average.
    list_length, horizon: items of a list, lists of an episode.
    history: how many recent items an observation has.
    patience: likes that users can be patient for before they leave; None: they stay. Users of a
        market only.
    cache_dir: where named sets are kept.
    """
    users, group, episodes = _parts(**options)
    return RecommendationVectorEnv(users, group, num_envs=num_envs, **episodes)


def _parts(
    data: str = MARKET,
    limits: Sequence[str] = ("popular<=0.4",),
    *,
    list_length: int = 1,
    horizon: int = 20,
    history: int = 5,
    patience: float | None = None,
    cache_dir: str | Path | None = None,
) -> tuple[UserModel, NDArray[np.bool_], EpisodeOptions]:
    cache = None if cache_dir is None else Path(cache_dir)
    spec = DataSpec(source=data)
    dataset = open_dataset(spec, cache)
    bound = bound_limits([Limit.parse(text) for text in limits], spec, cache, split=dataset.split)
    episodes: EpisodeOptions = {
        "list_length": list_length,
        "horizon": horizon,
        "limits": [_cost_limit(one) for one in bound],
    }
    return _users(data, dataset, history, patience), dataset.sensitive, episodes


def _cost_limit(bound: ResolvedLimit) -> CostLimit:
    limit, members = bound.limit, bound.members
    if not limit.is_plain:
        raise ConfigError(f"{bound}: an environment counts all showings alike (give GROUP<=SHARE)")
    if limit.is_floor:
        return CostLimit(str(bound), (~members).astype(np.float64), 1 - limit.share)
    return CostLimit(str(bound), members.astype(np.float64), limit.share)


def _users(data: str, dataset: Dataset, history: int, patience: float | None) -> UserModel:
    market = market_of(data)
    if market is None:
        if patience is not None:
            raise ConfigError(f"{data}: users of a log never leave (leave out patience)")
        return evaluation_scenario(dataset.split, history, Protocol.STANDARD)
    churn = None if patience is None else ChurnConfig(patience=patience, like_adds=1.0)
    simulation = SimulationConfig(churn=churn)
    return SimulatedUsers.from_split(market, dataset.split, history, Protocol.STANDARD, simulation)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=recommendation_env, vector_entry_point=recommendation_envs)
