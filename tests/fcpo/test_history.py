"""A state in a few numbers, by hand."""

import math

import torch

from fairhorizon.fcpo.networks import HistoryEncoder, numbers_of_items, numbers_of_users

USERS = torch.tensor([[10.0], [20.0]])
ITEMS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 12.0]])


def test_a_state_is_the_user_and_the_mean_over_the_queue():
    encoder = HistoryEncoder(USERS, ITEMS)
    queues = torch.tensor([[0, 1, 2], [3, 3, 1], [3, 3, 3], [2, 2, 0]])  # 3 is no item
    states = encoder(torch.tensor([1, 0, 1, 0]), queues)
    by_hand = [[20, 3, 6], [10, 3, 4], [20, 0, 0], [10, 11 / 3, 26 / 3]]
    torch.testing.assert_close(states, torch.tensor(by_hand))
    assert encoder.output_size == 3
    assert not list(encoder.parameters())  # nothing to learn
    assert set(encoder.state_dict()) == {"user_vectors", "item_vectors"}
    assert encoder.item_vectors.shape == (4, 2)


def test_users_are_told_apart_by_the_logarithm_of_what_they_took():
    e = math.e
    numbers = numbers_of_users(torch.tensor([0.0, e - 1, e**2 - 1, e - 1]))  # logs 0, 1, 2, 1
    spread = math.sqrt(0.5)
    torch.testing.assert_close(numbers, torch.tensor([[-1.0], [0], [1], [0]]) / spread)
    assert numbers_of_users(torch.tensor([3, 3, 3])).tolist() == [[0], [0], [0]]


def test_items_by_group_and_popularity():
    counts, sensitive = torch.tensor([0, 1, 3]), torch.tensor([False, False, True])
    spread = math.sqrt(2 / 3)  # of 0, 1, 2 in units of log 2
    by_hand = [[0, -1 / spread, 1.5], [0, 0, 0], [1, 1 / spread, 1.5]]
    torch.testing.assert_close(numbers_of_items(counts, sensitive), torch.tensor(by_hand))
    equal = numbers_of_items(torch.tensor([7, 7]), torch.tensor([True, False]))
    assert equal.tolist() == [[1, 0, 0], [0, 0, 0]]
