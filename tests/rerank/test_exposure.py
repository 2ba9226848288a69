"""Fairness of Exposure against the paper's linear program, solved by HiGHS."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron, vstack

from fairhorizon.errors import ConfigError
from fairhorizon.rerank.exposure import (
    ExposureFairness,
    attention,
    exposure,
    merits,
    solve_exposure,
)

CONSTRAINTS = ("parity", "treatment", "impact", "share")


def linear_program(u, f, c, at_most):
    """max u^T P v over doubly stochastic P with f^T P v = c (<= c); None if there is no such P."""
    n = len(u)
    v = 1 / np.log2(1 + np.arange(1, n + 1))
    ones, identity = csr_array(np.ones((1, n))), eye_array(n)
    sums = vstack([kron(identity, ones), kron(ones, identity)])
    row = csr_array(np.outer(f, v).reshape(1, -1))
    if at_most:
        given = {"A_eq": sums, "b_eq": np.ones(2 * n), "A_ub": row, "b_ub": [c]}
    else:
        given = {"A_eq": vstack([sums, row]), "b_eq": np.append(np.ones(2 * n), c)}
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solution = linprog(-np.outer(u, v).ravel(), method="highs", options=tolerances, **given)
    assert solution.status in (0, 2)  # optimal or infeasible
    return None if solution.status == 2 else -solution.fun


def papers_f(constraint, target, u, group):
    """f of f^T P v = 0 as the paper writes it (sections 4.1 to 4.3), and of a target share."""
    if constraint == "share":
        return group - target
    if group.all() or not group.any():
        return np.zeros(len(u))
    of0, of1 = group / group.sum(), ~group / (~group).sum()
    if constraint == "parity":
        return of0 - of1
    merit = (u - u.min()) / (u.max() - u.min()) if u.max() > u.min() else np.ones(len(u))
    means = merit @ of0, merit @ of1
    if constraint == "treatment":  # times the product of the means, which may be 0
        return of0 * means[1] - of1 * means[0]
    return (of0 * means[1] - of1 * means[0]) * merit


def random_problem(rng, n):
    """Scores with or without ties; a group of some, none or all of the candidates."""
    scores = rng.integers(0, 4, n) if rng.random() < 0.4 else rng.normal(size=n)
    group = rng.random(n) < rng.choice([0.0, 0.2, 0.5, 0.8, 1.0], p=[0.05, 0.3, 0.3, 0.3, 0.05])
    return scores.astype(np.float32).astype(np.float64), group


def solved(reranker, scores, group):
    """The re-ranker's problem and mixture for one user or several."""
    problem = reranker.problem(torch.as_tensor(scores).reshape(-1, len(group)), group)
    at_most = reranker.form == "at-most"
    return problem, solve_exposure(problem.u, problem.f, problem.c, at_most=at_most)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["equal", "at-most"])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_sort_is_the_linear_program(constraint, form):
    """50 problems of each of the eight kinds, 400 in all."""
    rng = np.random.default_rng([CONSTRAINTS.index(constraint), form == "equal"])
    infeasible = 0
    for n in [*rng.integers(1, 15, 48), 20, 30]:
        scores, group = random_problem(rng, n)
        target = float(np.clip(group.mean() + rng.uniform(-0.15, 0.15), 0, 1))
        reranker = ExposureFairness(candidates=0, constraint=constraint, target=target, form=form)
        problem, mixture = solved(reranker, scores, torch.tensor(group))
        f = papers_f(constraint, target, scores, group)
        best = linear_program(scores, f, 0.0, form == "at-most")
        assert bool(mixture.feasible) == (best is not None)
        x = mixture.expected_exposure(problem.u, problem.f)[0].numpy()
        assert x.sum() == pytest.approx(attention(n).sum().item(), rel=1e-12)
        assert scores @ x == pytest.approx(mixture.objective.item(), rel=1e-12, abs=1e-12)
        assert problem.f[0].numpy() @ x == pytest.approx(mixture.constraint.item(), abs=1e-12)
        if best is None:
            infeasible += 1
            continue
        assert scores @ x == pytest.approx(best, rel=1e-8)
        assert f @ x <= 1e-12
        assert form == "at-most" or f @ x >= -1e-12
    assert infeasible < 25
    assert infeasible or constraint in ("parity", "impact") or form == "at-most"


