"""Properties of every ranker, on a tiny market."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

SMALL = {
    "dim": 8,
    "max_epochs": 2,
    "hidden": 8,
    "layers": 1,
    "heads": 1,
    "blocks": 1,
    "history": 5,
    "neighbours": 10,
}

pytestmark = pytest.mark.parametrize("method", RANKERS)


def small(method: str, seed: int = 0) -> Ranker[Any]:
    """The ranker with its sizes, by whatever of these names it has them, made small."""
    ranker_class = RANKERS[method]
    known = ranker_class.config_class.model_fields
    given = {name: value for name, value in SMALL.items() if name in known}
    return ranker_class(ranker_class.config_class.model_validate(given), seed=seed)


def lonely() -> Split:
    """40 users and 50 items; the only item of user 3 is for validation."""
    log = synthetic(40, 50, 15, seed=6).interactions
    own = np.flatnonzero(log.users == 3)
    return split(log.take(np.setdiff1d(np.arange(len(log)), own[1:])))


@pytest.fixture(scope="module")
def parts() -> Split:
    return lonely()


@pytest.fixture(scope="module")
def fitted(parts: Split) -> dict[str, Ranker[Any]]:
    """Each ranker fitted once, for the tests that do not change it."""
    return {method: small(method).fit(parts) for method in RANKERS}


def queue_of(parts: Split, length: int) -> Tensor:
    return UserItems.from_log(parts.train, parts.validation).last(length)


def all_scores(ranker: Ranker[Any], parts: Split, longer: int = 0) -> Tensor:
    users = torch.arange(parts.train.n_users)
    return ranker.scores(users, queue_of(parts, max(1, ranker.queue_length) + longer))


def test_scores_are_finite_one_for_each_item(method, fitted, parts):
    scores = all_scores(fitted[method], parts)
    assert scores.shape == (40, 50)
    assert scores.isfinite().all()
    assert (scores.std(dim=1) > 0).sum() >= 39  # a user without items may have equal scores


def test_a_user_without_training_items_is_served(method, fitted, parts):
    assert not (parts.train.users == 3).any()
    ranker = fitted[method]
    nothing = torch.full((1, max(1, ranker.queue_length)), parts.train.n_items)
    assert ranker.scores(torch.tensor([3]), nothing).isfinite().all()


def test_same_seed_same_bits_and_a_second_fit_starts_anew(method, fitted, parts):
    expected = fitted[method].tensors()
    ranker = small(method).fit(split(synthetic(30, 50, 10, seed=1).interactions)).fit(parts)
    again = ranker.tensors()
    assert expected.keys() == again.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, again[name]), name
    assert ranker.fingerprint_ == parts.train.fingerprint()


def test_what_is_restored_scores_the_same(method, fitted, parts):
    ranker = fitted[method]
    tensors = {name: tensor.clone() for name, tensor in ranker.tensors().items()}
    other = type(ranker).from_parts(tensors, ranker.description())
    assert other.queue_length == ranker.queue_length
    assert torch.equal(all_scores(other, parts), all_scores(ranker, parts))


def test_what_is_older_than_the_queue_changes_nothing(method, fitted, parts):
    scores = all_scores(fitted[method], parts)
    torch.testing.assert_close(all_scores(fitted[method], parts, longer=7), scores)


def test_a_user_scores_the_same_in_any_company(method, fitted, parts):
    ranker = fitted[method]
    users = torch.tensor([5, 3, 20])
    queue = queue_of(parts, max(1, ranker.queue_length))[users]
    torch.testing.assert_close(
        ranker.scores(users, queue), all_scores(ranker, parts)[users], rtol=1e-4, atol=1e-5
    )


def test_lists_are_the_same_after_saving_and_loading(method, parts, tmp_path: Path):
    model = Ranked(small(method)).fit(parts)
    model.save(tmp_path / "model")
    loaded = Ranked.load(tmp_path / "model")
    for feedback in (False, True):
        lists = [
            each.recommend(
                evaluation_scenario(parts, each.queue_length, Protocol.STANDARD),
                length=10,
                feedback=feedback,
            )
            for each in (model, loaded)
        ]
        np.testing.assert_array_equal(*lists)
        assert (lists[0] >= 0).all()


def test_neither_ratings_nor_times_are_needed(method):
    log = synthetic(30, 40, 12, seed=2).interactions
    bare = split(Interactions(log.users, log.items, log.user_ids, log.item_ids))
    assert bare.train.ratings is None
    assert bare.train.timestamps is None
    assert all_scores(small(method).fit(bare), bare).isfinite().all()


def test_without_validation_items_it_learns_all_the_same(method, parts):
    nothing = parts.validation.take([])
    ranker = small(method).fit(Split(parts.train, nothing, nothing))
    assert all_scores(ranker, parts).isfinite().all()


def test_nothing_to_train_on_is_said(method):
    log = from_arrays(["a", "b"], ["x", "y"])  # one item each, for validation
    with pytest.raises(DataError, match="nothing to train on"):
        small(method).fit(split(log))
