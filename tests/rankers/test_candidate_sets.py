"""What a policy over items chooses from: by hand, and both kinds of candidate sets compared."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.fcpo.networks import Actor, EmbeddedItems, ItemVectors, StateEncoder
from fairhorizon.histories import TableSets
from fairhorizon.rankers.candidates import CatalogueCandidates, ScoredCandidates, best_of_groups

ITEMS = torch.tensor([[2, -1, 0], [1, 3, -1]])
FEATURES = torch.tensor(
    [[[1.0, 0.0], [9.0, 9.0], [2.0, -1.0]], [[0.0, 1.0], [1.0, 1.0], [5.0, 5.0]]]
)


def test_a_logit_is_a_row_of_weights_times_the_features_of_an_item():
    weights = torch.tensor([[[3.0, 1.0]], [[-1.0, 2.0]]])
    candidate_set = ScoredCandidates(ITEMS, FEATURES)
    assert candidate_set.logits(weights).tolist() == [[[3.0, 36.0, 5.0]], [[2.0, 1.0, 5.0]]]
    by_logits = torch.tensor([[[1.0, 0.0, 2.0]], [[1.0, -1.0, 0.0]]])
    assert candidate_set.pull(by_logits).tolist() == [[[5.0, -2.0]], [[-1.0, 0.0]]]


def test_pull_is_the_transpose_of_logits():
    """<u, logits(w)> = <pull(u), w> for any u and w."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    items = torch.arange(5).expand(4, 5)
    for candidate_set in (
        ScoredCandidates(items, numbers(4, 5, 3)),
        CatalogueCandidates(items, numbers(5, 3)),
    ):
        w, u = numbers(4, 2, 3), numbers(4, 2, 5)
        left, right = (u * candidate_set.logits(w)).sum(), (candidate_set.pull(u) * w).sum()
        torch.testing.assert_close(left, right)


def test_a_catalogue_has_candidates_with_the_same_features_in_every_state():
    generator = torch.Generator().manual_seed(1)
    items, vectors = torch.arange(6).repeat(4, 1), torch.randn(6, 3, generator=generator)
    catalogue, plain = (
        CatalogueCandidates(items, vectors),
        ScoredCandidates(items, vectors.expand(4, 6, 3)),
    )
    w, u = torch.randn(4, 2, 3, generator=generator), torch.randn(4, 2, 6, generator=generator)
    torch.testing.assert_close(catalogue.logits(w), plain.logits(w))
    torch.testing.assert_close(catalogue.pull(u), plain.pull(u))


def test_a_catalogue_may_have_other_groups_in_every_state():
    generator = torch.Generator().manual_seed(2)
    vectors, blocked = torch.randn(6, 3, generator=generator), torch.zeros(2, 6, dtype=torch.bool)
    features = ItemVectors(vectors, torch.arange(6) < 2)
    items = features.candidate_items(torch.arange(2), TableSets(blocked), 1)
    shown = torch.tensor([[3], [0]])
    before = features.with_shown(items, shown)
    features.relabel(torch.arange(6) > 2)
    after = features.with_shown(items, shown)
    assert isinstance(before, CatalogueCandidates)
    joined = CatalogueCandidates.join([before, after])
    labels = torch.stack([torch.arange(6) < 2] * 2 + [torch.arange(6) > 2] * 2)
    column = -labels.float()[:, :, None]
    plain = ScoredCandidates(joined.items, torch.cat([vectors.expand(4, 6, 3), column], dim=2))
    w, u = torch.randn(4, 2, 4, generator=generator), torch.randn(4, 2, 6, generator=generator)
    torch.testing.assert_close(joined.logits(w), plain.logits(w))
    torch.testing.assert_close(joined.pull(u), plain.pull(u))
    some = torch.tensor([3, 0])
    torch.testing.assert_close(joined.take(some).logits(w[some]), plain.logits(w)[some])
    free = ItemVectors(vectors).with_shown(items, shown)
    torch.testing.assert_close(free.logits(w[:2, :, :3]), w[:2, :, :3] @ vectors.T)


def test_take_and_join():
    first, second = (
        ScoredCandidates(ITEMS, FEATURES),
        ScoredCandidates(ITEMS[:1] + 1, -FEATURES[:1]),
    )
    joined = ScoredCandidates.join([first, second])
    assert joined.items.tolist() == [[2, -1, 0], [1, 3, -1], [3, 0, 1]]
    assert torch.equal(joined.features, torch.cat([FEATURES, -FEATURES[:1]]))
    taken = joined.take(torch.tensor([2, 0, 2]))
    assert taken.items[:, 0].tolist() == [3, 2, 3]
    assert taken.features[:, 0, 0].tolist() == [-1.0, 1.0, -1.0]

    vectors = torch.randn(4, 2)
    catalogue = CatalogueCandidates(ITEMS, vectors)
    twice = CatalogueCandidates.join([catalogue, catalogue.take(torch.tensor([1]))])
    assert twice.items.tolist() == [[2, -1, 0], [1, 3, -1], [1, 3, -1]]
    assert twice.vectors is vectors


