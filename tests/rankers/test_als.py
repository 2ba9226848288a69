"""ALS against normal equations solved one by one and against the package implicit."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.histories import UserItems
from fairhorizon.rankers import als
from fairhorizon.rankers.als import Als, AlsConfig, least_squares

Matrix = NDArray[np.float64]


def matrix(log: Interactions) -> Matrix:
    taken = np.zeros((log.n_users, log.n_items))
    taken[log.users, log.items] = 1
    return taken


def objective(taken: Matrix, users: Matrix, items: Matrix, alpha: float, l2: float) -> float:
    """sum (1 + alpha t) (t - u.v)^2 + l2 (|U|^2 + |V|^2)."""
    error = (1 + alpha * taken) * (taken - users @ items.T) ** 2
    return float(error.sum() + l2 * ((users**2).sum() + (items**2).sum()))


@pytest.mark.parametrize("cells", [1, 500, 2**20])
def test_a_half_step_solves_every_users_normal_equations(
    market: Split, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(als, "CELLS", cells)
    log = market.train.take(market.train.users != 17)  # a user without items
    alpha, l2, dim = 2.5, 0.3, 6
    vectors = torch.randn(log.n_items, dim, generator=torch.Generator().manual_seed(0))
    solved = least_squares(UserItems.from_log(log), vectors, alpha, l2)
    v = vectors.double().numpy()
    for user, taken in enumerate(matrix(log)):
        confidence = np.diag(1 + alpha * taken)
        left = v.T @ confidence @ v + l2 * np.eye(dim)
        expected = np.linalg.solve(left, v.T @ confidence @ taken)
        np.testing.assert_allclose(solved[user], expected, atol=1e-5)
    assert not solved[17].any()


def test_the_objective_falls_and_is_no_worse_than_implicits() -> None:
    from implicit.cpu.als import AlternatingLeastSquares  # slow to import

    parts = split(synthetic(150, 100, 25, seed=4).interactions)
    taken = matrix(parts.train)
    alpha, l2, dim, epochs = 3.0, 1.5, 5, 30
    own = UserItems.from_log(parts.train)
    values = []
    for number in range(1, epochs + 1):
        config = AlsConfig(dim=dim, alpha=alpha, l2=l2, max_epochs=number, patience=epochs)
        if number in (1, 2, 4, 8, epochs):
            items = fitted_without_stopping(config, parts)
            users = least_squares(own, items, alpha, l2)
            values.append(objective(taken, users.numpy(), items.numpy(), alpha, l2))
    assert values == sorted(values, reverse=True)

    with threadpool_limits(1):  # it warns of more
        peer = AlternatingLeastSquares(
            factors=dim,
            regularization=l2,
            alpha=1 + alpha,  # what it calls alpha is the whole confidence of what was taken
            iterations=epochs,
            use_cg=False,
            num_threads=1,
            random_state=0,
            dtype=np.float64,
        )
        peer.fit(csr_matrix(taken), show_progress=False)
    theirs = objective(taken, peer.user_factors, peer.item_factors, alpha, l2)
    assert values[-1] <= theirs * 1.01  # both end in local minima


def fitted_without_stopping(config: AlsConfig, parts: Split) -> torch.Tensor:
    """Item vectors after the last epoch, without early stopping."""
    model = Als(config, seed=1)
    last = {}
    model.fit(parts, on_epoch=lambda *_: last.update(items=model.item_vectors_.clone()))
    return last["items"]


def test_a_user_is_solved_from_the_items_the_user_has_by_then(market: Split) -> None:
    model = Als(AlsConfig(dim=4, max_epochs=2)).fit(market)
    pad = market.train.n_items
    queue = torch.tensor([[pad, 3, 9], [pad, pad, pad], [3, 9, 40]])
    scores = model.scores(torch.tensor([0, 1, 2]), queue)
    assert not scores[1].any()
    alone = model.scores(torch.tensor([5]), queue[:1, 1:])[0]  # another user of the same history
    torch.testing.assert_close(alone, scores[0])
    assert (scores[2] - scores[0]).abs().max() > 1e-3


def test_finds_two_worlds() -> None:
    """Even users take even items, odd users odd ones, eight of twenty each."""
    rng = np.random.default_rng(2)
    rows = [
        (user, 2 * item + user % 2)
        for user in range(60)
        for item in rng.choice(20, 8, replace=False)
    ]
    users, items = np.array(rows).T
    parts = split(from_arrays(users, items))
    model = Als(AlsConfig(dim=2, l2=1.0)).fit(parts)
    queue = UserItems.from_log(parts.train).last(model.queue_length)
    scores = model.scores(torch.arange(60), queue)
    own = torch.arange(60)[:, None] % 2 == torch.arange(40) % 2
    assert scores[own].mean() > 0.2
    assert scores[~own].abs().max() < 0.02
