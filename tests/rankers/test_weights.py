"""Rankers that use weights: by hand, without weights as before, and nearer to a known truth."""

import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from fairhorizon.data.example_logs import sessions, shop
from fairhorizon.data.frames import from_frame
from fairhorizon.data.interactions import Interactions, WeightsIgnoredWarning
from fairhorizon.data.splits import Split, split
from fairhorizon.histories import UserItems, strengths, strengths_by_user
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.als import least_squares
from fairhorizon.rankers.ease import co_counts
from fairhorizon.rankers.ridge import LagCounts, Scales

FRAME = pl.DataFrame(
    [
        *(("a", 0, 1, 0), ("b", 1, 3, 1), ("a", 1, 1, 2)),
        *(("b", 2, 2, 3), ("a", 2, 1, 4), ("b", 0, 9, 5)),
    ],
    schema=["user", "item", "quantity", "time"],
    orient="row",
)
WEIGHTED = (
    *("popularity", "itemknn", "itemknn:recent", "ease", "ease:recent"),
    *("ridge", "als", "stack"),
)


def log_of(frame: pl.DataFrame = FRAME, weight: str | None = "quantity") -> Interactions:
    return from_frame(frame, timestamp="time", weight=weight)


def whole(log: Interactions) -> Split:
    return Split(log, log.take([]), log.take([]))


def test_strengths_are_damped_free_of_units_and_one_on_average() -> None:
    found = strengths(log_of())
    assert found is not None
    raw = np.log1p(np.array([1, 3, 1, 2, 1, 9]) / 1.5)
    np.testing.assert_allclose(found.numpy(), raw / raw.mean())
    dozens = strengths(log_of(FRAME.with_columns(pl.col("quantity") / 12)))
    assert dozens is not None
    torch.testing.assert_close(dozens, found)
    assert strengths(log_of(weight=None)) is None
    by_user = strengths_by_user(log_of())
    assert by_user is not None
    torch.testing.assert_close(by_user, found[[0, 2, 4, 1, 3, 5]])


def test_who_uses_weights() -> None:
    assert {name for name, kind in RANKERS.items() if kind.uses_weights} == set(WEIGHTED)
    with pytest.warns(WeightsIgnoredWarning, match="bpr does not use weights: every interaction"):
        RANKERS["bpr"](RANKERS["bpr"].config_class(max_epochs=1)).fit(split(log_of()))


@pytest.mark.parametrize("half_life", [None, 2.0])
def test_ease_counts_products_of_strengths(half_life: float | None) -> None:
    log = log_of()
    histories, given = UserItems.from_log(log), strengths_by_user(log)
    assert given is not None
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for start in (0, 3):
        for i in range(start, start + 3):
            for j in range(start, start + 3):
                near = 1.0 if half_life is None else 2 ** (-abs(i - j) / half_life)
                expected[histories.items[i], histories.items[j]] += near * given[i] * given[j]
    found = co_counts(histories, half_life, 3, given)
    torch.testing.assert_close(found, expected.float())


def test_als_solves_the_weighted_problem() -> None:
    """Against a dense solve of sum c (t - u.v)^2 + l2 |u|^2 with c = 1 + alpha x."""
    vectors = torch.randn(3, 2, generator=torch.Generator().manual_seed(1))
    log, alpha, l2 = log_of(), 0.7, 0.3
    given = strengths_by_user(log)
    assert given is not None
    histories = UserItems.from_log(log)
    found = least_squares(histories, vectors, alpha, l2, given.float())
    for user in range(2):
        here = slice(*histories.indptr[user : user + 2].tolist())
        confidence = torch.ones(3)
        confidence[histories.items[here]] += alpha * given[here].float()
        left = vectors.T @ (confidence[:, None] * vectors) + l2 * torch.eye(2)
        taken = torch.zeros(3)
        taken[histories.items[here]] = 1
        right = vectors.T @ (confidence * taken)
        torch.testing.assert_close(found[user], torch.linalg.solve(left, right))


