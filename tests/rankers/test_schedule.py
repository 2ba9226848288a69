"""The learning rate at given times, by hand, and how many epochs are planned."""

from dataclasses import replace

import numpy as np
import pytest

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.gru4rec import Gru4Rec, Gru4RecConfig, GruNetwork
from fairhorizon.rankers.next_item import (
    FALLING,
    STEADY,
    NetworkTraining,
    Recipe,
    Schedule,
    planned_epochs,
)
from fairhorizon.rankers.sasrec import SasRec


@pytest.mark.parametrize(
    ("passed", "rate"),
    [(0, 0), (0.15, 0.005), (0.3, 0.01), (0.3 + 9.7 / 4, 0.0075), (5.15, 0.005), (10, 0)],
)
def test_the_rate_rises_for_three_hundredths_and_falls_for_the_rest(passed, rate):
    assert Schedule(0.01, 10).rate(passed) == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize(
    ("steps", "planned"), [(1, 60), (25, 60), (26, 58), (100, 15), (149, 11), (150, 10), (9000, 10)]
)
def test_a_log_of_few_steps_is_passed_over_more_often(steps, planned):
    assert planned_epochs(10, 60, steps) == planned


def test_no_more_epochs_are_planned_than_allowed():
    assert planned_epochs(10, 3, 9000) == 3


def training_of(lengths: list[int], recipe: Recipe = FALLING, **settings: int) -> NetworkTraining:
    users = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.arange(length) for length in lengths])
    config = Gru4RecConfig(dim=2, history=2, learning_rate=0.1, **settings)
    history = UserItems.from_log(from_arrays(users, items))
    return NetworkTraining(GruNetwork(history.n_items, config), config, history, recipe)


def test_a_step_has_the_rate_of_its_middle():
    """Windows of one target: 1 + 3 of them, so batches of 3 and 1; the last is at 3.5 of 4."""
    training = training_of([2, 4], batch=3, max_epochs=2)
    assert training.schedule == Schedule(0.1, 2)
    rates = []
    for _ in range(2):
        training.run_epoch()
        rates.append(training._optimiser.param_groups[0]["lr"])
    halves = [(1 - 3.5 / 8) / 0.97, (1 - 7.5 / 8) / 0.97]
    assert rates == pytest.approx([0.1 * half for half in halves])


def test_epochs_are_planned_by_the_windows_of_all_users():
    """0 + 1 + 1 + 99 windows of one target, in batches of 2: 51 steps, 30 times are 1530."""
    assert training_of([1, 2, 2, 100], batch=2).schedule.epochs == 30
    longer = replace(FALLING, epochs=40)
    assert training_of([1, 2, 2, 100], longer, batch=2).schedule.epochs == 40


def test_a_steady_rate_is_the_same_in_every_step_up_to_the_last_epoch():
    training = training_of([2, 4], STEADY, batch=3, max_epochs=7)
    assert training.schedule == Schedule(0.1, 7, falling=False)
    training.run_epoch()
    assert training._optimiser.param_groups[0]["lr"] == 0.1
    assert training._optimiser.param_groups[0]["betas"] == (0.9, 0.999)


def test_which_networks_have_which_recipe():
    assert (Gru4Rec.recipe, SasRec.recipe) == (FALLING, STEADY)


def test_a_small_log_is_learnt_by_more_epochs_than_a_large_one(market: Split):
    """60 windows at most in one batch each: 2 steps an epoch, so as many epochs as allowed."""
    seen: list[int] = []
    config = Gru4RecConfig(dim=4, max_epochs=12, patience=12)
    Gru4Rec(config).fit(market, on_epoch=lambda epoch, _: seen.append(epoch))
    assert seen == [*range(1, 13)]


def test_two_items_a_user_are_enough():
    """One of three is for validation and none for test: a single target per user."""
    users, steps = np.divmod(np.arange(12), 3)
    parts = split(from_arrays(users, (users + steps) % 4, timestamps=steps), test_share=0)
    fitted = Gru4Rec(Gru4RecConfig(dim=4)).fit(parts)
    assert all(tensor.isfinite().all() for tensor in fitted.tensors().values())
