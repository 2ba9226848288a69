"""The language of limits: what is read, how it is written back, and what is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import (
    GINI,
    NEW,
    POPULAR,
    GroupOf,
    Limit,
    LimitError,
    alpha_prime,
)
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.vocabulary import Labels, Scope, Weighing

EXAMPLES = {  # those of docs/limits.md, and one of each option
    "popular<=0.4": Limit(GroupOf(POPULAR), 0.4),
    "seller=MegaMart<=0.2": Limit(GroupOf("seller", ("MegaMart",)), 0.2),
    "seller_size=small>=0.3": Limit(GroupOf("seller_size", ("small",)), 0.3, is_floor=True),
    "seller:each<=0.1": Limit(GroupOf("seller", each=True), 0.1),
    "genre=Drama<=0.3@5": Limit(GroupOf("genre", ("Drama",)), 0.3, first=5),
    "gini<=0.8": Limit(GroupOf(GINI), 0.8),
    "added_on:30d>=0.05": Limit(GroupOf("added_on", days=30), 0.05, is_floor=True),
    '"brand=A & B"<=0.1': Limit(GroupOf("brand", ("A & B",)), 0.1),
    "new>=0.05": Limit(GroupOf(NEW), 0.05, is_floor=True),
    "genre=Drama,War<=0.5": Limit(GroupOf("genre", ("Drama", "War")), 0.5),
    'genre="Film, noir",War<=0.5': Limit(GroupOf("genre", ("Film, noir", "War")), 0.5),
    "popular<=1;labels=first": Limit(GroupOf(POPULAR), 1.0, labels=Labels.FIRST),
    "popular<=0;labels=lagged:7": Limit(GroupOf(POPULAR), 0.0, labels=Labels.LAGGED, lag=7),
    "popular<=0.4;labels=moment;scope=prefix": Limit(
        GroupOf(POPULAR), 0.4, labels=Labels.MOMENT, scope=Scope.PREFIX
    ),
    "popular<=0.4@10;labels=retrospective;weights=log": Limit(
        GroupOf(POPULAR), 0.4, first=10, labels=Labels.RETROSPECTIVE, weighing=Weighing.LOG
    ),
    "popular<=0.4;scope=list": Limit(GroupOf(POPULAR), 0.4, scope=Scope.LIST),
    "popular<=0.4;weights=1,0.5,0": Limit(
        GroupOf(POPULAR), 0.4, weighing=Weighing.GIVEN, weights=(1.0, 0.5, 0.0)
    ),
}


@pytest.mark.parametrize(("text", "limit"), EXAMPLES.items())
def test_an_example_is_read_and_written_back(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit
    assert str(limit) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (" popular <= 0.40 ", "popular<=0.4"),
        ("popular<=.4;weights=none;scope=all", "popular<=0.4"),
        ("popular<=4e-1@05", "popular<=0.4@5"),
        ('"seller"=MegaMart<=0.2', "seller=MegaMart<=0.2"),
        ('"seller=MegaMart"<=0.2', "seller=MegaMart<=0.2"),
        ('"brand=A & B" <= 0.1', '"brand=A & B"<=0.1'),
        ("brand=A & B<=0.1", '"brand=A & B"<=0.1'),
        ('"popular"=yes<=0.1', '"popular=yes"<=0.1'),
        ('"new":each<=0.1', '"new":each<=0.1'),
        ('"say ""x"""="y<=z"<=0.1', '"say ""x""=y<=z"<=0.1'),
        ('"a=b"=c<=0.1', '"a=b"=c<=0.1'),
        ("größe=klein<=0.1", "größe=klein<=0.1"),
        ("popular:rest<=0.25", "popular<=0.2"),
        ("popular:rest <= 3@5;weights=log", "popular<=0.75@5;weights=log"),
        ("popular<=parity", "popular<=0.2"),
    ],
)
def test_other_ways_to_write_a_limit(text: str, written: str) -> None:
    assert str(Limit.parse(text)) == written


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "a group is missing (give popular<=0.4)"),
        ("<=0.4", 1, "a group is missing (give popular<=0.4)"),
        ("popular", 8, "<= or >= is missing (give popular<=0.4)"),
        ("popular<0.4", 8, "<= or >= is missing (give popular<=0.4)"),
        (
            "popular=0.4",
            1,
            "'popular' is no column (give popular<=0.4, or \"popular\" in quotes if it is one)",
        ),
        (
            "popular:rest<=-1",
            15,
            "'-1' is no ratio (give a number from 0 on: showings of the group per other)",
        ),
        (
            "new>=parity",
            6,
            "parity is for popular (give the share that the group has of all items)",
        ),
        ("popular<=40", 10, "'40' is no share (give a number from 0 to 1, not a percentage)"),
        ("popular<=40%", 10, "'40%' is no share (give a number from 0 to 1, not a percentage)"),
        ("popular<=nan", 10, "'nan' is no share (give a number from 0 to 1, not a percentage)"),
        ("popular<=", 10, "'' is no share (give a number from 0 to 1, not a percentage)"),
        ("popular>=-0.1", 10, "'-0.1' is no share (give a number from 0 to 1, not a percentage)"),
        (
            "seller<=0.4",
            1,
            "'seller' is no group (give popular, new, gini, COLUMN=VALUE, COLUMN:each or",
        ),
        ("seller:all<=0.4", 8, "'all' of a column (give seller:each, or seller:30d of dates)"),
        ("added_on:0d>=0.1", 10, "'0d' of a column (give added_on:each, or added_on:30d of dates)"),
        ("seller=<=0.4", 8, "a value is missing (give popular<=0.4)"),
        ("seller=a,<=0.4", 10, "a value is missing (give popular<=0.4)"),
        ('seller=""<=0.4', 8, "a value is missing (give popular<=0.4)"),
        ('"brand=A<=0.1', 1, 'this quote is not closed (give "brand=A & B"<=0.1)'),
        ('"=A"<=0.1', 1, 'a column and its value are needed (give "brand=A & B"<=0.1)'),
        ('a="b" c<=0.1', 7, "<= or >= is missing (give popular<=0.4)"),
        ("popular<=0.4@0", 14, "'0' is no number of places (give a whole number from 1 on, as"),
        ("popular<=0.4@x", 14, "'x' is no number of places (give a whole number from 1 on, as"),
        ("popular<=0.4;label=first", 14, "there is no 'label' (give labels, scope, weights)"),
        ("popular<=0.4;share=0.3", 14, "there is no 'share' (give labels, scope, weights)"),
        (
            "popular<=0.4;labels=last",
            21,
            "'last' does not say which labels (give first, moment, lagged:N or retrospective)",
        ),
        (
            "popular<=0.4;labels=lagged",
            21,
            "'lagged' does not say which labels (give first, moment, lagged:N or retrospective)",
        ),
        ("popular<=0.4;scope=user", 20, "'user' does not say which scope (give all, list or pre"),
        ("popular<=0.4;weights=1,-1", 22, "'1,-1' does not say which weights (give none, log o"),
        ("popular<=0.4;weights=0,0", 22, "'0,0' does not say which weights (give none, log or "),
        ("popular<=0.4;scope=list;scope=all", 25, "a second scope (give one of them)"),
        ("gini>=0.4", 1, "a Gini index has no smallest value (give gini<=0.8)"),
        ("gini<=0.4@5", 1, "the Gini index is that of all showings, each counted once (give gini"),
        (
            "popular<=0.4;scope=list;weights=log",
            1,
            "weights are for scope=all: a list or its beginnings are counted in places (give "
            "either weights or a scope)",
        ),
        (
            "popular<=0.4@2;weights=0,0,1",
            1,
            "these weights leave none of the first 2 places (give a weight above 0 to one of them)",
        ),
        # the form of earlier versions, with the new one
        ("genre=Drama:0.3", 12, "the share comes after <= or >= (give genre=Drama<=0.3)"),
        ("a b=c,d:0.3", 8, 'the share comes after <= or >= (give "a b"=c,d<=0.3)'),
    ],
)
def test_a_mistake_is_named_with_its_position_and_the_remedy(
    text: str, position: int, message: str
) -> None:
    with pytest.raises(LimitError) as error:
        Limit.parse(text)
    said = str(error.value)
    assert said.startswith(f"{text!r}, position {position}: {message}")
    assert said.endswith(")")