def test_an_actor_over_embeddings_may_choose_all_that_is_not_blocked():
    torch.manual_seed(0)
    vectors = torch.randn(4, 2)
    encoder = StateEncoder(torch.randn(3, 2), vectors, 4, 1)
    blocked = torch.tensor([[False, True, False, False], [True, False, False, True]])
    sensitive = torch.tensor([True, False, False, True])
    users, queues = torch.tensor([0, 2]), torch.zeros(2, 3, dtype=torch.long)

    def candidate_set(priced: bool) -> CatalogueCandidates:
        actor = Actor(
            encoder, EmbeddedItems(encoder, priced), list_length=2, hidden=(4, 4), initial_std=1.0
        )
        outputs = actor(users, queues)
        assert outputs.shape == (2, 2 * 2 * (2 + priced))
        found = actor.items.candidate_set(users, queues, blocked, sensitive)
        assert isinstance(found, CatalogueCandidates)
        return found

    assert candidate_set(priced=False).items.tolist() == [[0, -1, 2, 3], [-1, 1, 2, -1]]
    assert torch.equal(candidate_set(priced=False).vectors, vectors)
    assert torch.equal(candidate_set(priced=True).vectors[:, :2], vectors)
    assert candidate_set(priced=True).vectors[:, 2].tolist() == [-1.0, 0.0, 0.0, -1.0]


def test_a_price_is_what_an_item_of_the_group_loses():
    vectors, weights = torch.eye(3), torch.tensor([[1.0, 2.0, 3.0, 0.5]])
    features = ItemVectors(vectors, torch.tensor([True, False, True]))
    assert features.scores(weights).tolist() == [[0.5, 2.0, 2.5]]
    features.relabel(torch.tensor([False, True, False]))
    assert features.scores(weights).tolist() == [[1.0, 1.5, 3.0]]
    assert torch.equal(vectors, torch.eye(3))
    free = ItemVectors(vectors)
    free.relabel(torch.tensor([True, True, True]))  # no price, no effect
    assert free.scores(weights[:, :3]).tolist() == [[1.0, 2.0, 3.0]]


SENSITIVE = torch.tensor([True, False, True, False, False, True])


def best(scores: list[list[float]], count: int, *blocked: int) -> list[list[int]]:
    mask = torch.zeros(1, 6, dtype=torch.bool)
    mask[0, list(blocked)] = True
    tables = [torch.tensor([row]) for row in scores]
    return best_of_groups(tables, mask, SENSITIVE, count).tolist()


def test_the_best_of_each_group_by_hand():
    rising, falling = [0.0, 1, 2, 3, 4, 5], [5.0, 4, 3, 2, 1, 0]
    assert best([rising], 1) == [[4, 5]]
    assert best([rising], 2) == [[2, 3, 4, 5]]
    assert best([rising, falling], 1) == [[0, 1, 4, 5]]
    assert best([rising, falling], 2) == [[0, 1, 2, -1, 3, -1, 4, 5]]  # 2 and 3 were named twice
    assert best([rising, rising, rising], 1) == [[4, -1, -1, 5, -1, -1]]


def test_blocked_items_and_small_groups_leave_gaps():
    rising = [0.0, 1, 2, 3, 4, 5]
    assert best([rising], 1, 5) == [[2, 4]]
    assert best([rising], 2, 5, 2) == [[-1, 0, 3, 4]]
    assert best([rising], 2, 0, 2, 5) == [[-1, -1, 3, 4]]
    assert best([rising], 99) == [[0, 1, 2, 3, 4, 5]]
    assert best([rising], 99, *range(6)) == [[-1] * 6]
    no_group = best_of_groups([torch.tensor([rising])], torch.zeros(1, 6) > 0, SENSITIVE < 0, 2)
    assert no_group.tolist() == [[4, 5]]  # where the group is empty, there are only the others


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_best_of_groups_equal_a_slow_search(data: st.DataObject):
    users, items = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    seed, count = data.draw(st.integers(0, 10**6)), data.draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.rand(users, items, generator=generator) for _ in range(3)]
    blocked = torch.rand(users, items, generator=generator) < 0.4
    sensitive = torch.rand(items, generator=generator) < 0.5
    found = best_of_groups(scores, blocked, sensitive, count)
    for user in range(users):
        expected = set()
        for values in scores:
            for side in (True, False):
                open_items = [
                    i for i in range(items) if sensitive[i] == side and not blocked[user, i]
                ]
                expected |= set(sorted(open_items, key=lambda i: -values[user, i])[:count])
        named = [item for item in found[user].tolist() if item >= 0]
        assert sorted(named) == sorted(expected)
        assert len(named) == len(set(named))
