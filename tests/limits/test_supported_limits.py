"""Which limits lists can be made under, and as what the step control keeps them."""

from contextlib import suppress

import numpy as np
import pytest
import torch

from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure, GrowingLists
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import step_limit
from fairhorizon.limits.supported import (
    SupportedLimits,
    check_supported,
    is_multi_limit,
    is_single_limit,
    kept_by_requests,
    level_under,
    own_share,
)

POPULAR = np.array([True, False, False, False, False])
OTHERS = np.array([False, True, True, False, False])


def bound(*texts: str) -> list[ResolvedLimit]:
    limits = [Limit.parse(text) for text in texts]
    return [ResolvedLimit(one, POPULAR if "popular" in str(one) else OTHERS) for one in limits]


def kept(limits: list[ResolvedLimit]) -> set[SupportedLimits]:
    """The kinds that do not refuse the limits."""
    found = set(SupportedLimits)
    for kind in SupportedLimits:
        with suppress(ConfigError):
            check_supported("NAME", kind, limits, POPULAR)
            continue
        found.remove(kind)
    return found


NONE, OWN, JOINT, ANY, STEPS = SupportedLimits
MANY = {ANY, STEPS}


@pytest.mark.parametrize(
    ("texts", "kinds"),
    [
        ([], set(SupportedLimits)),
        (["popular<=0.4"], {OWN, JOINT, *MANY}),
        (["popular<=0.4;labels=moment"], {OWN, JOINT, *MANY}),
        (["popular>=0.4"], {JOINT, *MANY}),
        (["new<=0.4"], {JOINT, *MANY}),
        (["popular<=0.4@5"], {JOINT, *MANY}),
        (["popular<=0.4;scope=list", "gini<=0.5"], {JOINT, *MANY}),
        (["gini<=0.5"], {JOINT, *MANY}),
        (["popular<=0.4", "new>=0.1", "gini<=0.5"], MANY),
        (["popular<=0.4", "new>=0.1@5"], {JOINT, *MANY}),
        (["popular<=0.4", "new>=0.1;scope=list"], MANY),
        (["gini<=0.5", "gini<=0.6"], MANY),
    ],
)
def test_who_keeps_what(texts: list[str], kinds: set[SupportedLimits]) -> None:
    assert kept(bound(*texts)) == kinds


def test_a_refusal_names_the_limits_and_who_can() -> None:
    with pytest.raises(ConfigError) as error:
        check_supported("mf", OWN, bound("new>=0.1", "gini<=0.5"), POPULAR)
    assert str(error.value) == (
        "mf keeps a largest share of all showings for the group that it was fitted for, not "
        "new>=0.1, gini<=0.5 (fcpo and NAME+control keep any limits, NAME+lists any on all "
        "showings, or one that counts in another way)"
    )


def test_at_most_twelve_unless_all_are_on_all_showings() -> None:
    texts = [f"new<=0.{n}" for n in range(10, 22)]
    check_supported("NAME", STEPS, bound(*texts), POPULAR)
    with pytest.raises(ConfigError, match="13 limits at once: fcpo and NAME"):
        check_supported("NAME", ANY, bound(*texts, "gini<=0.5"), POPULAR)
    check_supported("NAME", ANY, bound(*texts, "popular<=0.5"), POPULAR)
    with pytest.raises(ConfigError, match="NAME at most 12 of these"):
        check_supported("NAME", STEPS, bound(*texts, "popular<=0.5"), POPULAR)


def test_the_level_among_limits() -> None:
    assert own_share(bound("popular<=0.4"), POPULAR) == 0.4
    assert own_share(bound("popular<=0.4", "new>=0.1"), POPULAR) is None
    assert own_share(bound("new<=0.4"), OTHERS) == 0.4  # the group counts, not its name
    assert own_share(bound("popular<=0.4@5"), POPULAR) is None
    assert level_under(bound("popular<=0.4", "popular<=0.3", "new<=0.1"), POPULAR) == 0.3
    assert level_under(bound("popular>=0.4", "popular<=0.2@5"), POPULAR) == 1
    assert is_single_limit(bound("popular<=0.4", "gini<=0.5"))
    assert not is_single_limit(bound("popular<=0.4", "new<=0.5"))


def test_several_limits_on_all_showings() -> None:
    assert is_multi_limit(bound("popular<=0.4", "new>=0.5@10"))
    assert not is_multi_limit(bound("popular<=0.4"))
    assert not is_multi_limit(bound("popular<=0.4", "new>=0.5;scope=list"))
    assert not is_multi_limit(bound("popular<=0.4", "new>=0.5", "gini<=0.5"))
    assert kept_by_requests(bound("popular<=0.4", "new>=0.5"))
    assert kept_by_requests(bound("popular<=0.4;scope=prefix"))
    assert not kept_by_requests(bound("popular<=0.4", "gini<=0.5"))


def test_limits_of_the_step_control() -> None:
    """After five showings, of which two are popular and two of the other group, five to come."""
    exposure = Exposure(np.zeros(5, np.int64), lambda _: ~POPULAR)  # which a fixed limit ignores
    exposure.add(torch.tensor([[0], [0], [1], [2], [3]]))
    limits = [step_limit(one, fixed=True) for one in bound("popular<=0.5", "new>=0.3", "gini<=0.5")]
    assert [limit.name for limit in limits] == ["popular<=0.5", "new>=0.3", "gini<=0.5"]
    most, least, gini = limits
    assert most.costs(exposure).tolist() == [1, 0, 0, 0, 0]
    assert most.budget(exposure, 5) == pytest.approx(0.5 * 10 - 2)
    assert least.costs(exposure).tolist() == [0, -1, -1, 0, 0]
    assert least.budget(exposure, 5) == pytest.approx(-(0.3 * 10 - 2))
    assert gini.excess(exposure) == pytest.approx(0.32 - 0.5)


def test_lists_that_grow_count_at_their_places() -> None:
    """Two lists of two, made in two steps, with item 0 (popular) at places 1 and 2."""
    exposure = GrowingLists(POPULAR, n_users=2, length=2)
    exposure.add(torch.tensor([[0], [1]]))
    assert exposure.list_prefix(2).tolist() == [[0], [1]]
    exposure.add(torch.tensor([[2], [0]]))
    assert exposure.at_place.tolist() == [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]
    (weighed,) = [step_limit(one, fixed=True) for one in bound("popular<=0.5;weights=1,0.5")]
    assert weighed.excess(exposure) == pytest.approx(1.5 / 3 - 0.5)
    assert weighed.budget(exposure, np.array([0, 0, 7])) == 0  # the third place has no weight
    assert (exposure.list_length(1), GrowingLists(POPULAR, 2, 5).list_length(1)) == (3, 5)
