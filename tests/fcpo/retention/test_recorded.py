"""Learning from a record: users replayed by hand, and a market whose worth of a like is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.response_log import ResponseLog
from fairhorizon.errors import ModelError
from fairhorizon.fcpo.retention.critics import returns_after
from fairhorizon.fcpo.retention.model import Recordings, RetentionModel, typed_states
from fairhorizon.fcpo.retention.replay import (
    FittedRetention,
    OfflineReplay,
    WorthRange,
    before_record,
    best_open,
    learned_from,
)
from fairhorizon.recommenders.responses import (
    CHURN_FEATURES,
    ITEM_FEATURES,
    USER_FEATURES,
    ResponseHistory,
)

pytestmark = pytest.mark.slow

GAMMA, CHANCE = 0.9, 0.5


def offline_replay(answers: list[list[int]], left: list[bool]) -> OfflineReplay:
    """A user a row: 1 a like, 0 none, -1 nothing was shown."""
    table = torch.tensor(answers)
    return OfflineReplay(
        torch.zeros(len(table)),
        torch.zeros(len(table), 2),
        torch.zeros(table.shape),
        torch.zeros(table.shape, dtype=torch.bool),
        table >= 0,
        table == 1,
        torch.tensor(left),
    )


def record_of(rows: list[tuple[int, float]]) -> ResponseLog:
    """Users x0, x1, ... with the times of their showings."""
    users, times = (np.array(column) for column in zip(*rows, strict=True))
    ids = [f"x{n}" for n in range(int(users.max()) + 1)]
    zeros = np.zeros(len(users), dtype=np.int64)
    return ResponseLog(ids, users, zeros, times.astype(np.float64), zeros > 0)


def log_of(timestamps: list[int] | None) -> Interactions:
    users, items = ["x0", "x0", "x1", "x1", "x1", "x3"], ["a", "b", "c", "a", "b", "c"]
    times = None if timestamps is None else np.array(timestamps)
    return from_arrays(users, items, timestamps=times)


def test_a_history_ends_where_the_record_begins() -> None:
    record = record_of([(0, 2.5), (0, 9.0), (1, 2.0), (2, 1.0)])  # x2 is not in the log
    states = before_record(log_of([1, 2, 1, 2, 3, 1]), record, queue_length=2)
    assert states.taken is not None
    assert states.taken.tolist() == [2, 1, 0]
    assert states.queue.tolist() == [[0, 1], [3, 2], [3, 3]]
    assert states.codes is not None
    assert states.codes.tolist() == [0, 1, 0]
    assert states.excluded is not None
    assert states.excluded.mask(torch.arange(3)).int().tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.NoTimestampsWarning")
def test_without_times_all_of_a_log_is_history() -> None:
    states = before_record(log_of(None), record_of([(0, 2.5), (1, 2.0), (2, 1.0)]), queue_length=2)
    assert states.taken is not None
    assert states.taken.tolist() == [2, 3, 0]


def test_the_last_state_has_all_answers_and_who_left_has_nothing_to_come() -> None:
    part = offline_replay([[1, 0, 1], [0, 0, -1], [1, -1, -1]], left=[False, True, False])
    retention = RetentionModel(GAMMA)
    part.run(retention)
    (run,) = retention.runs
    assert [step.shown.tolist() for step in run] == [
        *([True, True, True], [True, True, False], [True, False, False], [False] * 3)
    ]
    assert [step.stays.tolist() for step in run[:2]] == [[True] * 3, [True, False, True]]
    retention.probabilities.weights = torch.zeros(USER_FEATURES + ITEM_FEATURES)
    states = [typed_states(run, retention.probabilities)]
    (course,) = Recordings([run], states, retention.probabilities, GAMMA, 1.0, 0.0, 1).courses(
        of_limit=False
    )
    values = torch.zeros(4, 3)
    values[-1] = 2.0  # of those who go on
    to_come = returns_after(course, values, GAMMA, 1.0)
    # of the first: nothing then 1, discounted, then 2; the second left; the third goes on
    assert to_come[0].tolist() == pytest.approx([0.9 * (1 + 0.9 * 2), 0.0, 2.0])
    assert to_come[1].tolist() == pytest.approx([1 + 0.9 * 2, 0.0, 2.0])
    back = Recordings([run], states, retention.probabilities, GAMMA, 1.0, 0.25, 1)
    (present,) = back.courses(of_limit=False)
    # a quarter of a like for every showing, and where there was none, for one that could be
    assert present.signal.tolist() == [[1.25, 0.25, 1.25], [0.25, 0.25, 0], [1.25, 0, 0], [0] * 3]
    assert present.expected.eq(0.75).all()
    at_end = ResponseHistory(torch.zeros(3))
    at_end.see(torch.tensor([[0, 0, 0], [0, 0, -1], [0, -1, -1]]), part.liked)
    for name, own in part.responses().tensors().items():
        assert torch.equal(own, at_end.tensors()[name])
    assert torch.equal(run[-1].states[:, :CHURN_FEATURES], at_end.churn())


def impatient(users: int, most: int, seed: int) -> OfflineReplay:
    """Who likes nothing twice in a row leaves; half of everything is liked.

    After `most` showings the record ends, whoever is there.
    """
    liked = np.random.default_rng(seed).random((users, most)) < CHANCE
    gone = np.zeros(users, dtype=np.bool_)
    answers = np.full((users, most), -1)
    for step in range(most):
        answers[~gone, step] = liked[~gone, step]
        if step:
            gone |= ~liked[:, step] & ~liked[:, step - 1]
    return offline_replay(answers.tolist(), gone.tolist())


@pytest.mark.parametrize("most", [40, 8])
def test_the_worth_of_a_like_is_that_of_the_market(most: int) -> None:
    """After a like W_1 - W_0 is V_like - V_none; after none it is V_like, as none ends it all.

    V_none = a = p (1 + g V_like),  V_like = a + (1 - p) g a
    A record that ends early gives the same, as those who are there have not left.
    """
    a = CHANCE / (1 - CHANCE * GAMMA * (1 + (1 - CHANCE) * GAMMA))
    v_like, v_none = a * (1 + (1 - CHANCE) * GAMMA), a
    parts = [impatient(1500, most, seed=1), impatient(500, most, seed=2)]
    learned, usual = learned_from(parts, gamma=GAMMA)
    assert {name.partition(".")[0] for name in learned} >= {"likes", "probabilities"}
    retention = FittedRetention(GAMMA, learned, {}, (), 0.0)
    responses = ResponseHistory(torch.zeros(2))
    table = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]) > 0  # equal but for the order
    responses.see(torch.zeros_like(table).long(), table)
    after_like, after_none = retention.worth(responses, torch.zeros(2, 2)).tolist()
    assert after_like == pytest.approx(1 + GAMMA * (v_like - v_none), rel=0.3)
    assert after_none == pytest.approx(1 + GAMMA * v_like, rel=0.3)
    assert 1 <= usual.least < after_like < usual.mean < after_none < usual.most
    relative = FittedRetention(GAMMA, learned, {}, (), 0.0, WorthRange(2.0, 1.0, after_like))
    assert relative.worth(responses, torch.zeros(2, 2)).tolist() == pytest.approx(
        [after_like / 2] * 2  # the second is above all that there was
    )


def test_a_file_keeps_what_was_learned_and_where_users_stand(tmp_path: Path) -> None:
    part = impatient(50, 10, seed=3)
    learned, usual = learned_from([part], gamma=GAMMA)
    users = tuple(f"x{n}" for n in range(50))
    retention = FittedRetention(GAMMA, learned, part.responses().tensors(), users, 7.5, usual)
    retention.save(tmp_path / "retention.safetensors")
    again = FittedRetention.load(tmp_path / "retention.safetensors")
    assert (again.gamma, again.users, again.until, again.usual) == (GAMMA, users, 7.5, usual)
    asked, taken, best = ["x7", None, "nobody", "x0"], torch.tensor([9, 3, 3, 9]), torch.zeros(4, 2)
    responses = again.responses_of(asked, taken)
    assert responses.stay.tolist()[1:3] == [0, 0]  # newcomers,
    assert responses.history.tolist()[1:3] == [0, 0]  # who have taken no more than others had
    assert responses.stay[0] == part.shown[7].sum()
    assert responses.likes[3] == part.liked[0].sum()
    worth = retention.worth(retention.responses_of(asked, taken), best)
    assert torch.equal(again.worth(responses, best), worth)
    assert worth[1] == worth[2]
    wrong = {**learned, "probabilities": learned["probabilities"][:2]}
    FittedRetention(GAMMA, wrong, retention.responses, users, 7.5, usual).save(tmp_path / "wrong")
    with pytest.raises(ModelError, match=r"holds something unexpected.*fit it again"):
        FittedRetention.load(tmp_path / "wrong")
    with pytest.raises(ModelError, match="no such model file"):
        FittedRetention.load(tmp_path / "none.safetensors")


def test_the_best_of_either_side_by_hand() -> None:
    items = torch.tensor([[0, 1, 2, 3], [-1, 1, -1, 3], [-1, -1, 2, -1]])
    probabilities = torch.tensor([[0.1, 0.5, 0.2, 0.2], [0.9, 0.25, 0.5, 0.75], [0.5] * 4])
    best = best_open(items, probabilities, torch.tensor([True, False, True, False]))
    assert best[0].tolist() == pytest.approx([0.0, np.log(0.25)])
    assert best[1].tolist() == pytest.approx([np.log(3), -np.inf])
    assert best[2].tolist() == pytest.approx([-np.inf, 0.0])