@pytest.mark.parametrize("at_most", [False, True])
def test_any_f_and_any_bound(at_most):
    """Many-valued f with ties of its own, and bounds inside and out of reach."""
    rng = np.random.default_rng(7)
    feasible = 0
    for trial in range(60):
        n = int(rng.integers(1, 11))
        u, _ = random_problem(rng, n)
        f = rng.normal(size=n) if trial % 2 else rng.integers(-2, 3, n).astype(float)
        c = float(np.float32(rng.normal()))
        problem = torch.tensor(u)[None], torch.tensor(f)[None], torch.tensor([c]).double()
        mixture = solve_exposure(*problem, at_most=at_most)
        best = linear_program(u, f, c, at_most)
        assert bool(mixture.feasible) == (best is not None)
        if best is None:
            extremes = np.sort(f), np.sort(f)[::-1]
            reach = [float(order @ attention(n).numpy()) for order in extremes]
            nearest = min(reach, key=lambda value: abs(value - c))
            assert mixture.constraint.item() == pytest.approx(nearest, abs=1e-12)
        else:
            feasible += 1
            assert mixture.objective.item() == pytest.approx(best, rel=1e-8)
            missed = mixture.constraint.item() - c
            assert missed <= 1e-12
            assert at_most or missed >= -1e-12
    assert 15 <= feasible < 60


def test_two_candidates_by_hand():
    """v = 1, 1/log2(3). Parity of one item each is a fair coin; the utility is the mean."""
    scores, group = torch.tensor([[3.0, 1.0]]), torch.tensor([True, False])
    _, mixture = solved(ExposureFairness(), scores, group)
    v2 = 1 / math.log2(3)
    assert mixture.weight.item() == pytest.approx(0.5)
    assert mixture.objective.item() == pytest.approx(4 * (1 + v2) / 2)
    reranker = ExposureFairness(constraint="share", target=0.6, form="at-most")
    _, mixture = solved(reranker, scores, group)
    # w + (1 - w) v2 = 0.6 (1 + v2)
    assert mixture.weight.item() == pytest.approx((0.6 * (1 + v2) - v2) / (1 - v2))
    reranker = ExposureFairness(constraint="share", target=0.62, form="at-most")
    _, mixture = solved(reranker, scores, group)  # 1 / (1 + v2) = 0.613 is below anyway
    assert (mixture.low.item(), mixture.high.item()) == (0, 0)


def test_merit_by_hand():
    scores = torch.tensor([[4.0, 2.0, 3.0, -torch.inf], [5.0, 5.0, -torch.inf, -torch.inf]])
    assert merits(scores.double()).tolist() == [[1, 0, 0.5, 0], [1, 1, 0, 0]]


def many_users(seed=0, users=40, n=30):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(users, n, generator=generator).round(decimals=1)  # with ties
    return scores, torch.rand(n, generator=generator) < 0.4


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_handicap_makes_the_drawn_ranking(constraint):
    """Sorted by score less handicap, equals by item: the ranking whose exposure was counted."""
    scores, group = many_users()
    scores[torch.rand(scores.shape, generator=torch.Generator().manual_seed(9)) < 0.2] = -torch.inf
    reranker = ExposureFairness(candidates=20, constraint=constraint)
    scores = scores[solved(reranker, scores, group)[1].feasible]
    assert len(scores) >= 15
    problem, mixture = solved(reranker, scores, group)
    handicap = reranker.handicap(scores, group, torch.Generator().manual_seed(5))
    drawn = mixture.draw(torch.Generator().manual_seed(5))
    assert 0 < (drawn == mixture.low).sum() < len(drawn)
    x = torch.zeros(scores.shape, dtype=torch.float64)
    x.scatter_(1, problem.items, exposure(problem.u, problem.f, drawn))
    ranking = (scores - handicap).sort(dim=1, descending=True, stable=True).indices[:, :20]
    shown = problem.u.isfinite().sum(1)
    for user, items in enumerate(ranking):
        expected = attention(20)[: shown[user]]
        assert torch.equal(x[user, items[: shown[user]]], expected)
        assert x[user].sum() == pytest.approx(expected.sum())


def test_drawn_rankings_have_the_expected_exposure():
    """Within five standard errors for every item, over 4,000 draws for each of six users."""
    scores, group = many_users(users=6, n=12)
    reranker = ExposureFairness(candidates=0)
    problem, mixture = solved(reranker, scores, group)
    repeats = 4000
    generator = torch.Generator().manual_seed(1)
    many = scores.repeat(repeats, 1)
    adjusted = many - reranker.handicap(many, group, generator)
    order = adjusted.sort(dim=1, descending=True, stable=True).indices
    x = torch.zeros(adjusted.shape, dtype=torch.float64).scatter(
        1, order, attention(12).expand(adjusted.shape)
    )
    x = x.reshape(repeats, *scores.shape)
    error = 5 * x.std(0) / math.sqrt(repeats) + 1e-12
    expected = mixture.expected_exposure(problem.u, problem.f)
    assert bool(((x.mean(0) - expected).abs() <= error).all())
    total = reranker.expected_exposure(scores, group)
    assert torch.allclose(total, expected.sum(0), rtol=1e-12)
    assert total[group].mean().item() == pytest.approx(total[~group].mean().item())  # parity


