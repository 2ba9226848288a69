"""Where feedback begins that rankers have not seen, and the weights it gives them."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.fcpo.training import where_unseen_begins
from fairhorizon.histories import UserItems
from fairhorizon.rankers.candidates import RIDGE, ScoredCandidates
from fairhorizon.rankers.candidates import weights_by_cross_entropy as weights_of


def logs_of(*lengths: int) -> Split:
    """A split with so many training items of each user, all in time order."""
    users = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.arange(length) for length in lengths])
    times = np.arange(len(users))
    log = from_arrays(users, items, timestamps=times)
    nothing = log.take(np.zeros(len(log), dtype=bool))
    return Split(log, nothing, nothing)


def test_the_last_fifth_is_unseen_by_hand():
    lengths = (1, 2, 4, 5, 9, 10, 11)
    begins = where_unseen_begins(UserItems.from_log(logs_of(*lengths).train))
    assert begins.tolist() == [1, 1, 3, 4, 8, 8, 9]
    without_first_user = UserItems(torch.tensor([0, 0, 3]), torch.tensor([1, 0, 2]), 3)
    assert where_unseen_begins(without_first_user).tolist() == [0, 2]


def test_the_earlier_part_by_hand():
    parts = earlier_part(logs_of(1, 2, 4, 5, 11))
    assert parts.train.user_counts().tolist() == [0, 1, 3, 3, 8]
    assert parts.validation.user_counts().tolist() == [1, 1, 1, 1, 1]
    assert parts.test.user_counts().tolist() == [0, 0, 0, 1, 2]
    assert parts.test.items[parts.test.users == 4].tolist() == [9, 10]
    assert parts.train.n_items == 11  # the catalogue stays


def test_what_is_unseen_is_the_test_part_of_the_earlier_log(market: Split):
    log = UserItems.from_log(market.train)
    _, unseen = log.cut(where_unseen_begins(log))
    early = earlier_part(market)
    expected = split(market.train)  # the same rule as for the whole log
    for name in ("train", "validation", "test"):
        ours, theirs = getattr(early, name), getattr(expected, name)
        assert ours.fingerprint() == theirs.fingerprint(), name
    held_out = UserItems.from_log(early.test)
    for user in range(log.n_users):
        theirs = held_out.items[held_out.indptr[user] : held_out.indptr[user + 1]].tolist()
        ours = unseen.items[unseen.indptr[user] : unseen.indptr[user + 1]].tolist()
        assert ours == theirs if theirs else len(ours) == 1
    # no ranker of the warm start was fitted on any of it
    fitted_on = set(zip(early.train.users.tolist(), early.train.items.tolist(), strict=True))
    counts = unseen.indptr.diff()
    users = torch.arange(log.n_users).repeat_interleave(counts)
    assert not fitted_on & set(zip(users.tolist(), unseen.items.tolist(), strict=True))


def random_candidates(
    seed: int, *, users: int = 40, items: int = 12, features: int = 3
) -> tuple[ScoredCandidates, torch.Tensor]:
    """Users follow the first feature, the second a little, the third not at all."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(users, items, features + 1))
    values[..., -1] = -1.0 * (rng.random((users, items)) < 0.3)  # the group
    codes = np.where(rng.random((users, items)) < 0.2, -1, np.arange(items))
    pull = 1.5 * values[..., 0] + 0.4 * values[..., 1] + rng.gumbel(size=codes.shape)
    pull[codes < 0] = -np.inf
    rank = np.argsort(np.argsort(-pull, axis=1), axis=1)
    liked = rank < rng.integers(1, 4, users)[:, None]
    liked[:5] = False  # some like nothing
    candidate_set = ScoredCandidates(torch.from_numpy(codes), torch.from_numpy(values).float())
    return candidate_set, torch.from_numpy(liked)


def by_newton(candidate_set: ScoredCandidates, liked: torch.Tensor) -> NDArray[np.float64]:
    """The minimum of the mean cross-entropy + RIDGE |w|², user by user in double precision."""
    values = candidate_set.features[..., :-1].double().numpy()
    w = np.zeros(values.shape[2])
    rows = [u for u in range(len(values)) if liked[u].any()]
    for _ in range(30):
        gradient, hessian = 2 * RIDGE * w, 2 * RIDGE * np.eye(len(w))
        for u in rows:
            x = values[u][(candidate_set.items[u] >= 0).numpy()]
            target = liked[u][candidate_set.items[u] >= 0].double().numpy()
            p = np.exp(x @ w - (x @ w).max())
            p /= p.sum()
            mean = p @ x
            gradient = gradient - (target @ x / target.sum() - mean) / len(rows)
            hessian = hessian + ((x * p[:, None]).T @ x - np.outer(mean, mean)) / len(rows)
        w = w - np.linalg.solve(hessian, gradient)
    assert np.abs(gradient).max() < 1e-12
    return w


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_weights_are_those_of_newton(seed: int):
    candidate_set, liked = random_candidates(seed)
    weights = weights_of(candidate_set, liked)
    assert weights == pytest.approx(
        by_newton(candidate_set, liked), abs=1e-3
    )  # of weights around 1
    assert len(weights) == 3  # none for the group
    assert weights[0] > 1
    assert max(weights[1:]) < 1


def test_equal_users_count_alike_however_much_they_like():
    """One user's two likes and another's one pull with the same strength."""
    features = torch.zeros(2, 3, 2)
    features[0, :2, 0] = 1.0  # the first likes what has the feature, both of them
    features[1, 0, 0] = 1.0  # the second what does not have it
    candidate_set = ScoredCandidates(torch.arange(3).repeat(2, 1), features)
    liked = torch.tensor([[True, True, False], [False, True, False]])
    (weight,) = weights_of(candidate_set, liked)
    # the gradients cancel where 1 - 2 e^w / (2 e^w + 1) = e^w / (e^w + 2), so e^2w = 1
    assert weight == pytest.approx(0, abs=1e-4)


def test_without_feedback_all_count_the_same():
    candidate_set, liked = random_candidates(3)
    assert weights_of(candidate_set, torch.zeros_like(liked)) == (1.0, 1.0, 1.0)
