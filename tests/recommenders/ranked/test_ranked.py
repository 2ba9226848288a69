"""A ranker behind a re-ranker: the same lists however they are handed out, stored and cut."""

import numpy as np
import pytest
import torch

from fairhorizon import ranking
from fairhorizon.errors import ConfigError
from fairhorizon.rankers.popularity import Popularity, PopularityConfig
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.exposure import ExposureFairness, attention, exposure, solve_exposure
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.quota import Quota
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

RERANKERS = [
    None,
    Quota(share=0.4),
    Penalty(weight=0.7),
    ExposureFairness(candidates=40),
    ExposureFairness(candidates=0, constraint="impact"),
    ExposureFairness(candidates=60).at_level(0.4),
]


class Coarse(Ranker[PopularityConfig]):
    """Personal scores in steps of a half: most of them are shared by several items."""

    method = "coarse"
    config_class = PopularityConfig

    def _learn(self, split, on_epoch):  # noqa: ARG002
        generator = torch.Generator().manual_seed(self.seed)
        counts = torch.tensor(split.train.item_counts())
        tastes = torch.randn(split.train.n_users, len(counts), generator=generator)
        self.tastes_ = (2 * tastes + counts / 10).round() / 2

    def scores(self, users, queue):  # noqa: ARG002
        return self.tastes_[users]

    def tensors(self):
        return {"tastes": self.tastes_}

    def restore(self, tensors):
        self.tastes_ = tensors["tastes"]


@pytest.fixture(scope="module", params=[Popularity(), Coarse(seed=2)], ids=lambda r: r.method)
def model(request, market):
    return Ranked(request.param).fit(market)


@pytest.fixture(params=list(Protocol))
def scenario(request, market):
    return evaluation_scenario(market, 1, request.param)


def allowed_scores(model, scenario):
    state, _ = scenario.begin(torch.arange(scenario.n_users))
    return model.ranker.scores(state.users, state.queue).masked_fill(state.blocked, -torch.inf)


def name(reranker):
    if isinstance(reranker, ExposureFairness):
        return f"{reranker.constraint}-of-{reranker.candidates or 'all'}"
    return "none" if reranker is None else reranker.method


@pytest.mark.parametrize("reranker", RERANKERS, ids=name)
def test_item_by_item_is_the_list_at_once(model, scenario, reranker):
    """For rankers that take no feedback in, equal scores or not."""
    served = model.reranked(reranker)
    at_once = served.recommend(scenario, length=15)
    assert np.array_equal(served.recommend(scenario, length=15, feedback=True), at_once)
    for items in at_once:
        assert len(set(items)) == 15  # none twice, none missing
    if scenario.excluded is not None:
        history = scenario.excluded.mask(torch.arange(scenario.n_users))
        assert not history.gather(1, torch.from_numpy(at_once)).any()


@pytest.mark.parametrize("reranker", RERANKERS, ids=name)
def test_lists_do_not_depend_on_how_many_users_are_served_at_a_time(
    model, scenario, reranker, monkeypatch
):
    served = model.reranked(reranker)
    together = served.recommend(scenario, length=10)
    monkeypatch.setattr(ranking, "SCORES_AT_ONCE", 7 * len(model.sensitive_))
    assert np.array_equal(served.recommend(scenario, length=10), together)


def test_a_list_is_the_sort_by_score(model, scenario):
    lists = model.recommend(scenario, length=10)
    order = (
        allowed_scores(model, scenario).sort(dim=1, descending=True, stable=True).indices[:, :10]
    )
    assert np.array_equal(lists, order.numpy())


def test_a_quota_holds_in_every_list(model, scenario):
    lists = model.reranked(Quota(share=0.3)).recommend(scenario, length=10)
    assert int(model.sensitive_.numpy()[lists].sum(1).max()) == 3