def test_ridge_weighs_what_comes_next() -> None:
    log = log_of()
    given, histories = strengths_by_user(log), UserItems.from_log(log)
    assert given is not None
    scales = Scales((0.8, 1.0), horizon=2, future=0.5)
    features = torch.arange(3)
    found = LagCounts.from_histories(histories, scales, features, torch.float64, given)
    target = torch.zeros(6, 3, dtype=torch.float64)
    following = torch.zeros(3, dtype=torch.float64)
    for start in (0, 3):
        items, strong = histories.items[start : start + 3], given[start : start + 3]
        for t in (1, 2):
            state = found.state(items[:t])
            for h in range(min(2, 3 - t)):
                target[:, items[t + h]] += 0.5**h * strong[t + h] * state
                following[items[t + h]] += 0.5**h * strong[t + h]
    torch.testing.assert_close(found.target, target)
    torch.testing.assert_close(found.following, following)
    plain = LagCounts.from_histories(histories, scales, features, torch.float64)
    torch.testing.assert_close(found.gram, plain.gram)


@pytest.mark.parametrize("name", WEIGHTED[:-1])
def test_equal_weights_change_nothing(name: str) -> None:
    frame = shop(30, 25, 12, seed=2).frame.unique(["customer", "sku"], maintain_order=True)
    frame = frame.with_columns(quantity=pl.lit(4))
    columns = {"user": "customer", "item": "sku", "timestamp": "ordered"}
    kind = RANKERS[name]
    tensors = [
        kind(kind.config_class(), seed=1)
        .fit(split(from_frame(frame, weight=weight, **columns), ties="keep"))  # type: ignore[arg-type]
        .tensors()
        for weight in (None, "quantity")
    ]
    for key, values in tensors[0].items():
        torch.testing.assert_close(tensors[1][key], values, rtol=1e-4, atol=1e-5)


def true_share(log: Interactions, liked: np.ndarray, name: str, k: int, **settings: Any) -> float:
    """How much users truly like, on average, what they have not had yet and are shown."""
    parts, kind = split(log), RANKERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker = kind(kind.config_class(**settings)).fit(parts)
    known, users = UserItems.from_log(parts.train, parts.validation), torch.arange(log.n_users)
    scores = ranker.scores(users, known.last(max(1, ranker.queue_length)))
    lists = scores.masked_fill(known.mask(users), -math.inf).topk(k).indices.numpy()
    rows, columns = (
        np.array([int(one[1:]) for one in ids.tolist()]) for ids in (log.user_ids, log.item_ids)
    )
    return float(np.take_along_axis(liked[np.ix_(rows, columns)], lists, axis=1).mean())


ALL_ALIKE: dict[str, Any] = {"half_life": None}


@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.RepeatsWarning")
@pytest.mark.parametrize(
    ("name", "settings", "margin"),
    [
        ("itemknn:recent", ALL_ALIKE, 0.05),
        ("ease:recent", {"half_life": None, "training_half_life": None}, 0.045),
        ("ridge", {}, 0.01),
    ],
)
def test_quantities_that_carry_the_truth_are_worth_using(
    name: str, settings: dict[str, Any], margin: float
) -> None:
    market = shop(seed=0)
    columns = {"user": "customer", "item": "sku", "timestamp": "ordered"}
    plain, weighted = (
        true_share(from_frame(market.frame, weight=weight, **columns), market.wanted, name, 10, **settings)  # type: ignore[arg-type] # noqa: E501
        for weight in (None, "quantity")
    )  # fmt: skip
    assert weighted > plain + margin


@pytest.mark.parametrize("name", ["itemknn:recent", "ease:recent", "als"])
def test_time_spent_tells_what_a_session_is_about(name: str) -> None:
    log = sessions(seed=0)
    about = (log.topic_of_session[:, None] == log.topic).astype(float)
    settings = {"dim": 8} if name == "als" else ALL_ALIKE
    columns = {"user": "session", "item": "article", "timestamp": "time"}
    plain, weighted = (
        true_share(from_frame(log.frame, weight=weight, **columns), about, name, 5, **settings)  # type: ignore[arg-type]
        for weight in (None, "seconds")
    )
    assert weighted > plain + 0.02