NAMES = st.text(min_size=1)
SHARES = st.floats(0, 1)
GROUPS = st.one_of(
    st.sampled_from([GroupOf(POPULAR), GroupOf(NEW)]),
    st.builds(GroupOf, NAMES, st.lists(NAMES, min_size=1, max_size=3).map(tuple)),
    st.builds(GroupOf, NAMES, each=st.just(True)),
    st.builds(GroupOf, NAMES, days=st.integers(1, 999_999)),
)
WEIGHTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=4).filter(lambda some: some[0] > 0)


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    labels = draw(st.none() | st.sampled_from(Labels))
    lag = draw(st.integers(1, 99)) if labels is Labels.LAGGED else 0
    scope, weighing = draw(st.sampled_from(Scope)), draw(st.sampled_from(Weighing))
    if scope is not Scope.ALL:
        weighing = Weighing.NONE
    weights = tuple(draw(WEIGHTS)) if weighing is Weighing.GIVEN else ()
    first = draw(st.none() | st.integers(1, 10**6))
    group, share = draw(GROUPS), draw(SHARES)
    return Limit(group, share, draw(st.booleans()), first, labels, lag, scope, weighing, weights)


@pytest.mark.slow
@given(limits())
@example(Limit(GroupOf('"', ('"', "a,b")), 0.1))
@example(Limit(GroupOf("popular", ("=",)), 1 / 3))
@example(Limit(GroupOf("ß=:<>;@", ("\n", " x ", "雪")), 0.1))
def test_any_limit_is_read_back_as_it_was_written(limit: Limit) -> None:
    assert Limit.parse(str(limit)) == limit


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        limit = Limit.parse(text)
    except LimitError:
        return
    assert Limit.parse(str(limit)) == limit


