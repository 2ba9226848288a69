"""What online re-rankers share: candidates, batches of users, how exposure comes to its target."""

from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError

from fairhorizon.rerank.fairco import FairCo
from fairhorizon.rerank.online import GroupCandidates, UserBatch
from fairhorizon.rerank.pmmf import Pmmf
from fairhorizon.rerank.tfrom import Tfrom

KINDS = [Pmmf, FairCo, Tfrom]
USERS, ITEMS, LENGTH = 1200, 60, 10
GROUP = torch.arange(ITEMS) < 15


def random_candidates(seed=3, lead=0.3):
    """Relevances of all items in (0, 1), in steps, so that some are equal; the group leads."""
    generator = torch.Generator().manual_seed(seed)
    relevances = torch.rand(USERS, ITEMS, generator=generator, dtype=torch.float64)
    relevances = ((relevances + lead * GROUP) * 50).round() / 65
    sides = []
    for members in (GROUP, ~GROUP):
        only = relevances.masked_fill(~members, -torch.inf)
        best = only.sort(dim=1, descending=True, stable=True)
        sides.append((best.indices[:, :LENGTH], best.values[:, :LENGTH]))
    items, values = (torch.stack(both) for both in zip(*sides, strict=True))
    return GroupCandidates(items, values.float(), values), relevances


CANDIDATES, RELEVANCES = random_candidates()
OWN = RELEVANCES.sort(dim=1, descending=True, stable=True).indices[:, :LENGTH]


def serve(reranker, candidates=CANDIDATES, place_by_place=False):
    """All users once, and the ledger at the end."""
    ledger, lists = reranker.new_ledger(USERS), []
    for users in reranker.batches(USERS):
        batch = UserBatch(
            candidates.take(users), users, LENGTH, reranker.target_share(candidates, GROUP)
        )
        if place_by_place:
            lists.append(torch.stack([reranker.next(batch, ledger) for _ in range(LENGTH)], 1))
            reranker.record(batch, ledger)
        else:
            lists.append(reranker.lists(batch, ledger))
    return torch.cat(lists), ledger


def share(lists):
    return float(GROUP[lists].double().mean())


def weighted_share(lists):
    weights = 1 / torch.log2(2 + torch.arange(LENGTH, dtype=torch.float64))
    return float((GROUP[lists] * weights).sum() / weights.sum() / len(lists))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [{"share": 1.0}, {"share": 0.99}])
def test_a_target_beyond_what_the_group_gets_changes_nothing(kind, settings):
    assert 0.6 < share(OWN) < 0.62
    lists, _ = serve(kind(**settings))
    assert torch.equal(lists, OWN)


def test_strength_0_changes_nothing():
    assert torch.equal(serve(FairCo(share=0.2, strength=0))[0], OWN)
    assert torch.equal(serve(FairCo(share=0.0, strength=0))[0], OWN)


