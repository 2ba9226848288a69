"""The method `stack`: the weighted sum of its members, also after a file."""

import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ensemble import Stack, StackConfig
from fairhorizon.ranking import standardised


def test_scores_are_the_weighted_sum_of_the_rankers():
    parts = split(load("synthetic-trends:users=150,items=120,interactions_per_user=25"))
    stack = Stack(StackConfig(adapt=False)).fit(parts)
    users = torch.arange(10)
    queue = UserItems.from_log(parts.train).last(stack.queue_length)[users]
    expected = sum(
        weight * standardised(member.scores(users, queue))
        for weight, member in zip(stack.ensemble_.weights, stack.ensemble_.rankers, strict=True)
    )
    torch.testing.assert_close(stack.scores(users, queue), expected)
    names = [member.method for member in stack.ensemble_.rankers]
    assert names == [name for name in stack.config.rankers if name in names]
    assert 1 < len(names) == len(stack.ensemble_.weights)
    assert min(stack.ensemble_.weights) > 0  # rankers without weight are not kept
    assert max(stack.ensemble_.weights) == 1
    restored = Stack.from_parts(stack.tensors(), stack.description())
    assert torch.equal(restored.scores(users, queue), stack.scores(users, queue))
    assert restored.ensemble_.rankers[0].config == stack.ensemble_.rankers[0].config


def test_a_log_without_anything_later_gives_equal_weights():
    log = from_arrays([0, 1, 2], [0, 1, 2])
    stack = Stack().fit(Split(log, log.take([]), log.take([])))
    assert stack.ensemble_.weights == (1, 1, 1, 1)


def test_a_ranker_that_cannot_be_a_member_is_refused():
    with pytest.raises(ConfigError, match="rankers"):
        StackConfig(rankers=("mf",))
