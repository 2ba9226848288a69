"""One way to a list: the same values, prices and room give the same list by every door."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.allocation.candidates import Candidates, Offer
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.allocation.one_list import Request
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.model.serving import RepeatRule, Requests
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.budget.leases import LeaseBalance
from fairhorizon.service.replica.list_builder import ListBuilder, ListRequest, UserHistories
from fairhorizon.service.replica.snapshot import SnapshotLoader
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database

LENGTH, ITEMS = 8, 60
GROUPS = np.stack([np.arange(ITEMS) % 3 == 0, np.arange(ITEMS) < 25, np.arange(ITEMS) % 7 == 0])
RULES: dict[str, Sequence[GroupRule]] = {
    "one": [GroupRule(PlaceRule(0.3), GROUPS[0], "a")],
    "by place": [GroupRule(PlaceRule(0.3, weights=PlaceWeights.LOG), GROUPS[0], "a")],
    "three": [
        GroupRule(PlaceRule(0.3), GROUPS[0], "a"),
        GroupRule(PlaceRule(0.4), GROUPS[1], "b"),
        GroupRule(PlaceRule(0.2, is_floor=True), GROUPS[2], "c"),
    ],
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("price", [0.0, 0.2])
def test_the_engine_the_guard_and_a_decision_under_caps_agree(
    name: str, seed: int, price: float
) -> None:
    """The room of a first request is the share of its own list."""
    rules, draw = RULES[name], np.random.default_rng(seed)
    values = draw.gamma(1.0, size=ITEMS)
    limits = LimitMatrix.from_rules(rules, LENGTH)
    prices, cap = np.full(len(rules), price), limits.shares * limits.full_list
    request = Request(Offer(values), limits)
    expected = request.columns[request.within(lambda _: [cap], prices)].tolist()
    guard = ExposureGuard(rules, price=price)
    assert (
        guard.serve_all(np.arange(ITEMS)[None], values[None], None, LENGTH)[0].tolist() == expected
    )
    decided = ExposureGuard(rules, price=price).decide(Offer(values), lambda _: (cap,), LENGTH)
    assert decided.items.tolist() == expected
    some = draw.permutation(ITEMS)  # as /v1/rank sends them: in any order
    ranked = ExposureGuard(rules, price=price).decide(
        Offer(values[some], some), lambda _: (cap,), LENGTH
    )
    assert ranked.items.tolist() == expected
    if price == 0:
        alone = Candidates(np.arange(ITEMS)[None], values[None])
        assert allocate(alone, limits).lists[0].tolist() == expected


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a small shop under two limits, in a folder."""
    draw = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "user": [f"c{user}" for user in range(40) for _ in range(12)],
            "item": [f"a{item}" for _ in range(40) for item in draw.permutation(60)[:12]],
            "time": np.arange(480) * 86_400,
        }
    )
    articles = pl.DataFrame(
        {
            "item": [f"a{item}" for item in range(60)],
            "size": ["small" if item % 3 == 0 else "big" for item in range(60)],
            "kind": [f"k{item % 5}" for item in range(60)],
        }
    )
    log = fh.load(rows, user="user", item="item", time="time", name="shop")
    settings = {"rounds": 0, "warm_start": ("ease", "itemknn"), "candidates": 60}
    asked = ["size=small<=0.25", "kind=k1<=0.2"]
    folder = tmp_path_factory.mktemp("shop") / "run"
    fh.fit(log, limits=asked, items=articles, settings=settings).save(folder)
    return folder


def decider_of(
    folder: Path, place: Path, asked: Sequence[str]
) -> Callable[[ListRequest], list[str]]:
    """Decides as a replica of the service does, with leases that last."""
    database, settings = Database(str(place / "service.db")), ServiceSettings()
    set_up(database, settings, run=folder, asked=asked)
    with database.reading() as connection:
        snapshot = SnapshotLoader(database).load(connection)
    database.close()
    m = len(snapshot.rules)

    def decide(request: ListRequest) -> list[str]:
        none = [np.zeros(m, dtype=np.int64) for _ in range(4)]
        left, prices = np.full(m, 2**50, dtype=np.int64), np.zeros(m)
        balance = LeaseBalance(snapshot.rules, [0] * m, [""] * m, none[0], left, *none[1:], prices)
        (made,) = ListBuilder(snapshot, prices, settings, np.random.default_rng(0)).build(
            [request], UserHistories(), balance
        )
        assert not isinstance(made, Exception)
        return made.items

    return decide


def test_library_guard_and_service_show_a_user_the_same(shop: Path, tmp_path: Path) -> None:
    model = fh.open_model(shop)
    decide = decider_of(shop, tmp_path, model.limits)
    free = model.state.unlimited
    for user in ("c0", "c7", "c23"):
        frame = model.recommend([user], LENGTH)
        expected = frame["item"].to_list()
        assert len(expected) == LENGTH
        assert model.server().recommend(user, LENGTH)["item"].to_list() == expected
        assert decide(ListRequest(user, LENGTH)) == expected
        # the model's own values, sent to be ranked
        person = model.state.users.find(user)
        assert person is not None
        asked = Requests([person], None, RepeatRule())
        scenario = asked.scenario(model.state.users, model.state.n_items, free.queue_length)
        made = free.item_values(scenario, length=LENGTH)
        scores = {
            f"{model.items[code]}": float(value)
            for code, value in zip(made.items[0].tolist(), made.values[0].tolist(), strict=True)
            if code >= 0
        }
        assert decide(ListRequest(user, LENGTH, candidates=scores)) == expected
