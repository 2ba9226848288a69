"""Lists of a run over blocks of users that may be lost in the middle."""

from pathlib import Path

import numpy as np
import pytest
from dying_blocks import GROUP, LENGTH, RULE, DyingMaker, GroupServing, candidates

from fairhorizon.allocation.engine import group_lists
from fairhorizon.engines.processes import Processes
from fairhorizon.model.blocks import LostBlockError, NumberedBlock, serve_again


@pytest.mark.slow
def test_a_block_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    with Processes(2) as engine, engine.shards([DyingMaker(half, mark) for half in (0, 1)]) as two:
        served = serve_again(GroupServing(), two, LENGTH)
    one = group_lists(candidates(), GROUP, length=LENGTH, rule=RULE)
    assert mark.exists()
    assert one.prices.price > 0
    np.testing.assert_array_equal(served.lists, one.lists)


def test_a_block_that_was_made_anew_says_so() -> None:
    """Calls 0, 1, 2 are answered; then a new block is asked for number 3, which it cannot know."""
    block = NumberedBlock([5, 5, 7])
    assert [block.call(number, list.count, (5,)) for number in (0, 1, 2)] == [2, 2, 2]
    with pytest.raises(LostBlockError):
        NumberedBlock([5]).call(3, list.count, (5,))
    assert block.call(0, list.count, (7,)) == 1  # begins anew


def test_a_block_that_is_not_asked_counts_the_question() -> None:
    block = NumberedBlock([5, 5, 7])
    assert block.call(0, None, ()) is None
    assert block.call(1, list.count, (5,)) == 2