@pytest.mark.parametrize("form", ["equal", "at-most"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_share_the_group_is_never_shown(kind, form):
    lists, _ = serve(kind(share=0.0, form=form))
    assert share(lists) == 0
    assert (lists >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_shares_go_both_ways(kind):
    """A group that should have everything is shown wherever it has an item."""
    assert share(serve(kind(share=1.0, form="equal"))[0]) == 1
    measured = weighted_share if kind is not Pmmf else share
    lists, _ = serve(kind(share=0.8, form="equal"))
    assert measured(lists[-400:]) == pytest.approx(0.8, abs=0.03)
    assert share(serve(kind(share=0.8))[0]) == pytest.approx(share(OWN))  # at most


@pytest.mark.parametrize("target", [0.15, 0.3, 0.45])
@pytest.mark.parametrize(("kind", "given"), [(Pmmf, {"rate": 0.05}), (FairCo, {}), (Tfrom, {})])
def test_exposure_approaches_the_target_as_users_arrive(kind, given, target):
    lists, _ = serve(kind(share=target, **given))
    if kind is Tfrom:  # exact over all users, up to a showing
        assert target - 1 / USERS < weighted_share(lists) <= target + 1e-9
    else:
        measured = share if kind is Pmmf else weighted_share
        assert measured(lists[-400:]) == pytest.approx(target, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_grows_with_the_level(kind):
    shares = [share(serve(kind().at_level(level))[0]) for level in (0, 0.2, 0.4, 0.6, 1)]
    assert all(low <= high + 0.01 for low, high in pairwise(shares))
    assert shares[1] < shares[2] < shares[4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [{"share": 0.3}, {"share": 0.8, "form": "equal"}])
def test_place_by_place_is_the_list_at_once(kind, settings):
    at_once, one = serve(kind(**settings))
    serve_interactively, other = serve(kind(**settings), place_by_place=True)
    assert torch.equal(at_once, serve_interactively)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_have_every_item_once_and_the_best_of_each_side(kind):
    lists, _ = serve(kind(share=0.3))
    assert (lists.sort(dim=1).values.diff(dim=1) > 0).all()
    for user in range(0, USERS, 100):
        for side, members in enumerate((GROUP, ~GROUP)):
            of_side = lists[user][members[lists[user]]].tolist()
            assert of_side == CANDIDATES.items[side, user, : len(of_side)].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_side_lacks_the_other_gives(kind):
    """Two items of the group and one of the rest for three users with four places."""
    items = torch.tensor([[[0, 1]] * 3, [[5, -1]] * 3])
    values = torch.tensor([[[0.9, 0.8]] * 3, [[0.3, -torch.inf]] * 3], dtype=torch.float64)
    candidates, users = GroupCandidates(items, values.float(), values), torch.arange(3)
    for target in (0.0, 0.2, 1.0):
        reranker = kind(share=target)
        lists = reranker.lists(UserBatch(candidates, users, 4, target), reranker.new_ledger(3))
        assert [sorted(one) for one in lists.tolist()] == [[-1, 0, 1, 5]] * 3
        assert lists[:, 3].tolist() == [-1] * 3


def test_targets():
    reranker = Tfrom(share=0.3)
    assert reranker.target_share(CANDIDATES, GROUP) == reranker.share_limit(GROUP) == 0.3
    parity = Tfrom(target="parity")
    assert parity.target_share(CANDIDATES, GROUP) == parity.share_limit(GROUP) == 0.25
    values = torch.tensor([[[0.9, 0.6]], [[0.5, -torch.inf]]], dtype=torch.float64)
    candidates = GroupCandidates(torch.tensor([[[0, 1]], [[5, -1]]]), values.float(), values)
    merit = Tfrom(target="merit")
    assert merit.target_share(candidates, GROUP) == pytest.approx(1.5 / 2.0)
    assert merit.share_limit(GROUP) == 1  # not known before the users are
    assert merit.at_level(0.2) == Tfrom(share=0.2)
    with pytest.raises(ValidationError):
        merit.at_level(1.2)


def test_a_like_changes_what_is_left_of_the_batch():
    """The first user's candidates are other ones from the second place on."""
    values = torch.tensor([[[0.9, 0.8], [0.9, 0.8]], [[0.5, 0.4], [0.5, 0.4]]]).double()
    items = torch.tensor([[[0, 1], [0, 1]], [[5, 6], [5, 6]]])
    batch = UserBatch(GroupCandidates(items, values.float(), values), torch.arange(2), 3, 1.0)
    reranker = FairCo(share=1.0)
    ledger = reranker.new_ledger(2)
    assert reranker.next(batch, ledger).tolist() == [0, 0]
    new = torch.tensor([[[0.2, 0.1]], [[0.7, 0.6]]]).double()
    batch.replace_candidates(
        torch.tensor([0]), GroupCandidates(torch.tensor([[[2, 3]], [[7, 8]]]), new.float(), new)
    )
    assert reranker.next(batch, ledger).tolist() == [7, 1]
    assert reranker.next(batch, ledger).tolist() == [8, 5]
    assert batch.exposure().tolist() == pytest.approx([3 / 3, 3 / 3])
