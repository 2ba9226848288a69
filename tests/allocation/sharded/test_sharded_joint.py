"""Joint lists over shards of users are those of all users in one place, to the bit."""

import itertools
import math
import pickle
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from fairhorizon.allocation.exact_sums import deviation, exact_sum, rounded
from fairhorizon.allocation.joint_lists import joint_lists
from fairhorizon.allocation.sharded import bids
from fairhorizon.allocation.sharded.bids import keys_of, value_of
from fairhorizon.allocation.sharded.calls import ShardsHere
from fairhorizon.allocation.sharded.joint import JointOver, JointPrices
from fairhorizon.allocation.sharded.user_shard import UserShard
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairhorizon.allocation import gini_price
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Scope


class CountedShards:
    """Shards behind messages, whose bytes are counted; nothing else passes."""

    def __init__(self, shards: Sequence[UserShard]) -> None:
        self.shards, self.calls, self.bytes = ShardsHere(shards), [], 0

    def __len__(self) -> int:
        return len(self.shards)

    def ask(self, method: str, *arguments: object) -> list[Any]:
        return self.tell(method, [arguments] * len(self))

    def tell(self, method: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        self.calls.append(method)
        return self._sent(self.shards.tell(method, self._sent(arguments)))

    def _sent(self, messages: Sequence[Any]) -> list[Any]:
        pickled = [pickle.dumps(message) for message in messages]
        self.bytes += sum(map(len, pickled))
        return [pickle.loads(message) for message in pickled]


def instance(seed: int, users: int, *, columns: int = 7, items: int = 12) -> Candidates:
    """Rows have gaps, every third one many; whole numbers bring many ties."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(items)[:columns] for _ in range(users)])
    codes[rng.random(codes.shape) < 0.15] = -1
    codes[::3, 1:] = np.where(rng.random(codes[::3, 1:].shape) < 0.5, -1, codes[::3, 1:])
    values = rng.integers(-1, 4, codes.shape) / rng.choice([1, 3])
    return Candidates(torch.from_numpy(codes), torch.from_numpy(values).float())


def cut_up(candidates: Candidates, sensitive: Tensor, cuts: Sequence[int]) -> CountedShards:
    """Shards that end at these users; equal cuts make empty ones."""
    ends = [0, *sorted(cuts), len(candidates.items)]
    rows = [slice(*both) for both in itertools.pairwise(ends)]
    parts = [Candidates(candidates.items[some], candidates.values[some]) for some in rows]
    return CountedShards([UserShard([part], sensitive) for part in parts])


def lists_of(shards: CountedShards) -> Tensor:
    return torch.cat([shard.lists for shard in shards.shards.shards])  # type: ignore[attr-defined]


RULES = st.builds(
    PlaceRule,
    share=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
    is_floor=st.booleans(),
    weights=st.just(PlaceWeights.NONE),
    scope=st.sampled_from([Scope.ALL, Scope.ALL, Scope.LIST, Scope.PREFIX]),
) | st.builds(
    PlaceRule,
    share=st.sampled_from([0.1, 0.3]),
    is_floor=st.booleans(),
    weights=st.just(PlaceWeights.LOG),
)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    users=st.integers(2, 14),
    cuts=st.lists(st.integers(0, 14), max_size=4),
    rule=RULES,
    gini_limit=st.sampled_from([None, None, 0.3]),
    bins=st.sampled_from([2, 3, 4096]),
)
def test_lists_and_prices_are_those_of_one_shard_to_the_bit(
    seed: int,
    users: int,
    cuts: list[int],
    rule: PlaceRule,
    gini_limit: float | None,
    bins: int,
) -> None:
    candidates = instance(seed, users)
    sensitive = torch.from_numpy(np.random.default_rng(seed).random(12) < 0.5)
    shards = cut_up(candidates, sensitive, [min(cut, users) for cut in cuts])
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no lists with a Gini index")
        patch.setattr(gini_price, "TRIALS", 2)
        whole = joint_lists(candidates, sensitive, length=4, rule=rule, gini_limit=gini_limit)
        patch.setattr(bids, "BINS", bins)  # few: several rounds, also where bids are few
        prices = JointOver(shards, sensitive).make(rule, 4, gini_limit=gini_limit)
    assert torch.equal(lists_of(shards), whole.lists)
    assert prices == JointPrices(whole.price, whole.spread_price)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.2, 0.5]), bins=st.integers(2, 9))
def test_the_cut_is_that_of_a_sort_of_all_gains(seed: int, share: float, bins: int) -> None:
    """Against one stable sort, with none of the code of bids.py."""
    candidates = instance(seed, 11)
    sensitive = torch.from_numpy(np.random.default_rng(seed).random(12) < 0.5)
    shards = cut_up(candidates, sensitive, [3, 3, 8])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bids, "BINS", bins)
        price = JointOver(shards, sensitive).make(PlaceRule(share), 4).price
    parts = [shard.bids for shard in shards.shards.shards]  # type: ignore[attr-defined]
    forced = torch.cat([part.sides.forced for part in parts])
    gains = torch.cat([part.gains for part in parts])
    shown = int(sum(part.sides.sizes.sum() for part in parts))
    free = math.floor(share * shown + 1e-9) - int(forced.sum())
    if free < 0:
        return  # then forced places bid, for a budget that grows with them
    wanted = ~forced & (gains > 0)
    falling, order = gains[wanted].sort(descending=True, stable=True)
    taken = torch.zeros(len(order), dtype=torch.bool)
    taken[order[:free]] = True
    granted = torch.zeros_like(wanted).masked_scatter_(wanted, taken)
    in_group = (sensitive[lists_of(shards).clamp(min=0)] & (lists_of(shards) >= 0)).sum(1)
    assert in_group.tolist() == (forced | granted).sum(1).tolist()
    assert price == (float(falling[free]) if len(falling) > free else 0.0)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("users", [1000, 20_000])
def test_what_is_sent_is_bounded_by_bins_and_not_by_users(users: int, tied: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    items = torch.rand(users, 60, generator=draw).argsort(1)[:, :40]
    values = torch.rand(users, 40, generator=draw)
    values = (4 * values).floor() if tied else values
    candidates, sensitive = Candidates(items, values), torch.arange(60) < 20
    shards = cut_up(candidates, sensitive, [users // 3, users // 2])
    prices = JointOver(shards, sensitive).make(PlaceRule(0.2), 10)
    whole = joint_lists(candidates, sensitive, length=10, rule=PlaceRule(0.2))
    assert torch.equal(lists_of(shards), whole.lists)
    assert prices.price == whole.price > 0
    histograms, others = shards.calls.count("histogram"), 1500 * len(shards.calls)
    assert histograms <= 6  # 64 bits, 12 in each
    assert shards.bytes <= (3 * histograms + 1) * 4096 * 8 + others
    if users == 20_000:
        assert shards.bytes < (items.nbytes + values.nbytes) / (15 if tied else 50)


def test_the_calls_of_a_plain_limit_are_counted_by_hand() -> None:
    """30 bids fit in one message: no histogram is asked for."""
    candidates = instance(1, 10)
    sensitive = torch.arange(12) < 6
    shards = cut_up(candidates, sensitive, [5])
    JointOver(shards, sensitive).make(PlaceRule(0.2), 4)
    assert shards.calls == ["open", "offer", "between", "grant"]


@settings(max_examples=200)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_keys_keep_the_order_of_floats(numbers: list[float]) -> None:
    keys = keys_of(torch.tensor(numbers, dtype=torch.float64)).tolist()
    for one, key in zip(numbers, keys, strict=True):
        assert value_of(key) == one
        for other, other_key in zip(numbers, keys, strict=True):
            assert (one < other) == (key < other_key)


@settings(max_examples=200)
@given(st.lists(st.floats(-1e300, 1e300), max_size=30), st.integers(0, 30))
def test_sums_of_parts_are_the_rounded_exact_sum(numbers: list[float], cut: int) -> None:
    """`math.fsum` is another implementation of the same."""
    parts = [exact_sum(np.array(some)) for some in (numbers[:cut], numbers[cut:])]
    assert rounded(sum(parts)) == math.fsum(numbers)


@settings(max_examples=50)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_the_deviation_is_that_of_fractions(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.float64)
    mean = Fraction(sum(numbers), len(numbers))
    expected = math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))
    assert deviation(exact_sum(values), exact_sum(values**2), len(values)) == pytest.approx(
        expected, rel=1e-15
    )
