import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from fairhorizon.errors import ConfigError
from fairhorizon.metrics.summary import ALWAYS, METRICS, MeasuredLists, summarise

LISTS = np.array([[0, 2], [1, 0], [0, -1]])
RELEVANT = csr_array(np.array([[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]))
LOG = csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]))
POPULAR = np.array([True, False, False, False])

# at 1, shown: 0, 1, 0 -> counts 2, 1, 0, 0; at 2, shown: 0, 2, 1, 0, 0 -> counts 3, 1, 1, 0
EXPECTED = {
    "recall@1": (0 + 1) / 2,
    "f1@1": (0 + 2 / 2) / 2,
    "ndcg@1": (0 + 1) / 2,
    "gini@1": 14 / (2 * 16 * 3 / 4),
    "popularity_rate@1": 2 / 3,
    "coverage@1": 1 / 2,
    "exposure_ratio@1": 2,
    "demographic_parity_gap@1": 2 - 1 / 3,
    "worst_off@1": (1 / 3) / (3 / 4),
    "exact_k_violation@1": 2 / 3,
    "recall@2": (1 / 2 + 1) / 2,
    "f1@2": (2 / 4 + 2 / 3) / 2,
    "ndcg@2": (1 / (math.log2(3) + 1) + 1) / 2,
    "gini@2": 18 / (2 * 16 * 5 / 4),
    "popularity_rate@2": 3 / 5,
    "coverage@2": 3 / 4,
    "exposure_ratio@2": 3 / 2,
    "demographic_parity_gap@2": 3 - 2 / 3,
    "worst_off@2": (2 / 5) / (3 / 4),
    "exact_k_violation@2": 0,
}
# at 2; popular is item 0, G1 the other three
FURTHER = {
    "hit": (1 + 1) / 2,
    "mrr": (1 / 2 + 1) / 2,
    "map": ((1 / 2) / 2 + 1) / 2,
    "precision": (1 / 2 + 1 / 2) / 2,
    # training counts 1, 2, 1, 0
    "arp": (1 + 1.5 + 1) / 3,
    "aplt": (1 / 2 + 1 / 2 + 0) / 3,
    "aclt": (1 + 1 + 0) / 3,
    "novelty": (math.log2(3) + (math.log2(3) + math.log2(3 / 2)) / 2 + math.log2(3)) / 3,
    # by user, 0: {0}, 1: {0, 2}, 2: {1}; items 0 and 2 share nobody, 0 and 1 user 0
    "ild": (1 + (1 - 1 / math.sqrt(2))) / 2,
    "max_min": (2 / 5) / (3 / 4),
    "max_min:maker": (1 / 5) / (2 / 4),
    # not taken: item 0 by two of three, the others by nine less three; shown 3 and 2
    "poprsp": np.std([3 / 2, 2 / 6]) / np.mean([3 / 2, 2 / 6]),
    # relevant and shown: item 0 in 1 of 1, the others in 1 of 2
    "popreo": np.std([1, 1 / 2]) / np.mean([1, 1 / 2]),
    "entropy:maker": -(4 / 5 * math.log2(4 / 5) + 1 / 5 * math.log2(1 / 5)),
}


def makers(column):
    assert column == "maker"
    return [{"x"}, {"x"}, {"y"}, {"y"}]


def measured(**given):
    fields = {"lists": LISTS, "relevant": RELEVANT, "log": LOG, "popular": POPULAR} | given
    return MeasuredLists(**fields, alpha_prime=0.5, attribute=makers)


@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_every_metric_at_every_k_in_order(dtype):
    found = summarise(measured(relevant=RELEVANT.astype(dtype)), [1, 2])
    assert list(found) == list(EXPECTED)
    assert found == pytest.approx(EXPECTED, rel=1e-14)
    assert all(type(value) is float for value in found.values())


def test_groups_must_cover_the_catalogue():
    with pytest.raises(ValueError, match=r"groups have shape \(3,\), relevant items \(3, 4\)"):
        measured(popular=POPULAR[:3])


def test_a_stored_zero_counts_as_not_relevant():
    stored = RELEVANT.copy()
    stored.data[:] = 0
    found = summarise(measured(relevant=stored), [2])
    assert math.isnan(found["recall@2"])
    assert found["coverage@2"] == 3 / 4


@pytest.mark.parametrize("name", FURTHER)
def test_further_metrics_by_hand(name):
    found = summarise(measured(), [2], [name])
    assert found[f"{name}@2"] == pytest.approx(FURTHER[name])
    assert len(found) == len(ALWAYS) + 1


def test_all_metrics_have_a_value_by_their_names():
    names = [*METRICS, "ild:maker", "ee_d:maker", "ee_r:maker", "ee_l:maker", "awrf:maker"]
    found = summarise(measured(), [1, 2], names)
    assert {f"{name}@{k}" for name in names for k in (1, 2)} == set(found)
    assert not {name for name, value in found.items() if math.isnan(value)} - {
        "ild@1",
        "ild:maker@1",
    }


def test_lists_of_some_users_are_measured_against_the_whole_log():
    some = measured(lists=LISTS[1:], relevant=RELEVANT[1:], users=np.array([1, 2]))
    found = summarise(some, [2], ["arp", "poprsp", "novelty"])
    assert found["arp@2"] == pytest.approx((1.5 + 1) / 2)
    # of the two users, item 0 was taken by none, the others by two of six pairs
    chances = [2 / 2, 1 / 4]
    assert found["poprsp@2"] == pytest.approx(np.std(chances) / np.mean(chances))


def test_metrics_of_your_own():
    found = summarise(
        measured(),
        [1, 2],
        {
            "first": lambda m, _: m.lists[:, 0] == 0,
            "places": lambda m, k: k * len(m.lists),
            "mrr": METRICS["mrr"],
        },
    )
    assert found["first@2"] == pytest.approx(2 / 3)
    assert (found["places@1"], found["places@2"]) == (3, 6)
    assert found["mrr@2"] == FURTHER["mrr"]


@pytest.mark.parametrize(
    ("further", "fault"),
    [
        (["mmr"], "no metric 'mmr' .there are recall, f1"),
        (["mrr:maker"], "no metric 'mrr:maker'"),
        (["awrf:"], "no metric 'awrf:'"),
        ("mrr", "is one name"),
        ({"mine": 3}, "give a function"),
        ({"ndcg": lambda *_: 1.0}, "cannot be called 'ndcg'"),
        ({"a@b": lambda *_: 1.0}, "cannot be called 'a@b'"),
        ({"mine": lambda *_: np.zeros(2)}, r"shape \(2,\) \(return one number, or one per user"),
    ],
)
def test_a_metric_that_is_none(further, fault):
    with pytest.raises(ConfigError, match=fault):
        summarise(measured(), [2], further)
