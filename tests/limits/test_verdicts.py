"""The words of a verdict, for limits, floors, limits on lists and families of limits."""

import numpy as np
import pytest

from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import (
    MANY,
    LimitReached,
    Verdict,
    kept_at_the_bottom,
    limit_reached,
    rules_sentence,
    verdict_of,
    verdicts_of,
)
from fairhorizon.limits.resolved import ResolvedLimit


def found(text: str, reached: float, **more: object) -> LimitReached:
    limit = Limit.parse(text)
    away = limit.share - reached if limit.is_floor else reached - limit.share
    fields = {"kept": away <= 0, "excess": away, "n_lists": 943, **more}
    return LimitReached(text, limit.share, limit.is_floor, reached, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reached", "words"),
    [
        ("popular<=0.4", 0.382, "kept: 38.2 % of at most 40 %"),
        ("popular<=0.4", 0.431, "not kept: 43.1 % of at most 40 %, 3.1 points too many"),
        ("popular<=0.4", 0.40004, "not kept: 40.004 % of at most 40 %, 0.004 points too many"),
        ("seller=A>=0.3", 0.31, "kept: 31.0 % of at least 30 %"),
        ("seller=A>=0.3", 0.275, "not kept: 27.5 % of at least 30 %, 2.5 points too few"),
        ("seller=A>=0.0005", 0.0, "not kept: 0.0 % of at least 0.05 %, 0.05 points too few"),
        ("gini<=0.8", 0.983, "not kept: 98.3 % of at most 80 %, 18.3 points too many"),
    ],
)
def test_words(text: str, reached: float, words: str) -> None:
    assert verdict_of(found(text, reached)) == words


def test_limits_on_lists() -> None:
    # 3 of 4 in the first list and 1 of 4 in the second
    lists = np.array([[0, 1, 2, 9], [3, 9, 8, 7]])
    group = np.arange(10) < 5
    half = ResolvedLimit(Limit.parse("popular<=0.5;scope=list"), group)
    words = "not kept in 1 of 2 lists, the worst has 75.0 % of at most 50 %"
    # 1 of 2 first places, and 3 of 4 and 1 of 4 weighed by 1, 0.63, 0.5, 0.43
    by_place = "; 100.0 % of first places and 61.1 % weighed by place"
    assert verdict_of(limit_reached(half, lists)) == words + by_place
    most = ResolvedLimit(Limit.parse("popular<=0.75;scope=list"), group)
    words = "kept in all of 2 lists: at most 75 % of each"
    assert verdict_of(limit_reached(most, lists)) == words + by_place


def test_a_list_may_break_a_limit_only_at_its_beginning() -> None:
    group = np.arange(10) < 5
    prefix = ResolvedLimit(Limit.parse("popular<=0.5;scope=prefix"), group)
    verdict = verdict_of(limit_reached(prefix, np.array([[0, 1, 8, 9]])))
    assert verdict.startswith("not kept in 1 of 1 lists; 100.0 % of first places")


def test_a_floor_that_is_kept_at_the_bottom_of_lists_says_so() -> None:
    """Half of the showings, none of the first places: 1.07 of 2.56 weighed by place."""
    half = ResolvedLimit(Limit.parse("seller=A>=0.5"), np.arange(10) < 5)
    at_the_bottom = limit_reached(half, np.array([[9, 8, 0, 1], [7, 6, 2, 3]]))
    words = "kept: 50.0 % of at least 50 %, but 0.0 % of first places and 36.3 % weighed by place"
    assert verdict_of(at_the_bottom) == words
    (verdict,) = verdicts_of([at_the_bottom], ["seller"])
    assert verdict.at_the_bottom
    assert rules_sentence([verdict]) == (
        "The limit was kept, but not by the first places (seller=A>=0.5: "
        f"{words.removeprefix('kept: ')})."
    )
    # under a limit that counts by place there is nothing that whole lists could hide
    weighed = ResolvedLimit(Limit.parse("seller=A>=0.5;weights=log"), np.arange(10) < 5)
    lists = np.array([[9, 0, 1, 2], [0, 9, 8, 7]])
    (verdict,) = verdicts_of([limit_reached(weighed, lists)], ["seller"])
    assert verdict.verdict == "kept: 50.0 % of at least 50 %"
    assert not verdict.at_the_bottom