def test_a_batch_is_its_users_one_by_one():
    scores, group = many_users()
    reranker = ExposureFairness(candidates=25, constraint="share", target=0.3)
    _, together = solved(reranker, scores, group)
    for user, row in enumerate(scores):
        _, alone = solved(reranker, row, group)
        assert alone.low.item() == together.low[user].item()
        assert alone.high.item() == together.high[user].item()
        assert alone.weight.item() == pytest.approx(together.weight[user].item(), rel=1e-9)


@pytest.mark.parametrize("constraint", ["parity", "share", "treatment"])
def test_shift_and_scale_of_the_scores_change_nothing(constraint):
    """Merit is shifted and scaled away too."""
    scores, group = many_users()
    reranker = ExposureFairness(candidates=0, constraint=constraint)
    exposures = [
        reranker.expected_exposure(variant, group)
        for variant in (scores.double(), scores.double() * 8 + 4096)
    ]
    assert torch.allclose(*exposures, rtol=1e-9)


def test_renaming_items_renames_their_exposure():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(20, 30, generator=generator)
    group = torch.rand(30, generator=generator) < 0.4
    new = torch.randperm(30, generator=generator)
    reranker = ExposureFairness(candidates=15)
    renamed = reranker.expected_exposure(scores[:, new], group[new])
    assert torch.allclose(renamed, reranker.expected_exposure(scores, group)[new], rtol=1e-9)


def test_fewer_candidates_than_asked_for_are_all_there_is():
    """Items that may not be shown are as good as not in the catalogue."""
    scores, group = many_users(n=12)
    blocked = torch.cat([scores, torch.full((40, 8), -torch.inf)], dim=1)
    more = torch.cat([group, torch.ones(8, dtype=torch.bool)])
    for constraint in CONSTRAINTS:
        reranker = ExposureFairness(candidates=15, constraint=constraint)
        _, mixture = solved(reranker, blocked, more)
        _, expected = solved(reranker, scores, group)
        assert torch.allclose(mixture.objective, expected.objective, rtol=1e-12)
        assert torch.allclose(mixture.low, expected.low, rtol=1e-9)
        assert bool((reranker.expected_exposure(blocked, more)[12:] == 0).all())


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_user_without_candidates_gets_nothing(constraint):
    scores = torch.tensor([[-torch.inf, -torch.inf], [1.0, 0.0]])
    group = torch.tensor([False, True])
    reranker = ExposureFairness(constraint=constraint, form="at-most", target=0.5)
    _, mixture = solved(reranker, scores, group)
    assert bool(mixture.feasible[0])
    assert mixture.objective[0] == 0
    assert reranker.problem(scores, group).c.isfinite().all()


def test_what_is_out_of_reach_is_said_and_the_nearest_is_given():
    """With one item of the group among three, its share is at least (1/2) / (1 + 0.63 + 1/2)."""
    scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, -torch.inf]])
    group = torch.tensor([True, False, False])
    reranker = ExposureFairness(candidates=3).at_level(0.2)
    with pytest.warns(UserWarning, match=r"^for 2 of 2 users no ranking of all items gives"):
        handicap = reranker.handicap(scores, group, torch.Generator())
    ranking = (scores - handicap).argsort(dim=1, descending=True)
    assert ranking[:, :2].tolist() == [[1, 2], [1, 0]]
    share = attention(3)[2] / attention(3).sum()
    reachable = ExposureFairness(candidates=3).at_level(share.item())
    _, mixture = solved(reachable, scores, group)
    assert mixture.feasible.tolist() == [True, False]
    treatment = ExposureFairness(candidates=3, constraint="treatment")  # the group has no merit
    with pytest.warns(UserWarning, match="of all items is fair by treatment"):
        treatment.handicap(scores[:1], torch.tensor([False, False, True]), torch.Generator())


def test_levels_and_limits():
    group = torch.tensor([True, False, False, False])
    reranker = ExposureFairness(candidates=7)
    assert reranker.share_limit(group) == 0.25
    level = reranker.at_level(0.3)
    assert level == ExposureFairness(candidates=7, constraint="share", target=0.3, form="at-most")
    assert level.share_limit(group) == 0.3
    assert reranker.allowance(7) == 7
    with pytest.raises(ConfigError, match="a list of 8 cannot be made of 7 candidates"):
        reranker.allowance(8)
    assert ExposureFairness(candidates=0).allowance(8) == 8


def test_the_group_gets_less_as_the_level_falls():
    scores, group = many_users()
    shares = []
    for level in (0.9, 0.5, 0.45, 0.4, 0.35):
        x = ExposureFairness(candidates=0).at_level(level).expected_exposure(scores, group)
        shares.append(float(x[group].sum() / x.sum()))
        assert shares[-1] <= level + 1e-12
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.35)  # it binds for everyone
