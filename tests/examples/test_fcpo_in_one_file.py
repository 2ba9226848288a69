"""The paper's algorithm in one file: it learns the toy market, and its parts are the library's."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import fcpo_in_one_file as one
from fairhorizon.fcpo.dual import solve_dual

LIMITED = one.Args(rounds=24)
UNLIMITED = one.Args(rounds=12, alpha_prime=1.0)


def served(args: one.Args) -> tuple[float, float]:
    """Mean reward and cost of a trajectory of the trained policy, by answers it has not seen."""
    learner = one.train(args, log=lambda _: None)
    runs = [
        one.rollout(args, learner.market, learner.actor, torch.Generator().manual_seed(seed))
        for seed in range(100, 105)
    ]
    rewards, costs = (
        torch.stack([getattr(run, name) for run in runs]).sum(1).mean().item()
        for name in ("rewards", "costs")
    )
    return rewards, costs


@pytest.mark.slow
def test_it_keeps_the_limit_and_learns_what_each_user_likes() -> None:
    reward, cost = served(LIMITED)
    assert one.cost_limit(LIMITED) == pytest.approx(6.0)  # 30 % of 10 lists of 2
    assert 5.0 < cost <= 6.0
    # 20 showings, 6 popular ones liked with 0.8, 14 of the user's own taste with 0.5.
    assert one.best_reward(LIMITED) == pytest.approx(11.8)
    # With one list for everybody, the 14 are of the taste that half of the users have, and liked
    # with (0.5 + 0.05) / 2.
    assert reward > 0.8 * 11.8 > 6 * 0.8 + 14 * 0.275


@pytest.mark.slow
def test_without_a_limit_popular_items_take_over() -> None:
    reward, cost = served(UNLIMITED)
    assert one.best_reward(UNLIMITED) == pytest.approx(16.0)
    assert cost > 14.0  # of 20, where the limited policy may have 6
    assert reward > 0.8 * 16.0


def test_groups_are_made_anew_of_what_was_shown_most() -> None:
    market = one.Market(one.Args())
    before = market.exposure.clone()
    assert market.sensitive.nonzero().flatten().tolist() == [0, 1, 2, 3]
    # 1,000 more showings of items 7 and 9 than of any other.
    lists = torch.tensor([[7, 9]]).expand(1000, 1, 2)
    market.relabel(lists)
    added = market.exposure - before
    assert added.nonzero().flatten().tolist() == [7, 9]
    assert added.max() == 1000
    popular = market.sensitive.nonzero().flatten().tolist()
    assert len(popular) == 4
    assert {7, 9} < set(popular)
    assert set(popular) - {7, 9} < {0, 1, 2, 3}


@pytest.mark.slow
def test_under_moving_groups_a_policy_has_to_go_on_learning() -> None:
    """Limit 30 %, by the labels of the moment, in the later half of 24 trajectories."""
    limited = one.train(one.Args(rounds=24, serving=24), log=lambda _: None)
    (fixed, _), (moving, _) = (one.serve(copy.deepcopy(limited), learn) for learn in (False, True))
    assert fixed[0] <= 0.3  # the first labels are those that it was trained with
    assert fixed[12:].mean() > 0.42
    assert 0.27 < moving[12:].mean() < 0.38


def test_the_dual_is_that_of_the_library() -> None:
    rng, cases = np.random.default_rng(0), set()
    for _ in range(500):
        g, b = rng.normal(size=(2, 3))
        q, r, s = float(g @ g), float(g @ b), float(b @ b)
        c, delta = float(rng.normal()), float(rng.uniform(0.01, 1))
        case, w_g, w_b = one.dual(q, r, s, c, delta)
        exact = solve_dual(q, r, s, c, delta)
        cases.add(exact.case)
        assert case == exact.case.value or {case, exact.case.value} == {"inactive", "inside"}
        assert (w_g, w_b) == pytest.approx((exact.reward_weight, exact.cost_weights[0]))
    assert len(cases) == 4


def test_conjugate_gradients_solve_a_linear_system() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(6, 6))
    matrix, b = factor @ factor.T + np.eye(6), rng.normal(size=6)
    H = torch.tensor(matrix)
    found = one.conjugate_gradient(lambda v: H @ v, torch.tensor(b), iterations=12)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(matrix, b), rtol=1e-6)


def test_advantages_by_hand() -> None:
    """Two users, two steps, gamma 0.5, lambda 1: the discounted return less the value."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    values = torch.tensor([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    found = one.advantages(x, values, gamma=0.5, lam=1.0)
    # Returns are 2 and 0, then 2 and 0. Centred: +-1; the second step is discounted by 0.5.
    torch.testing.assert_close(found, torch.tensor([[1.0, -1.0], [0.5, -0.5]]))


def test_no_list_has_an_item_twice_and_a_liked_item_enters_the_queue() -> None:
    args = one.Args(users=40, horizon=3)
    market = one.Market(args)
    actor = one.Actor(args, market.item_embeddings)
    W = torch.randn(40, 2, 6, generator=torch.Generator().manual_seed(0))
    lists = actor.choose(W[:, [0, 0]].flatten(1))  # both rows ask for the same item
    assert (lists[:, 0] != lists[:, 1]).all()
    t = one.rollout(args, market, actor, torch.Generator().manual_seed(1))
    pushed = (t.histories[1] != t.histories[0]).any(1)
    assert (t.rewards[0][~pushed] == 0).all()
    assert (t.histories[1][t.rewards[0] == 1, :-1] == t.histories[0][t.rewards[0] == 1, 1:]).all()


def test_it_is_short_and_needs_torch_and_numpy_alone() -> None:
    text = Path(one.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 360
    assert "fairhorizon" not in text.lower()
