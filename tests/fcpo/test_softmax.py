"""The policy over items against torch.distributions, enumeration and automatic derivatives."""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from fairhorizon.fcpo.policies import (
    ItemPolicy,
    allowed_by_slot,
    close_all,
    draw,
    explored,
    policy_at,
    propensities,
    rows_of,
)
from fairhorizon.rankers.candidates import CandidateSet, CatalogueCandidates, ScoredCandidates


def logits_of(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plackett_luce(logits: Tensor, open_items: list[int]) -> dict[tuple[int, ...], float]:
    """The chance of every list, by the definition: logits (K, C), one row a slot."""
    probabilities = {}
    for chosen in itertools.permutations(open_items, len(logits)):
        chance, left = 1.0, list(open_items)
        for slot, place in enumerate(chosen):
            weights = {item: math.exp(float(logits[slot, item])) for item in left}
            chance *= weights[place] / sum(weights.values())
            left.remove(place)
        probabilities[chosen] = chance
    return probabilities


def test_one_slot_equals_a_categorical():
    new, old = logits_of(0, 6, 1, 5), logits_of(1, 6, 1, 5)
    everything = torch.ones(6, 1, 5, dtype=torch.bool)
    ours, before = ItemPolicy.from_logits(new, everything), ItemPolicy.from_logits(old, everything)
    theirs, theirs_before = (Categorical(logits=x.squeeze(1)) for x in (new, old))
    chosen = torch.tensor([0, 4, 2, 2, 1, 3])
    torch.testing.assert_close(ours.log_prob(chosen[:, None]), theirs.log_prob(chosen))
    torch.testing.assert_close(ours.kl_from(before), kl_divergence(theirs, theirs_before))
    assert ours.kl_from(before).min() > 0.05
    assert (ours.kl_from(ours) == 0).all()
    taken = ours.take(torch.tensor([3, 3]))
    assert torch.equal(taken.probs, ours.probs[[3, 3]])
    assert torch.equal(taken.log_probs, ours.log_probs[[3, 3]])


def test_what_is_closed_has_no_part():
    logits = logits_of(2, 3, 1, 4)
    allowed = torch.tensor([[[True, False, True, True]], [[False] * 3 + [True]], [[False] * 4]])
    ours = ItemPolicy.from_logits(logits, allowed)
    three = Categorical(logits=logits[0, 0, [0, 2, 3]])
    torch.testing.assert_close(ours.probs[0, 0, [0, 2, 3]], three.probs)
    assert ours.probs[0, 0, 1] == 0
    assert ours.probs[1, 0].tolist() == [0, 0, 0, 1]
    assert ours.log_prob(torch.tensor([[2], [3], [-1]])).tolist() == [float(three.logits[1]), 0, 0]
    other = ItemPolicy.from_logits(logits_of(3, 3, 1, 4), allowed)
    divergence = kl_divergence(three, Categorical(logits=logits_of(3, 3, 1, 4)[0, 0, [0, 2, 3]]))
    torch.testing.assert_close(ours.kl_from(other)[0], divergence)
    assert ours.kl_from(other).isfinite().all()
    assert ours.kl_from(other)[1:].tolist() == [0, 0]


@pytest.mark.parametrize("slots", [2, 3])
def test_lists_have_the_chances_of_plackett_and_luce(slots: int):
    logits = logits_of(slots, slots, 5)
    expected = plackett_luce(logits, [0, 1, 3, 4])  # item 2 is not open
    assert sum(expected.values()) == pytest.approx(1)
    chosen = torch.tensor(list(expected))
    open_items = torch.tensor([True, True, False, True, True]).expand(len(chosen), 5)
    policy = ItemPolicy.from_logits(
        logits.expand(len(chosen), -1, -1), allowed_by_slot(open_items, chosen)
    )
    wanted = torch.tensor(list(expected.values()), dtype=torch.float64)
    torch.testing.assert_close(policy.log_prob(chosen).exp(), wanted)


@pytest.mark.parametrize("slots", [2, 3])
def test_the_divergence_of_lists_is_the_expected_sum_over_slots(slots: int):
    """E_new[sum over slots] along new's lists is the divergence of the two over whole lists."""
    new, old = logits_of(5, slots, 4), logits_of(6, slots, 4)
    ours, theirs = plackett_luce(new, [0, 1, 2, 3]), plackett_luce(old, [0, 1, 2, 3])
    whole = sum(p * math.log(p / theirs[chosen]) for chosen, p in ours.items())
    chosen = torch.tensor(list(ours))
    allowed = allowed_by_slot(torch.ones(len(chosen), 4, dtype=torch.bool), chosen)
    shape = (len(chosen), -1, -1)
    policies = [ItemPolicy.from_logits(logits.expand(shape), allowed) for logits in (new, old)]
    by_list = policies[0].kl_from(policies[1])
    probabilities = torch.tensor(list(ours.values()), dtype=torch.float64)
    assert float(probabilities @ by_list) == pytest.approx(whole)


def candidates_of(kind: str) -> CandidateSet:
    items = torch.tensor([[0, 1, 2, 3], [3, -1, 0, 1], [1, 0, 3, 2]])
    if kind == "features":
        return ScoredCandidates(items, logits_of(7, 3, 4, 2))
    return CatalogueCandidates(items, logits_of(8, 4, 2))


@pytest.mark.parametrize("kind", ["features", "catalogue"])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_fisher_is_the_hessian_of_the_divergence(kind: str):
    """In the outputs of an actor; two steps are in the first state, with different items open."""
    candidate_set, slots, temperature = candidates_of(kind), 2, 0.7
    outputs = logits_of(9, 3, slots * 2)
    steps = torch.tensor([0, 1, 2, 0])
    chosen = torch.tensor([[0, 2], [0, 3], [3, 1], [1, 0]])
    open_items = (candidate_set.items >= 0)[steps].clone()
    open_items[3, 3] = False
    allowed = allowed_by_slot(open_items, chosen)
    old = policy_at(candidate_set, outputs, steps, allowed, temperature)

    def divergence(candidate: Tensor) -> Tensor:
        return policy_at(candidate_set, candidate, steps, allowed, temperature).kl_from(old).sum()

    hessian = torch.func.hessian(divergence)(outputs).reshape(12, 12)
    tangent = logits_of(10, 3, 4)
    by_logits = candidate_set.logits(rows_of(tangent, slots))[steps] / temperature
    by_step = old.fisher(by_logits)
    pulled = candidate_set.take(steps).pull(by_step).flatten(1) / temperature
    product = torch.zeros(3, 4, dtype=torch.float64).index_add(0, steps, pulled)
    expected = (hessian @ tangent.flatten()).view(3, 4)
    torch.testing.assert_close(product, expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().max() > 0.01


def test_rows_are_the_outputs_slot_by_slot():
    assert rows_of(torch.arange(8.0).view(2, 4), 2).tolist() == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
    ]


def test_a_slot_may_not_choose_what_an_earlier_one_has():
    open_items = torch.tensor([[True, True, True, False], [True, False, True, True]])
    chosen = torch.tensor([[1, 0, 2], [3, -1, 0]])
    allowed = allowed_by_slot(open_items, chosen)
    first, second = allowed.int().tolist()
    assert first == [[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 0]]
    assert second == [[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]]  # an empty slot closes nothing
    assert close_all(open_items, chosen).int().tolist() == [[0, 0, 0, 0], [0, 0, 1, 0]]
    assert open_items.int().tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_lists_are_drawn_as_often_as_they_should(slots: int):
    logits, n = logits_of(20 + slots, slots, 4).float(), 20_000
    expected = plackett_luce(logits, [0, 1, 3])
    open_items = torch.tensor([True, True, False, True]).expand(n, 4)
    generator = torch.Generator().manual_seed(slots)
    drawn = draw(logits.expand(n, -1, -1), open_items, generator)
    lists, counts = drawn.unique(dim=0, return_counts=True)
    found = dict(zip(map(tuple, lists.tolist()), counts.tolist(), strict=True))
    assert set(found) <= set(expected)  # nothing twice, nothing closed
    observed = [found.get(chosen, 0) for chosen in expected]
    assert chisquare(observed, [n * p for p in expected.values()]).pvalue > 1e-3
    again = draw(logits.expand(n, -1, -1), open_items, torch.Generator().manual_seed(slots))
    assert torch.equal(drawn, again)


def test_where_nothing_is_open_nothing_is_drawn():
    open_items = torch.tensor([[False, False, False], [False, True, False], [True, True, False]])
    drawn = draw(torch.zeros(3, 3, 3), open_items, torch.Generator().manual_seed(0))
    assert drawn[0].tolist() == [-1, -1, -1]
    assert drawn[1].tolist() == [1, -1, -1]
    assert sorted(drawn[2].tolist()) == [-1, 0, 1]
    assert drawn[2, 2] == -1
    assert open_items.int().tolist() == [[0, 0, 0], [0, 1, 0], [1, 1, 0]]
    policy = ItemPolicy.from_logits(torch.zeros(3, 3, 3), allowed_by_slot(open_items, drawn))
    expected = torch.tensor([0.0, 0.0, math.log(0.5)])
    torch.testing.assert_close(policy.log_prob(drawn), expected)


def test_a_temperature_divides_the_logits():
    candidate_set = candidates_of("features")
    outputs, steps = logits_of(11, 3, 2), torch.tensor([2, 0])
    allowed = torch.ones(2, 1, 4, dtype=torch.bool)
    policy = policy_at(candidate_set, outputs, steps, allowed, 0.25)
    for row, state in enumerate([2, 0]):
        logits = candidate_set.features[state] @ outputs[state] / 0.25
        torch.testing.assert_close(policy.probs[row, 0], logits.softmax(0))


def test_propensities_of_two_by_hand():
    """Weights 1, 2, 4 and 8 at temperature 0.5; the last item is not open."""
    values = 0.5 * torch.tensor([1.0, 2.0, 4.0, 8.0]).log()
    values[3] = -torch.inf
    lists = torch.tensor([[2, 0], [2, 1], [0, 1], [1, -1], [-1, -1]])
    found = propensities([values.expand(5, 4)] * 2, lists, 0.5)
    by_hand = [[4 / 7, 1 / 3], [4 / 7, 2 / 3], [1 / 7, 2 / 6], [2 / 7, 1], [1, 1]]
    torch.testing.assert_close(found, torch.tensor(by_hand))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_with_noise_lists_are_shown_as_often_as_their_propensities_say(
    slots: int, temperature: float
):
    n = 40_000
    values = [row.float().expand(n, 5).clone() for row in logits_of(30 + slots, slots, 5)]
    for slot in values:
        slot[:, 2] = -torch.inf
    noisy = explored(values, temperature, torch.Generator().manual_seed(slots))
    first = noisy[0].argmax(1, keepdim=True)
    lists = first
    if slots == 2:
        second = noisy[1].scatter(1, first, -torch.inf).argmax(1, keepdim=True)
        lists = torch.cat([first, second], dim=1)
    probabilities = propensities(values, lists, temperature).prod(1)
    kinds, which, counts = lists.unique(dim=0, return_inverse=True, return_counts=True)
    expected = torch.zeros(len(kinds)).scatter(0, which, probabilities)
    assert 2 not in kinds
    assert float(expected.sum()) == pytest.approx(1, abs=1e-3)  # every list was shown
    errors = (expected * (1 - expected) / n).sqrt()
    assert ((counts / n - expected).abs() < 4 * errors).all()