def test_lists_of_one_place_have_no_share_by_place() -> None:
    half = ResolvedLimit(Limit.parse("seller=A>=0.5"), np.arange(10) < 5)
    verdict = verdict_of(limit_reached(half, np.array([[0], [9]])))
    assert verdict == "kept: 50.0 % of at least 50 %"


def test_the_first_places_of_a_small_limit_count_by_a_tenth_of_it() -> None:
    """1.2 % of first places under 1 % is off by more than a tenth of the limit; 1.05 % is not."""
    clearly = found("popular<=0.01", 0.009, weighed=0.0105, at={1: 0.012})
    hardly = found("popular<=0.01", 0.009, weighed=0.0105, at={1: 0.0105})
    assert kept_at_the_bottom(clearly)
    assert not kept_at_the_bottom(hardly)


def test_several_broken_limits_are_counted() -> None:
    broken = [Verdict(f"popular<=0.{n}", False, "not kept: 50.0 % of at most 10 %") for n in "123"]
    kept = Verdict("popular<=0.6", True, "kept: 50.0 % of at most 60 %")
    said = "1 of 4 limits was kept; not popular<=0.1 (50.0 % of at most 10 %) and 2 more."
    assert rules_sentence([*broken, kept]) == said


def test_a_rule_on_many_values_is_one_rule() -> None:
    each = Verdict("seller:each<=0.1", True, "kept by all 657 values", 657)
    plain = [Verdict(f"popular<=0.{n}", True, "kept: a") for n in (3, 4, 5)]
    assert rules_sentence([each, *plain]) == "All 4 rules (660 limits) were kept."
    assert rules_sentence(plain) == "All 3 limits were kept."
    assert rules_sentence(plain[:1]) == "The limit was kept."
    broken = Verdict("gini<=0.8", False, "not kept: 98.3 % of at most 80 %")
    assert rules_sentence([each, broken]) == (
        "1 of 2 rules (658 limits) was kept; not gini<=0.8 (98.3 % of at most 80 %)."
    )


def test_many_values_of_a_column_have_one_verdict() -> None:
    shares = [0.5, 0.3, 0.1, 0.06, 0.04, 0.0]
    limits = [found(f"seller=s{n}>=0.05", share) for n, share in enumerate(shares)]
    assert len(limits) == MANY + 1
    family = "seller:each>=0.05"
    (one,) = verdicts_of(limits, [family] * len(limits))
    assert (one.limit, one.kept) == (family, False)
    worst = "worst seller=s5>=0.05: 0.0 % of at least 5 %, 5.0 points too few"
    assert one.verdict == f"not kept by 2 of 6 values, {worst}"
    kept = [found(f"seller=s{n}>=0.05", share) for n, share in enumerate([0.1, 0.2, 0.06] * 2)]
    (one,) = verdicts_of(kept, [family] * 6)
    assert one.verdict == "kept by all 6 values, closest seller=s2>=0.05: 6.0 %"
    few = verdicts_of(limits[:MANY], [family] * MANY)
    assert [one.limit for one in few] == [f"seller=s{n}>=0.05" for n in range(MANY)]


@pytest.mark.parametrize("text", ["seller=A>=0.3", "seller=A<=0.3", "seller=A<=0.3;scope=list"])
def test_empty_lists_keep_a_floor_by_showing_nothing(text: str) -> None:
    resolved = ResolvedLimit(Limit.parse(text), np.arange(5) < 2)
    empty = limit_reached(resolved, np.full((3, 4), -1))
    assert verdict_of(empty) == "kept, but nothing was shown: all lists are empty"