def test_what_is_plain() -> None:
    plain = {text for text, limit in EXAMPLES.items() if limit.is_plain}
    assert "popular<=1;labels=first" in plain  # labels are no matter of how showings count
    for text in ("gini<=0.8", "genre=Drama<=0.3@5", "popular<=0.4;scope=list"):
        assert text not in plain
    assert Limit.popular(0.4) == EXAMPLES["popular<=0.4"]


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("popular<=0.4", [1, 1, 1, 1]),
        ("popular<=0.4@3", [1, 1, 1, 0]),
        ("popular<=0.4;weights=log", [1, 0.6309297535714575, 0.5, 0.43067655807339306]),
        ("popular<=0.4@2;weights=log", [1, 0.6309297535714575, 0, 0]),
        ("popular<=0.4;weights=1,0.5", [1, 0.5, 0, 0]),
        ("popular<=0.4@1;weights=2,1,1,1,1,1", [2, 0, 0, 0]),
    ],
)
def test_what_a_place_counts(text: str, weights: list[float]) -> None:
    assert PlaceRule.from_limit(Limit.parse(text)).place_weights(4).tolist() == pytest.approx(
        weights, abs=1e-15
    )


def test_alpha_prime_is_the_share_that_keeps_the_ratio() -> None:
    """The steps between equations 9 and 10, backwards."""
    for shown in range(10):
        assert alpha_prime(shown / (10 - shown)) == pytest.approx(shown / 10, abs=1e-15)
    with pytest.raises(ValueError, match="-1"):
        alpha_prime(-1)


def test_at_parity_items_of_both_groups_are_shown_alike_on_average() -> None:
    """Equation 6, for 1,000 showings of a catalogue of 1,680 items, 336 of them popular."""
    limit = Limit.parse("popular<=parity")
    popular = popular_group(range(1680)).sum()
    shown = 1000 * limit.share
    assert shown / popular == pytest.approx((1000 - shown) / (1680 - popular), rel=1e-12)
