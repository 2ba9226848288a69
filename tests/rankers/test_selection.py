"""Settings that suit the log, weights that help: by hand, by loops and by what made the likes."""

import math

import numpy as np
import pytest
import torch

from fairhorizon import ranking
from fairhorizon.data.frames import from_arrays
from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.histories import UserItems
from fairhorizon.metrics.accuracy import ndcg
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ease import RecentEase
from fairhorizon.rankers.itemknn import RecentItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.rankers.selection import (
    SEARCH_GRID,
    LaterBlock,
    LaterPart,
    Shortlists,
    frequent_part,
    select_settings,
    select_weights,
)
from fairhorizon.ranking import standardised
from fairhorizon.settings import changed
from fairhorizon.vocabulary import Protocol

STANDARD = Protocol.STANDARD


def part_of(source: str) -> LaterPart:
    return LaterPart.from_training(split(load(source), ties=0), STANDARD, seed=0)


def test_the_later_part_is_the_last_fifth_of_the_training_items_and_the_one_before():
    users = np.repeat([0, 1], [10, 5])
    items = np.concatenate([np.arange(10), np.arange(5)])
    log = from_arrays(users, items)
    part = LaterPart.from_training(Split(log, log.take([]), log.take([])), STANDARD, seed=0)
    assert part.users.tolist() == [0, 1]
    (block,) = part.blocks()
    assert block.liked[0].nonzero().squeeze(1).tolist() == [7, 8, 9]
    assert block.liked[1].nonzero().squeeze(1).tolist() == [3, 4]
    assert block.blocked[0].nonzero().squeeze(1).tolist() == list(range(7))
    assert block.queue[1].tolist() == [10, 10, 10, 10, 0, 1, 2]
    everything = LaterPart.from_training(
        Split(log, log.take([]), log.take([])), Protocol.PAPER, seed=0
    )
    assert not next(everything.blocks()).blocked.any()


def test_ndcg_is_that_of_the_metrics():
    part = part_of("synthetic:users=40,items=50,interactions_per_user=20")
    ranker = Popularity().fit(part.split)
    (block,) = part.blocks()
    shown = block.scores(ranker).masked_fill(block.blocked, -torch.inf).topk(20).indices
    hits = block.liked.gather(1, shown).numpy()
    expected = ndcg(hits, block.liked.sum(1).numpy(), 20)
    np.testing.assert_allclose(part.ndcg(ranker), expected, atol=1e-6)


def test_users_in_blocks_have_the_figures_of_all_at_once(monkeypatch: pytest.MonkeyPatch):
    part = part_of("synthetic:users=40,items=50,interactions_per_user=20")
    rankers = [RecentEase().fit(part.split), RecentItemKnn().fit(part.split)]
    assert len(list(part.blocks())) == 1
    alone = part.ndcg(rankers[0])
    together = Shortlists.from_rankers(rankers, part)
    monkeypatch.setattr(ranking, "SCORES_AT_ONCE", 7 * 50)
    assert len(list(part.blocks())) == math.ceil(len(part.users) / 7)
    torch.testing.assert_close(part.ndcg(rankers[0]), alone)
    blocks = Shortlists.from_rankers(rankers, part)
    torch.testing.assert_close(blocks.features, together.features)
    assert torch.equal(blocks.liked, together.liked)
    assert torch.equal(blocks.ideal, together.ideal)


def test_users_with_short_histories_count_only_where_there_are_no_others():
    log = from_arrays([0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 2, 3])
    both = LaterPart.from_split(
        earlier_part(Split(log, log.take([]), log.take([]))),
        UserItems.from_log(log),
        STANDARD,
        seed=0,
    )
    assert both.users.tolist() == [1]
    short = from_arrays([0, 0, 1, 1], [0, 1, 1, 0])
    part = LaterPart.from_training(Split(short, short.take([]), short.take([])), STANDARD, seed=0)
    assert part.users.tolist() == [0, 1]


def test_a_smaller_log_has_the_most_frequent_items_and_keeps_ids_and_order():
    log = from_arrays(["a", "a", "b", "b", "b", "c"], ["x", "y", "y", "z", "x", "y"])
    parts = Split(log, log.take([0]), log.take([]))
    small = frequent_part(parts, most_users=3, most_items=2, seed=0)
    assert small.train.item_ids.tolist() == ["x", "y"]
    assert small.train.user_ids[small.train.users].tolist() == ["a", "a", "b", "b", "c"]
    assert small.train.item_ids[small.train.items].tolist() == ["x", "y", "y", "x", "y"]
    assert len(small.validation) == 1
    assert frequent_part(parts, most_users=2, most_items=3, seed=0).train.n_users == 2