def test_seeds_draw_other_lists_and_the_same_seed_the_same(model, scenario):
    served = model.reranked(ExposureFairness(candidates=40))
    first, again, other = (served.recommend(scenario, length=10, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_drawn_rankings_average_to_the_expected_exposure(model, scenario):
    """The squared error of a mean of 40 draws, summed over items, is their variance / 40."""
    reranker = ExposureFairness(candidates=40)
    served = model.reranked(reranker)
    expected = served.expected_exposure(scenario)
    n_items, draws = len(model.sensitive_), 40
    v = np.tile(attention(40).numpy(), scenario.n_users)
    exposures = np.empty((draws, n_items))
    for seed in range(draws):
        lists = served.recommend(scenario, length=40, seed=seed)
        exposures[seed] = np.bincount(lists.ravel() + 1, v, n_items + 1)[1:]  # 0: an empty slot
    assert np.allclose(exposures.sum(1), expected.sum(), rtol=1e-12)
    problem = reranker.problem(allowed_scores(model, scenario), model.sensitive_)
    mixture = solve_exposure(problem.u, problem.f, problem.c)
    low, high = (exposure(problem.u, problem.f, m) for m in (mixture.low, mixture.high))
    variance = (mixture.weight * (1 - mixture.weight) * (low - high).square().sum(1)).sum().item()
    error = np.square(exposures.mean(0) - expected).sum()
    assert variance / 3 < error * draws < 3 * variance


def test_the_expected_share_of_the_group_is_the_target(model, market):
    scenario = evaluation_scenario(market, 1, Protocol.PAPER)
    reranker = ExposureFairness(candidates=0, constraint="share", target=0.3)
    exposure = model.reranked(reranker).expected_exposure(scenario)
    assert exposure[model.sensitive_.numpy()].sum() / exposure.sum() == pytest.approx(0.3)
    assert model.reranked(reranker).alpha_prime == 0.3


def test_only_what_draws_has_an_expected_exposure(model, scenario):
    for reranker in (None, Quota(), Penalty()):
        assert model.reranked(reranker).expected_exposure(scenario) is None


def test_more_items_than_candidates_is_refused(model, scenario):
    served = model.reranked(ExposureFairness(candidates=5))
    for feedback in (False, True):
        with pytest.raises(ConfigError, match="a list of 6 cannot be made of 5 candidates"):
            served.recommend(scenario, length=6, feedback=feedback)


def test_a_share_out_of_reach_is_said(market):
    """The most popular 10 items are all of the group: no ranking shows less of it."""
    model = Ranked(Popularity(), ExposureFairness(candidates=10).at_level(0.4)).fit(market)
    scenario = evaluation_scenario(market, 1, Protocol.PAPER)
    with pytest.warns(UserWarning, match="for 60 of 60 users no ranking of the 10 candidates"):
        lists = model.recommend(scenario, length=10)
    assert np.array_equal(lists, model.reranked(None).recommend(scenario, length=10))


@pytest.mark.parametrize("reranker", RERANKERS, ids=name)
def test_stored_and_loaded_it_recommends_the_same(market, reranker, tmp_path):
    model = Ranked(Popularity()).fit(market)
    scenario = evaluation_scenario(market, 1, Protocol.STANDARD)
    served = model.reranked(reranker)
    served.save(tmp_path / "model")
    loaded = Ranked.load(tmp_path / "model")
    assert (loaded.method, loaded.alpha_prime) == (served.method, served.alpha_prime)
    assert loaded.reranker == reranker
    assert np.array_equal(
        loaded.recommend(scenario, length=10), served.recommend(scenario, length=10)
    )


def test_the_group_can_be_given(market):
    group = np.arange(market.train.n_items) % 2 == 0
    model = Ranked(Popularity(), Quota(share=0)).fit(market, sensitive=group)
    scenario = evaluation_scenario(market, 1, Protocol.PAPER)
    lists = model.recommend(scenario, length=10)
    assert not group[lists].any()
    assert model.alpha_prime == 0
