"""What kinds users were shown lately, by hand, and who leaves because of it."""

import pytest
import torch

from fairhorizon.fcpo.retention.boredom import Boredom
from fairhorizon.recommenders.responses import FADES, REMEMBERED, CategoryExposure
from fairhorizon.simulation.churn import ChurnConfig, QuitRule

KINDS = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0], [0.0, 0.0]])  # of four items


def begun() -> CategoryExposure:
    """The first user was shown items 0 and 1, the second one item 2."""
    kinds = CategoryExposure(KINDS, users=2)
    kinds.see(torch.tensor([[0], [2]]))
    kinds.see(torch.tensor([[1], [-1]]))
    return kinds


def test_showings_fade_at_several_speeds() -> None:
    kinds = begun()
    for n, fade in enumerate(FADES):
        faded = kinds.faded[:, :, n]
        assert faded.tolist() == [pytest.approx([fade + 0.75, 0.25]), pytest.approx([0.0, fade])]
    weights = torch.tensor([0.0, 2.0, 0.0])
    f = FADES[1]
    tiring = [f + 0.75, 0.75 * (f + 0.75) + 0.25 * 0.25, 0.25, 0.0]
    assert kinds.tiring(weights)[0].tolist() == pytest.approx([2 * one for one in tiring])
    of_items = kinds.of_items(torch.tensor([[1, 2], [1, 2]])) @ weights
    assert of_items[0].tolist() == pytest.approx([2 * tiring[1], 2 * tiring[2]])
    other = CategoryExposure(KINDS, users=2)
    other.restore(kinds.tensors())
    assert torch.equal(other.faded, kinds.faded)
    assert torch.equal(other.recent, kinds.recent)


def test_showings_of_a_kind_are_counted_in_every_window() -> None:
    kinds = begun()
    one_more = kinds.counts(torch.tensor([0, 0]))  # of the last 1, 2, 3, ... with item 0
    assert one_more[:, :4].tolist() == [[1, 2, 3, 3], [1, 1, 1, 1]]
    assert one_more.shape == (2, REMEMBERED)
    assert kinds.counts(torch.tensor([3, 3])).eq(0).all()  # it has no kind
    assert kinds.counts_by_kind(2).tolist() == [[2, 1], [1, 2]]
    assert kinds.counts_by_kind(3).tolist() == [[3, 1], [1, 2]]


def test_unknown_kinds_say_nothing() -> None:
    kinds = CategoryExposure(None, users=2)
    kinds.see(torch.tensor([[0], [2]]))
    assert not kinds.are_known
    assert kinds.tiring(torch.ones(len(FADES))).tolist() == [[0.0]]
    assert kinds.of_items(torch.tensor([[0], [1]])).eq(0).all()
    assert kinds.counts(torch.tensor([0, 1])).eq(0).all()


@pytest.mark.parametrize(("most", "window"), [(4, 10), (2, 7), (1, 2)])
def test_the_rule_by_which_users_leave_is_found(most: int, window: int) -> None:
    """Items of five kinds at random; a quarter of the others leave for no reason."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(3, (2000, REMEMBERED), generator=generator)
    counts = (kinds == kinds[:, :1]).float().cumsum(1)
    bored = counts[:, window - 1] > most
    left = bored | (torch.rand(2000, generator=generator) < 0.25)
    rule = Boredom.from_showings(counts, left)
    assert rule is not None
    assert (rule.most, rule.window) == (most, window)
    assert rule.leaving == pytest.approx(0.75, abs=0.03)


def test_where_nothing_bores_no_rule_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(3, (2000, REMEMBERED), generator=generator)
    counts = (kinds == kinds[:, :1]).float().cumsum(1)
    left = torch.rand(2000, generator=generator) < 0.25
    assert Boredom.from_showings(counts, left) is None
    assert Boredom.from_showings(torch.zeros(9, REMEMBERED), torch.ones(9).bool()) is None


def test_what_is_known_of_kinds_are_no_constants_of_the_simulation() -> None:
    """How fast users recover, and the window in which they are bored, have to be learned."""
    simulated = ChurnConfig(quits=QuitRule(most=4, of=10))
    assert simulated.recovery not in FADES
    assert simulated.quits is not None
    assert simulated.quits.of < REMEMBERED