def test_every_first_alternative_is_the_default_and_no_recency_is_one_of_them():
    for name, groups in SEARCH_GRID.items():
        default = RANKERS[name].config_class()
        for alternatives in groups:
            assert changed(default, alternatives[0]) == default
        recency = [
            settings.get("half_life", 1) is None or settings.get("decays") == (1.0,)
            for settings in groups[0]
        ]
        assert any(recency) or name in ("ease", "itemknn")  # which have none


@pytest.mark.parametrize(
    ("source", "recent"),
    [
        ("synthetic-trends:users=300,items=200,interactions_per_user=30", True),
        ("synthetic-baskets:users=150,items=200,baskets_per_user=10", False),
    ],
)
def test_recency_is_used_where_it_helps(source, recent):
    part = part_of(source)
    ease, knn = select_settings(RecentEase(), part, {}), select_settings(RecentItemKnn(), part, {})
    assert (ease.half_life is not None) == (knn.half_life is not None) == recent


def test_settings_are_the_best_of_those_tried():
    """By a loop over the first alternatives for ridge."""
    part = part_of("synthetic-trends:users=200,items=100,interactions_per_user=20")

    def value(config):
        return float(part.ndcg(Ridge(config).fit(part.split)).mean())

    chosen = select_settings(Ridge(), part, {})
    assert value(chosen) >= max(
        value(changed(Ridge().config, settings)) for settings in SEARCH_GRID["ridge"][0]
    )
    assert value(chosen) >= max(
        value(changed(chosen, settings)) for settings in SEARCH_GRID["ridge"][-1]
    )


@pytest.mark.parametrize("method", sorted(SEARCH_GRID))
def test_fits_that_share_what_they_have_in_common_are_those_of_fits_alone(method: str) -> None:
    """From the first alternative to the last and back, so that every part is used again."""
    part = part_of("synthetic-trends:users=60,items=50,interactions_per_user=15")
    kind, shared = RANKERS[method], {}
    settings = [one for group in SEARCH_GRID[method] for one in group]
    for config in (changed(kind().config, one) for one in (*settings, *reversed(settings))):
        sharing, alone = kind(config), kind(config).fit(part.split)
        sharing.shared = shared
        sharing.fit(part.split)
        for name, value in alone.tensors().items():
            torch.testing.assert_close(sharing.tensors()[name], value, rtol=0, atol=0)
    assert len(shared) < 2 * len(settings)


def shortlists_of(features: torch.Tensor, liked: torch.Tensor) -> Shortlists:
    users = torch.arange(len(liked))
    block = LaterBlock(users, torch.zeros(0), blocked=torch.zeros_like(liked), liked=liked)
    return Shortlists.from_scores(list(features), block)


def test_weights_find_the_sum_that_made_the_likes():
    """Likes are the best items by a + b / 2; a third ranker is noise and gets no weight."""
    generator = torch.Generator().manual_seed(0)
    a, b, noise = torch.randn(3, 400, 60, generator=generator)
    truth = a + 0.5 * b
    liked = truth >= truth.topk(10).values[:, -1:]
    shortlists = shortlists_of(torch.stack([a, b, noise]), liked)
    weights = select_weights([shortlists])
    assert weights[0] == 1
    assert weights[1] == pytest.approx(0.5, abs=0.1)
    assert weights[2] < 0.1
    alone = shortlists.ndcg(torch.tensor([1.0, 0.0, 0.0]))
    assert shortlists.ndcg(weights).mean() > alone.mean() + 0.05


def test_without_a_gain_beyond_chance_the_best_ranker_stays_alone():
    generator = torch.Generator().manual_seed(1)
    good = torch.randn(200, 40, generator=generator)
    liked = good >= good.topk(5).values[:, -1:]
    noise = torch.randn(200, 40, generator=generator)
    assert select_weights([shortlists_of(torch.stack([noise, good]), liked)]).tolist() == [0, 1]


def test_shortlists_give_the_lists_of_the_whole_catalogue():
    part = part_of("synthetic:users=60,items=150,interactions_per_user=30")
    (block,) = part.blocks()
    scores = [block.scores(ranker.fit(part.split)) for ranker in (RecentEase(), RecentItemKnn())]
    shortlists = Shortlists.from_scores(scores, block)
    for weights in ([1.0, 0.0], [0.0, 1.0]):
        total = sum(w * standardised(s) for w, s in zip(weights, scores, strict=True))
        torch.testing.assert_close(shortlists.ndcg(torch.tensor(weights)), block.ndcg(total))
