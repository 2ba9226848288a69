"""Ridge against a regression over explicit prefixes, and on worlds with a known order."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.histories import UserItems, frequent
from fairhorizon.rankers import ridge
from fairhorizon.rankers.ridge import LagCounts, Ridge, RidgeConfig, Scales, most_features
from fairhorizon.recommenders.ranked.model import Ranked

CONFIGS = (
    RidgeConfig(decays=(0.9,), horizon=1, l2=2.0, popularity=0.0),
    RidgeConfig(decays=(0.5, 0.98), horizon=4, future=0.7, l2=5.0, popularity=0.3),
    RidgeConfig(decays=(1.0, 0.8, 0.3), horizon=3, l2=1.0, popularity=0.1),
    RidgeConfig(decays=(1.0,), horizon=30, future=1.0, l2=10.0),
)


def log_of(seed: int, users: int = 25, items: int = 12):
    rng = np.random.default_rng(seed)
    rows = [
        (user, item)
        for user in range(users)
        for item in rng.permutation(items)[: rng.integers(1, items + 1)]
    ]
    rows += [(users, item) for item in range(items)]
    user, item = np.array(rows).T
    return from_arrays(user, item)


def explicit(sequences: list[NDArray[np.int64]], n: int, config: RidgeConfig):
    """Rows of features and targets, one for each prefix, by loops."""
    features, targets = [], []
    for items in sequences:
        for t in range(1, len(items)):
            features.append(state_of(items[:t], n, config))
            target = np.zeros(n)
            for h in range(min(config.horizon, len(items) - t)):
                target[items[t + h]] += config.future**h
            targets.append(target)
    return np.array(features), np.array(targets)


def state_of(items, n: int, config: RidgeConfig) -> NDArray[np.float64]:
    state = np.zeros((len(config.decays), n))
    for p, decay in enumerate(config.decays):
        for age, item in enumerate(items[::-1]):
            state[p, item] += decay**age
    return state.ravel()


def sequences_of(log) -> list[NDArray[np.int64]]:
    return [log.items[log.users == user] for user in range(log.n_users)]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(5))
def test_coefficients_are_those_of_a_regression_over_all_prefixes(config, seed):
    log = log_of(seed)
    parts = Split(log, log.take([]), log.take([]))
    model = Ridge(config).fit(parts)
    x, y = explicit(sequences_of(log), log.n_items, config)
    # ridge regression as least squares: sqrt(lambda) I below the features, 0 below the targets
    columns = x.shape[1]
    padded = np.vstack([x, np.sqrt(config.l2) * np.eye(columns)])
    wanted = np.linalg.lstsq(padded, np.vstack([y, np.zeros((columns, y.shape[1]))]))[0]
    wanted /= np.maximum(y.sum(0), 1) ** config.popularity
    np.testing.assert_allclose(model.coefficients_, wanted, atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS)
def test_scores_are_the_state_times_the_coefficients(config):
    log = log_of(7)
    model = Ridge(config).fit(Split(log, log.take([]), log.take([])))
    queue = UserItems.from_log(log).last(model.queue_length)
    scores = model.scores(torch.arange(log.n_users), queue)
    for user, items in enumerate(sequences_of(log)):
        state = state_of(items, log.n_items, config)
        np.testing.assert_allclose(scores[user], state @ model.coefficients_.numpy(), atol=1e-3)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("features", [12, 5])
def test_one_interaction_added_is_the_same_as_counting_from_scratch(config, features):
    log = log_of(3)
    histories = UserItems.from_log(log)
    scales = Ridge(config).scales
    numbers = frequent(histories, features)
    sequences = sequences_of(log)
    for user in (0, 4, 9):
        history, item = sequences[user][:-1], int(sequences[user][-1])
        last = np.flatnonzero(log.users == user)[-1]
        shorter = UserItems.from_log(log.take(np.arange(len(log)) != last))
        counts = LagCounts.from_histories(shorter, scales, numbers, torch.float64)
        counts.add(torch.tensor(history), item)
        whole = LagCounts.from_histories(histories, scales, numbers, torch.float64)
        torch.testing.assert_close(counts.gram, whole.gram)
        torch.testing.assert_close(counts.target, whole.target)
        torch.testing.assert_close(counts.following, whole.following)


@pytest.mark.parametrize(("work", "asked"), [(12.0 * (2 * 5) ** 2, 2048), (ridge.WORK, 5)])
def test_few_features_are_the_regression_on_the_most_frequent_items_alone(
    work: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(1, users=40)
    config = CONFIGS[1].model_copy(update={"features": asked})
    monkeypatch.setattr(ridge, "WORK", work)  # 2 scales x 5 features
    assert min(asked, most_features(12, 2)) == 5
    model = Ridge(config).fit(Split(log, log.take([]), log.take([])))
    kept = np.argsort(-log.item_counts(), kind="stable")[:5]
    assert sorted(kept) == (model.features_ >= 0).nonzero().squeeze(1).tolist()
    x, y = explicit(sequences_of(log), 12, config)
    x = x.reshape(len(x), 2, 12)[:, :, np.sort(kept)].reshape(len(x), 10)
    wanted = np.linalg.solve(x.T @ x + config.l2 * np.eye(10), x.T @ y)
    wanted /= np.maximum(y.sum(0), 1) ** config.popularity
    np.testing.assert_allclose(model.coefficients_, wanted, atol=1e-6)
    scores = model.scores(torch.tensor([0]), torch.tensor([[12, 12, int(kept[0])]]))
    column = int(np.flatnonzero(np.sort(kept) == kept[0])[0])
    torch.testing.assert_close(scores[0], model.coefficients_[[column, column + 5]].sum(0))


def test_single_and_double_precision_agree(monkeypatch):
    log = log_of(2, users=60)
    parts = Split(log, log.take([]), log.take([]))
    exact = Ridge(CONFIGS[1]).fit(parts).coefficients_
    monkeypatch.setattr(ridge, "EXACT_COLUMNS", 0)
    torch.testing.assert_close(Ridge(CONFIGS[1]).fit(parts).coefficients_, exact, atol=1e-5, rtol=0)


def test_follows_the_order_in_which_items_are_taken():
    """Everybody takes the items of a circle in order, from a start of their own: after item i comes
    i + 1, and a history of three items says so though all items are equally popular."""
    items = 30
    rows = [(user, (user + step) % items) for user in range(60) for step in range(15)]
    user, item = np.array(rows).T
    parts = split(from_arrays(user, item))
    model = Ranked(Ridge(RidgeConfig(l2=1.0, horizon=1))).fit(parts)
    result = evaluate(model, parts, ks=(1,))
    assert result.metrics["ndcg@1"] == 1


def test_scores_read_the_items_that_have_a_thousandth_of_the_weight():
    scales = Scales((0.5, 0.1, 1.0), 1, 1.0)
    assert [scales.reach(p, 1e-3, 50) for p in range(3)] == [10, 4, 50]  # 0.5^9 = 0.00195
    assert scales.reach(0, 1e-3, 5) == 5


@pytest.mark.parametrize(
    "setting",
    [{"decays": ()}, {"decays": (1.1,)}, {"decays": (0.9, 0.9)}, {"l2": 0}, {"horizon": 0}],
)
def test_impossible_settings(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        RidgeConfig(**setting)


def test_too_little_regularisation_is_said():
    log = from_arrays(np.repeat(np.arange(9), 3), [0, 1, 2] * 9)
    parts = Split(log, log.take([]), log.take([]))
    with pytest.raises(ConfigError, match=r"no solution \(set a larger l2"):
        Ridge(RidgeConfig(l2=1e-30)).fit(parts)
