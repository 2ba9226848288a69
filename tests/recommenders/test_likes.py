"""Values by probabilities of a like: learned from responses, by hand and in a long run."""

import pytest
import torch

from fairhorizon.recommenders.likes import LikeModel
from fairhorizon.recommenders.responses import USER_FEATURES

GROUP = torch.tensor([True, False, False])
SCORES = torch.tensor([[1.0, 0.0, -torch.inf], [2.0, -1.0, 0.5]])


def pretrained(since_like: float = 0.0) -> LikeModel:
    """Two users with eight showings: the first likes all, the second none."""
    likes = LikeModel(since_like)
    likes.begin(torch.tensor([3, 3]))
    for _ in range(8):
        likes.valued(SCORES, GROUP)
        likes.note(torch.tensor([[0], [2]]), torch.tensor([[True], [False]]))
    return likes


def test_values_are_the_scores_until_something_is_learned() -> None:
    likes = pretrained()
    assert torch.equal(likes.valued(SCORES, GROUP), SCORES)
    likes.learn()
    values = likes.valued(SCORES, GROUP)
    assert (values[-torch.inf < SCORES] > 0).all()
    assert values[0, 2] == -torch.inf
    assert values[0, 0] > values[1, 0]  # who likes more, though the score is lower


def test_the_rule_of_thumb_multiplies_chances() -> None:
    plain, thumb = pretrained(), pretrained(since_like=0.5)
    for likes in (plain, thumb):
        likes.learn()
    factor = thumb.valued(SCORES, GROUP)[:, :2] / plain.valued(SCORES, GROUP)[:, :2]
    assert factor[0].tolist() == pytest.approx([1, 1])
    assert factor[1].tolist() == pytest.approx([3, 3])  # eight showings without a like


def test_a_new_run_forgets_users_and_keeps_what_was_learned() -> None:
    likes = pretrained()
    likes.learn()
    likes.begin(torch.tensor([3, 3]))
    values = likes.valued(SCORES[:, :1].expand(2, 3), GROUP)
    assert values[0, 0] < values[1, 0]  # the scores alone tell them apart
    assert len(likes.probabilities.weights) > USER_FEATURES


def test_what_was_learned_is_the_same_after_a_file() -> None:
    likes, other = pretrained(), LikeModel()
    likes.learn()
    other.restore({name: value.clone() for name, value in likes.tensors().items()})
    for one in (likes, other):
        one.valued(SCORES, GROUP)
        one.note(torch.tensor([[1], [0]]), torch.tensor([[False], [True]]))
        one.learn()
    assert torch.equal(likes.valued(SCORES, GROUP), other.valued(SCORES, GROUP))
    assert torch.equal(likes.probabilities.weights, other.probabilities.weights)
