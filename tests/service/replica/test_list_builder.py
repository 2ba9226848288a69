"""Exploration shows items with the recorded probabilities; where those who ask stand, by hand."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairhorizon.allocation.candidates import Offer
from fairhorizon.allocation.guard import GuardedList
from fairhorizon.fcpo.retention.replay import FittedRetention
from fairhorizon.recommenders.responses import ResponseHistory
from fairhorizon.service.replica.list_builder import UserHistories, current_responses, explored
from fairhorizon.service.store.feedback import MOST_SHOWN

CHOSEN = GuardedList(
    Offer(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([10, 11, 20, 21, 22])),
    columns=np.array([0, 1]),
    kinds=np.array([0, 1, 0, 1, 0]),
)


def test_shares_of_draws_are_the_recorded_probabilities() -> None:
    draws, n = np.random.default_rng(0), 20_000
    seen: Counter[tuple[int, int]] = Counter()
    said: dict[tuple[int, int], float] = {}
    for _ in range(n):
        items, probabilities = explored(CHOSEN, 0.6, draws)
        for place, (item, chance) in enumerate(zip(items.tolist(), probabilities, strict=True)):
            seen[place, item] += 1
            said[place, item] = chance
    # place 0: the chosen one or two others of its class; place 1: the chosen one or one other
    assert said == pytest.approx(
        {(0, 10): 0.8, (0, 20): 0.1, (0, 22): 0.1, (1, 11): 0.85, (1, 21): 0.15}
    )
    for key, chance in said.items():
        assert seen[key] / n == pytest.approx(chance, abs=0.012)


def test_the_classes_of_places_stay() -> None:
    draws = np.random.default_rng(1)
    kind = {10: 0, 20: 0, 22: 0, 11: 1, 21: 1}
    for _ in range(200):
        assert [kind[item] for item in explored(CHOSEN, 1.0, draws)[0].tolist()] == [0, 1]


def test_an_empty_list_stays_empty() -> None:
    none = np.empty(0, dtype=np.int64)
    nothing = GuardedList(Offer(np.empty(0), none), none, none)
    items, probabilities = explored(nothing, 1.0, np.random.default_rng(0))
    assert items.tolist() == []
    assert probabilities == []


def event(kind: str, item: str, list_id: str | None) -> SimpleNamespace:
    return SimpleNamespace(type=kind, item_id=item, list_id=list_id)


def shown(name: str, items: list[str], at: float) -> SimpleNamespace:
    return SimpleNamespace(id=name, items=items, served_at=at)


def test_a_like_names_its_list_and_is_not_negative() -> None:
    users = UserHistories(
        {"u": [event("take", "a", "l1"), event("hide", "c", "l2"), event("take", "d", None)]},
        {
            "u": [
                shown("l0", ["a"], 1.0),
                shown("l1", ["a", "b"], 2.0),
                shown("l2", ["c", "d"], 3.0),
            ]
        },
    )
    assert users.answers("u", 0.0, ["hide"]) == [False, True, False, False, False]
    assert users.answers("u", 0.0, []) == [False, True, False, True, False]
    assert users.answers("u", 1.0, ["hide"]) == [True, False, False, False]  # after the record
    assert users.answers("v", 0.0, ["hide"]) == []


def test_no_more_than_the_newest_showings_are_looked_at() -> None:
    lists = [shown(f"l{n}", ["a", "b"], float(n)) for n in range(MOST_SHOWN)]
    users = UserHistories({"u": [event("take", "b", f"l{MOST_SHOWN - 1}")]}, {"u": lists})
    assert users.answers("u", -1.0, []) == [False] * (MOST_SHOWN - 1) + [True]


def test_standing_goes_on_from_the_end_of_the_record() -> None:
    at_end = ResponseHistory(torch.tensor([5, 2]))
    at_end.see(torch.zeros(2, 2).long(), torch.tensor([[True, True], [False, True]]))
    retention = FittedRetention(0.9, {}, at_end.tensors(), ("u", "v"), 0.0)
    answers = [[False, False, True], [True], []]
    responses = current_responses(retention, ["u", "new", None], torch.tensor([9, 3, 900]), answers)
    assert responses.stay.tolist() == [5, 1, 0]
    assert responses.likes.tolist() == [3, 1, 0]
    assert responses.since.tolist() == [0, 0, 0]
    assert responses.answers[0].tolist() == [0, 0, 0, 1, 1, -1, -1, 1]
    assert responses.answers[1].tolist() == [0] * 7 + [1]
    # histories of the record are from 2 to 5: others count as the nearest
    assert responses.history.tolist() == pytest.approx(np.log([6, 4, 6]))
    nobody = current_responses(retention, ["u"], torch.tensor([9]), [[]])
    assert torch.equal(nobody.churn(), retention.responses_of(["u"], torch.tensor([9])).churn())
