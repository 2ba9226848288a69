"""Lists of a run over shards of users that may be lost in the middle."""

from pathlib import Path

import numpy as np
import pytest
from dying_shards import LENGTH, SENSITIVE, DyingMaker, JointWay, candidates
from fairhorizon.allocation.joint_lists import joint_lists

from fairhorizon.engines.processes import Processes
from fairhorizon.experiments.run_blocks import LostShardError, NumberedShard, serve_again, users_of
from fairhorizon.exposure.place_rule import PlaceRule


def test_a_shard_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    with Processes(2) as engine, engine.shards([DyingMaker(half, mark) for half in (0, 1)]) as two:
        served = serve_again(JointWay(), two, LENGTH)
    one = joint_lists(candidates(), SENSITIVE, length=LENGTH, rule=PlaceRule(0.2))
    assert mark.exists()
    assert one.price > 0
    np.testing.assert_array_equal(served.lists, one.lists.numpy())


def test_a_shard_that_was_made_anew_says_so() -> None:
    """Calls 0, 1, 2 are answered; then a new shard is asked for number 3, which it cannot know."""
    shard = NumberedShard([5, 5, 7])
    assert [shard.call(number, "count", (5,)) for number in (0, 1, 2)] == [2, 2, 2]
    with pytest.raises(LostShardError):
        NumberedShard([5]).call(3, "count", (5,))
    assert shard.call(0, "count", (7,)) == 1  # begins anew


def test_shards_are_whole_blocks_of_users_where_there_are_enough() -> None:
    """2^22 / 100,000 items: 41 users are scored together; 10 blocks and a part of one."""
    parts = [users_of(number, 3, 420, 100_000) for number in range(3)]
    assert parts == [range(164), range(164, 328), range(328, 420)]
    assert [users_of(number, 2, 50, 100_000) for number in range(2)] == [range(25), range(25, 50)]
