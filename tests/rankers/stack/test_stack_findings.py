"""What a fit says about a log, in three lines, by hand."""

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ease import RecentEaseConfig
from fairhorizon.rankers.gru4rec import Gru4RecConfig
from fairhorizon.rankers.itemknn import RecentItemKnnConfig
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ridge import RidgeConfig
from fairhorizon.rankers.stack.findings import Findings, Member
from fairhorizon.rankers.stack.later_part import LaterPart
from fairhorizon.rankers.stack.members import StackTask, weighed_members
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import Protocol

NONE = Popularity().config
ALWAYS = RecentEaseConfig(half_life=None, training_half_life=None)
RECENT = RecentItemKnnConfig()


def log_of(*lengths: int, tied: int = 0) -> Split:
    """A training log of histories of these lengths; the first `tied` rows of each share a time."""
    users = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.arange(length) for length in lengths])
    times = np.concatenate([np.maximum(np.arange(length), tied - 1) for length in lengths])
    log = from_arrays(users, items, timestamps=times)
    return Split(log, log.take([]), log.take([]))


def test_three_lines_by_hand() -> None:
    members = (
        Member("ease:recent", 1.0, RecentEaseConfig(l2=1000.0, half_life=None), 0.31236),
        Member("ridge", 0.625, RidgeConfig(decays=(0.93, 1.0)), 0.3),
        Member("itemknn:recent", 0.1, RECENT, 0.25),
        Member("popularity", 0.0, NONE, 0.125),
    )
    found = Findings.of(log_of(2, 3, 12), members, 0.33333)
    assert found.lines == (
        "log: short histories (median 3 training items), where recent items say more to some "
        "rankers",
        "rankers, by weight: ease:recent 1 (l2=1000 half_life=None), ridge 0.62 (decays=0.93/1), "
        "itemknn:recent 0.1; without popularity",
        "NDCG@20 of what came later in training, and of validation: ease:recent 0.3124, "
        "ridge 0.3000, itemknn:recent 0.2500, popularity 0.1250; together 0.3333",
    )
    assert found.stored() == dict(zip(("kind", "panel", "accuracy"), found.lines, strict=True))
    assert found.members == members


def test_the_protocol_is_no_finding() -> None:
    config = Gru4RecConfig(protocol=Protocol.PAPER, dim=32)
    assert str(Member("gru4rec", 0.5, config, 0.1)) == "gru4rec 0.5 (dim=32)"


@pytest.mark.parametrize(
    ("lengths", "tied", "words"),
    [
        ((9,), 0, "short histories (median 9 training items)"),
        ((10,), 0, "medium histories (median 10 training items)"),
        ((39, 40), 0, "medium histories (median 39.5 training items)"),
        ((40,), 0, "long histories (median 40 training items)"),
        ((20,), 2, "medium histories (median 20 training items)"),  # a tenth and no more
        ((20,), 5, "medium histories (median 20 training items), 25 % of the rows tied in time"),
    ],
)
def test_the_kind_of_a_log(lengths: tuple[int, ...], tied: int, words: str) -> None:
    alone = (Member("popularity", 1.0, NONE, 0.1),)
    assert Findings.of(log_of(*lengths, tied=tied), alone, 0.1).kind == f"log: {words}"


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ((ALWAYS, NONE), "where recent items say no more than others"),
        ((RECENT, NONE), "where recent items say more"),
        ((RidgeConfig(decays=(1.0,)), ALWAYS), "where recent items say no more than others"),
        ((RidgeConfig(decays=(0.9, 1.0)), RECENT), "where recent items say more"),
        ((RECENT, ALWAYS), "where recent items say more to some rankers"),
    ],
)
def test_recency_is_that_of_the_rankers_with_a_weight(
    configs: tuple[Settings, ...], words: str
) -> None:
    members = [Member("some", 1.0, config, 0.1) for config in configs]
    without = Member("other", 0.0, ALWAYS if words.endswith("more") else RECENT, 0.0)
    kind = Findings.of(log_of(5), (*members, without), 0.1).kind
    assert kind == f"log: short histories (median 5 training items), {words}"


def test_figures_are_over_both_parts(market: Split) -> None:
    """What came later in training, and validation: every user of either counts once."""
    found = weighed_members([Popularity()], StackTask(market, Protocol.STANDARD, 0)).findings
    later = LaterPart.of_training(market, Protocol.STANDARD, seed=0)
    last = LaterPart.of(market, UserItems.of(market.validation), Protocol.STANDARD, seed=0)
    values = torch.cat([part.ndcg(Popularity().fit(part.split)) for part in (last, later)])
    assert found.members[0].ndcg == pytest.approx(float(values.mean()), rel=1e-6)
    assert found.panel == "rankers, by weight: popularity 1"
    assert found.accuracy.endswith(f"{values.mean():.4f}; together {values.mean():.4f}")
