"""Candidates looked up by vectors: the same items and features as scores of all items give."""

import pytest
import torch
from torch import Tensor

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.rankers import candidates
from fairhorizon.rankers.als import Als, AlsConfig
from fairhorizon.rankers.bpr import Bpr, BprConfig
from fairhorizon.rankers.candidates import (
    Recall,
    ScoredCandidates,
    VectorSearch,
    best_of_groups,
    searched,
)
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.mf import Mf, MfConfig
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import standardised
from fairhorizon.recommenders.lists.features import EnsembleItems
from fairhorizon.recommenders.progress import Listener
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

pytest.importorskip("faiss")

COUNT = 10
ALS = Als(AlsConfig(dim=8, max_epochs=3))


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("synthetic:users=120,items=400,interactions_per_user=25"))


@pytest.fixture(scope="module")
def als(parts: Split) -> Als:
    return Als(ALS.config).fit(parts)


@pytest.fixture(scope="module")
def market(parts: Split, als: Als) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Users, queues, blocked items and the group."""
    scenario = evaluation_scenario(parts, als.queue_length, Protocol.STANDARD)
    state = scenario.state(torch.arange(scenario.n_users))
    return state.users, state.queue, state.blocked, torch.arange(400) % 4 == 0


@pytest.mark.parametrize(
    "ranker",
    [
        ALS,
        Bpr(BprConfig(dim=4, max_epochs=1)),
        Mf(MfConfig(dim=4, max_epochs=1)),
        Gru4Rec(Gru4Rec.config_class(dim=4, max_epochs=1, history=5)),
    ],
    ids=lambda ranker: ranker.method,
)
def test_products_of_vectors_are_the_scores_up_to_a_number_per_user(
    ranker: Ranker, parts: Split
) -> None:
    fitted = type(ranker)(ranker.config).fit(parts)
    users = torch.arange(20)
    queue = evaluation_scenario(parts, max(1, fitted.queue_length), Protocol.STANDARD).queue[users]
    items = fitted.item_vectors()
    assert items is not None
    products = fitted.user_vectors(users, queue) @ items.T
    scores = fitted.scores(users, queue).detach()
    torch.testing.assert_close(standardised(products), standardised(scores), atol=2e-4, rtol=1e-3)
    features = VectorSearch.from_ranker(fitted).features(
        fitted.user_vectors(users, queue), torch.arange(400).expand(20, -1)
    )
    torch.testing.assert_close(features, standardised(scores), atol=2e-4, rtol=1e-3)


def test_a_ranker_without_vectors_says_so(parts: Split) -> None:
    ease = Ease().fit(parts)
    assert ease.item_vectors() is None
    with pytest.raises(TypeError, match="scores of ease are no products"):
        ease.user_vectors(torch.arange(1), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="scores of ease are no products"):
        VectorSearch.from_ranker(ease)


def test_in_all_clusters_the_best_of_both_groups_are_found(als: Als, market) -> None:
    users, queue, blocked, group = market
    search = VectorSearch.from_ranker(als, probes=1000)
    found = search.best(als.user_vectors(users, queue), blocked, group, COUNT)
    exact = best_of_groups([als.scores(users, queue)], blocked, group, COUNT)
    assert torch.equal(found.sort(1).values, exact.sort(1).values)
    assert not blocked.gather(1, found).any()


def test_where_clusters_have_too_few_items_all_are_scored(als: Als, market) -> None:
    users, queue, _, group = market
    blocked = torch.zeros(len(users), 400, dtype=torch.bool)
    blocked[0, : 400 - 12] = True  # twelve are left, three of them in the group
    search = VectorSearch.from_ranker(als, probes=1)
    found = search.best(als.user_vectors(users, queue), blocked, group, COUNT)
    exact = best_of_groups([als.scores(users, queue)], blocked, group, COUNT)
    assert set(found[0].tolist()) == set(exact[0].tolist())
    assert found.shape == exact.shape


def test_clusters_are_doubled_until_nearly_all_are_found(als: Als, market) -> None:
    search, recall = searched(als, *market, COUNT)
    assert recall.probes == search.probes
    assert recall.share >= candidates.AIM or search.probes >= search.clusters(market[3])
    assert str(Recall(16, 0.9951, 9)) == (
        "99.5 % of its best items are found by FAISS in 16 clusters (recall on 9 users)"
    )
    assert str(Recall(16, 0.97, 9)).endswith(
        ": below 99 % (set retrieval to exact to score all items)"
    )


def test_recall_is_the_share_of_the_exact_items(als: Als, market, monkeypatch) -> None:
    """In the first 8 clusters, counted by hand."""
    users, queue, blocked, group = market
    monkeypatch.setattr(candidates, "AIM", 0.0)  # the first answer is good enough
    search, recall = searched(als, users, queue, blocked, group, COUNT)
    assert search.probes == 8
    found = search.best(als.user_vectors(users, queue), blocked, group, COUNT).tolist()
    exact = best_of_groups([als.scores(users, queue)], blocked, group, COUNT).tolist()
    hits = sum(len(set(f) & set(e)) for f, e in zip(found, exact, strict=True))
    assert recall.share == pytest.approx(hits / sum(map(len, exact)))
    assert recall.users == len(users)


def test_candidates_have_the_same_items_and_features(als: Als, parts: Split, market) -> None:
    users, queue, blocked, group = market
    rankers = (Ease().fit(parts), als)
    exact = EnsembleItems(Ensemble(rankers, (1.0, 1.0)), 5, COUNT)
    search = VectorSearch.from_ranker(als, probes=1000)
    quick = EnsembleItems(Ensemble(rankers, (1.0, 1.0), searches=(None, search)), 5, COUNT)
    one, two = (view.candidate_set(users, queue, blocked, group) for view in (exact, quick))
    for row in range(len(users)):
        mine, theirs = (_by_item(candidate_set, row) for candidate_set in (one, two))
        assert mine.keys() == theirs.keys()
        for item, features in mine.items():
            torch.testing.assert_close(theirs[item], features, atol=2e-5, rtol=1e-4)


def _by_item(candidate_set: ScoredCandidates, row: int) -> dict[int, Tensor]:
    pairs = zip(candidate_set.items[row].tolist(), candidate_set.features[row], strict=True)
    return {item: features for item, features in pairs if item >= 0}


class Stages(Listener):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        self.texts.append(text)


@pytest.mark.slow
def test_a_model_says_what_it_finds_and_serves_the_same_after_loading(parts, tmp_path) -> None:
    config = FcpoConfig(
        warm_start=("ease", "als"), adapt=False, rounds=1, users_per_round=40, retrieval="faiss"
    )
    listener = Stages()
    model = Fcpo(config, seed=0).fit(parts, listener=listener)
    assert [text for text in listener.texts if text.startswith("als: ")]
    assert model.policy_.ensemble is not None
    ease, als = model.policy_.ensemble.searches
    assert ease is None
    assert als is not None
    model.save(tmp_path / "model.safetensors")
    again = Fcpo.load(tmp_path / "model.safetensors")
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    lists = model.recommend(scenario, length=10)
    assert (again.recommend(scenario, length=10) == lists).all()
    exact = Fcpo(config.model_copy(update={"retrieval": "exact"}), seed=0).fit(parts)
    same = exact.recommend(scenario, length=10) == lists
    assert same.mean() > 0.95
