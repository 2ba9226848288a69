"""Levels in the language of limits: which are refused, how each counts, and its words."""

import numpy as np
import pytest

from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method, build
from fairhorizon.studies.level_search import (
    by_counting,
    counted_share,
    counting_of,
    counting_words,
    data_limited_by,
    level_limit,
    serves_counting,
)
from fairhorizon.studies.study import served_under

PLAIN = DataSpec(source="ml-100k")
SELLERS = DataSpec(source="log.csv", group_column="seller", sensitive_values=("A", "B"))
GROUP = np.array([True, True, False, False, False])
LISTS = np.array([[0, 1, 2, 3], [2, 3, 4, 0], [4, 0, 2, -1]])  # popular: places 1, 2; 4; 2


def test_a_level_is_a_plain_limit_on_the_group_of_the_data() -> None:
    assert level_limit(0.37, PLAIN) == Limit.parse("popular<=0.37")
    assert level_limit(0.2, SELLERS) == Limit.parse("seller=A,B<=0.2")


def test_a_limit_on_a_column_names_the_group() -> None:
    limits = [Limit.parse(text) for text in ("seller=A,B<=0.2", "seller=A,B<=0.1;weights=log")]
    assert data_limited_by(limits, DataSpec(source="log.csv")) == SELLERS
    assert data_limited_by(limits, SELLERS) == SELLERS
    assert data_limited_by([Limit.popular(0.4)], PLAIN) == PLAIN


@pytest.mark.parametrize(
    ("data", "text", "message"),
    [
        (SELLERS, "popular<=0.4", "the levels are those of seller=A,B"),
        (SELLERS, "seller=C<=0.4", "compare one group at a time"),
        (PLAIN, "gini<=0.8", "a level is a largest share"),
        (PLAIN, "popular>=0.8", "a level is a largest share"),
        (PLAIN, "new<=0.1", "a level is of one group"),
        (PLAIN, "seller:each<=0.1", "a level is of one group"),
        (PLAIN, "popular<=0.4;labels=moment", "leave out labels"),
        (PLAIN, "popular<=0", "a share above 0"),
    ],
)
def test_what_no_level_can_be_is_refused(data: DataSpec, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        data_limited_by([Limit.parse(text)], data)


def test_two_groups_are_refused() -> None:
    limits = [Limit.parse("seller=A<=0.2"), Limit.parse("seller=B<=0.2")]
    with pytest.raises(ConfigError, match="the levels are those of seller=A"):
        data_limited_by(limits, DataSpec(source="log.csv"))


@pytest.mark.parametrize(
    ("text", "share", "words"),
    [
        ("popular<=0.4", 4 / 11, ""),
        ("popular<=0.4@2", 3 / 6, "of the first 2 places"),
        (
            "popular<=0.4;weights=1,0.5",
            (1 + 0.5 + 0.5) / (3 * 1.5),
            "weighed by 1, 0.5",
        ),
        ("popular<=0.4;scope=list", 1 / 4, "per list"),
        ("popular<=0.4;scope=prefix", 1 / 2, "per list and per prefix of it"),
        ("popular<=0.4@2;scope=list", 1 / 2, "per list, of the first 2 places"),
    ],
)
def test_the_share_that_lists_have_by_hand(text: str, share: float, words: str) -> None:
    limit = Limit.parse(text)
    assert counted_share(limit, LISTS, GROUP, 4) == pytest.approx(share, abs=1e-8)
    assert counting_words(limit) == words


def test_weights_by_place_by_hand() -> None:
    limit = Limit.parse("popular<=0.4;weights=log")
    log = 1 / np.log2(np.arange(2, 6))
    total = 3 * log[:3].sum() + 2 * log[3]
    expected = (log[0] + 2 * log[1] + log[3]) / total
    assert counted_share(limit, LISTS, GROUP, 4) == pytest.approx(expected)
    assert counting_words(limit) == "weighed by 1/log2(1 + place)"


def test_limits_that_count_alike_are_searched_together() -> None:
    texts = ("popular<=0.6", "popular<=0.5;weights=log", "popular<=0.3", "popular<=0.4;weights=log")
    plain, weighed, *_ = limits = [Limit.parse(text) for text in texts]
    assert by_counting(limits) == {
        counting_of(plain): [0.6, 0.3],
        counting_of(weighed): [0.5, 0.4],
    }


def test_who_can_count_by_place() -> None:
    can = ("fcpo", "fcpo:start", "fcpo:strong", "stack+lists", "ease+control")
    cannot = ("fcpo:paper", "ease+quota", "ease+penalty", "ease")
    assert [serves_counting(Method.parse(name)) for name in can] == [True] * 5
    assert [serves_counting(Method.parse(name)) for name in cannot] == [False] * 4


def test_a_method_that_cannot_count_by_place_is_not_served_so() -> None:
    quota = build(Method.parse("ease+quota"), {}, seed=0)
    with pytest.raises(ConfigError, match=r"ease\+quota keeps .*, not popular<=0.3;weights=log"):
        served_under(quota, Limit.parse("popular<=0.4;weights=log"), 0.3)


def test_limits_on_two_groups_are_refused_in_any_order() -> None:
    popular, shop = Limit.parse("popular<=0.4"), Limit.parse("shop=Corner<=0.3")
    for first, second in ((popular, shop), (shop, popular)):
        with pytest.raises(ConfigError, match="compare one group at a time"):
            data_limited_by([first, second], DataSpec(source="synthetic"))
