"""What the list engine makes of stored instances: values, shares, prices and lists.

    python benchmarks/list_baseline.py --out tests/allocation/baseline.json [--times FILE] [--small]

Instances are drawn as the tests draw theirs, and taken from ML-100K and ML-1M: 500 users, values by
`ease+lists`, of every user the best 10 items of every class (items that are in the same groups).
--times puts the output of benchmarks/list_speed.py --json into the file. --small makes the drawn
instances with few users alone and writes nothing.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fairhorizon as fh
from fairhorizon.agents.methods import Method, build
from fairhorizon.allocation.group_budget import Candidates, Spent
from fairhorizon.allocation.joint_lists import joint_lists
from fairhorizon.allocation.several.joint import lists_under_rules
from fairhorizon.allocation.several.terms import GroupRule
from fairhorizon.environment.feedback import evaluation_scenario
from fairhorizon.exposure.groups import attribute_group, popular_group
from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Protocol, Scope

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "allocation"))
from baseline import Instance, Results, StoredLimit, measured, packed  # noqa: E402

COMMIT = "ea0e658"
OUT = "tests/allocation/baseline.json"
COMMAND = f"python benchmarks/list_baseline.py --out {OUT} --times FILE"
USERS, LENGTH = 500, 10
GENRES = ("Documentary", "Comedy", "Drama")
Members = NDArray[np.bool_]


@dataclass
class Table:
    """Candidates and groups that instances share."""

    name: str
    items: NDArray[np.int64]
    values: NDArray[np.float32]
    groups: dict[str, Members]


@dataclass
class Case:
    """Limits on the lists of a table; `limits` are a group and the rule on it."""

    name: str
    table: Table
    length: int
    limits: list[tuple[str, PlaceRule]]
    gini_limit: float | None = None
    position_weights: list[float] | None = None
    begun: list[list[int]] | None = None
    settled: tuple[float, float] = (0.0, 0.0)


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """float32 with 16 bits of precision in place of 24: half the size, and still exact."""
    bits = values.astype("<f4").view(np.uint32)
    return ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32)


# ---------------------------------------------------------------------- drawn instances


def gaps_table(
    seed: int, users: int, columns: int, items: int = 12, *, whole: bool = False
) -> Table:
    """Some rows have gaps, some nothing outside the group; whole numbers bring many ties."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(items)[:columns] for _ in range(users)])
    group = rng.random(items) < rng.choice([0.3, 0.6])
    codes[rng.random(codes.shape) < 0.15] = -1
    if seed % 3 == 0:
        codes[0, ~group[codes[0]]] = -1
    values = rng.integers(0, 4, codes.shape) if whole else rng.random(codes.shape)
    return Table(f"gaps {seed} {users}x{columns}", codes, rounded(values), {"group": group})


def market_table(seed: int, users: int | None = None, n_items: int = 14) -> tuple[Table, int]:
    """A group that is worth more than the rest; and the length of lists."""
    rng = np.random.default_rng(seed)
    drawn, length, columns = rng.integers(3, 9), int(rng.integers(2, 6)), int(rng.integers(4, 11))
    if users is not None:
        drawn, length, columns = users, LENGTH, min(n_items, 24)
    items = np.stack([rng.permutation(n_items)[:columns] for _ in range(drawn)])
    group = rng.random(n_items) < rng.choice([0.4, 0.6, 0.85] if users is None else [0.4])
    items[rng.random(items.shape) < 0.1] = -1
    values = rng.integers(0, 5, items.shape) if seed % 4 == 0 else rng.random(items.shape)
    values = rounded(values + 0.5 * group[items])
    return Table(f"market {seed} {drawn}x{columns}", items, values, {"group": group}), length


def market_rule(seed: int, scope: Scope) -> PlaceRule:
    rng = np.random.default_rng(1000 + seed)
    first = [None, None, 1, 2, 3][seed % 5]
    weights: PlaceWeights | tuple[float, ...] = PlaceWeights.NONE
    if scope == Scope.ALL:
        given = tuple(np.round(rng.random(4), 3).tolist())
        weights = [PlaceWeights.LOG, PlaceWeights.LOG, given, PlaceWeights.NONE][seed % 4]
    share = round(float(rng.choice([0.0, 0.1, 0.25, 0.4, 0.5, *rng.random(6)])), 3)
    return PlaceRule(share, rng.random() < 0.3, scope, weights, first)


def overlapping(
    seed: int, users: int, n_items: int, width: int, length: int, limits: int, *, by_place: bool
) -> Case:
    """Limits and floors on groups that overlap, away from what these have without any limit."""
    rng = np.random.default_rng(seed)
    items = np.stack([rng.permutation(n_items)[:width] for _ in range(users)])
    worth = rng.exponential(size=n_items)
    values = rounded(rng.exponential(size=items.shape) * (0.3 + worth[items]))
    best = np.argsort(-values, axis=1, kind="stable")[:, :length]
    plain = np.take_along_axis(items, best, axis=1)
    table = Table(f"overlapping {seed} {users}x{width}", items, values, {})
    rules: list[tuple[str, PlaceRule]] = []
    for number in range(limits):
        members = rng.random(n_items) < rng.uniform(0.15, 0.6)
        is_floor = number % 2 == 1
        part = rng.uniform(1.02, 1.2) if is_floor else rng.uniform(0.75, 0.98)
        share = round(float(min(0.95, part * members[plain].mean())), 3)
        weights = PlaceWeights.LOG if by_place and number % 2 == 0 else PlaceWeights.NONE
        first = 2 if by_place and number == 3 else None
        table.groups[f"g{number}"] = members
        rules.append((f"g{number}", PlaceRule(share, is_floor, weights=weights, first=first)))
    kind = "by place" if by_place else "alike"
    return Case(f"several: {limits} limits {kind}, {users} users, {seed}", table, length, rules)


def drawn_cases(most_users: int) -> Iterator[Case]:
    """All kinds of limits, with up to so many users."""
    shares = (0.0, 0.2, 0.35, 0.5, 0.8)
    for seed in range(10):  # one limit on all showings
        table = gaps_table(seed, 5 + seed, 9, whole=seed % 4 == 1)
        rule = PlaceRule(shares[seed % 5], is_floor=seed % 2 == 1 and seed > 4)
        yield Case(f"one: all showings, {seed}", table, 3 + seed % 3, [("group", rule)])
    for seed, weights in ((20, [1.0, 1.0, 1.0]), (21, [1.0, 1.0, 0.1])):
        table = gaps_table(seed, 8, 9)
        rule = PlaceRule(0.3)
        name = f"one: uneven places, {seed}"
        yield Case(name, table, 3, [("group", rule)], position_weights=weights)
    for seed, settled in ((30, (8.0, 1.0)), (31, (20.0, 9.0)), (32, (12.0, 6.0))):
        table = gaps_table(seed, 12, 9)
        rule = PlaceRule(0.4, is_floor=seed == 32)
        name = f"one: after other showings, {seed}"
        yield Case(name, table, 3, [("group", rule)], settled=settled)
    for seed in range(9):  # one limit by place
        table, length = market_table(seed)
        rule = market_rule(seed, Scope.ALL)
        fits = not rule.is_floor and rule.share >= 0.25 and seed % 3 == 2
        settled = (4.0, 1.0) if fits else (0.0, 0.0)
        name = f"one: by place, {seed}"
        yield Case(name, table, length, [("group", rule)], settled=settled)
    in_lists = ((0.2, None), (0.4, None), (0.25, 3), (0.5, None), (0.6, None), (0.75, 4))
    for scope in (Scope.LIST, Scope.PREFIX):
        for seed, (share, first) in enumerate(in_lists, start=10):
            table, _ = market_table(seed, users=8)
            rule = PlaceRule(share, is_floor=share > 0.5, scope=scope, first=first)
            yield Case(f"one: every {scope}, {seed}", table, 5, [("group", rule)])
    for seed, scope in enumerate((Scope.ALL, Scope.LIST, Scope.PREFIX, Scope.ALL)):
        rule = PlaceRule(0.4, scope=scope, weights="log" if seed == 0 else "none")
        yield begun_case(40 + seed, rule)
    if most_users >= 200:
        yield from middle_cases()
    for seed in range(12):
        users, limits = 5 + 3 * seed, 2 + seed % 5
        yield overlapping(seed, users, 18, 14, 3 + seed % 3, limits, by_place=seed % 3 == 0)
    if most_users >= 200:
        for seed, users, limits in ((50, 60, 3), (51, 100, 6), (52, 150, 4), (53, 200, 2)):
            for by_place in (False, True):  # the same groups and values
                yield overlapping(seed, users, 60, 30, 6, limits, by_place=by_place)


def begun_case(seed: int, rule: PlaceRule) -> Case:
    """Lists whose first place is filled already, by the best item of each user."""
    table, length = market_table(seed, users=10)
    length = min(length, 5)
    known = np.where(table.items >= 0, table.values, -np.inf)
    best = known.argmax(1)
    begun = np.take_along_axis(table.items, best[:, None], axis=1)
    table.items[np.arange(len(best)), best] = -1
    weights = (1 / np.log2(np.arange(3, length + 2))).tolist()
    return Case(
        f"one: begun, {rule.scope}, {seed}",
        table,
        length - 1,
        [("group", rule)],
        position_weights=weights,
        begun=begun.tolist(),
    )


def middle_cases() -> Iterator[Case]:
    """100 and 200 users."""
    table, length = market_table(61, users=200, n_items=80)
    rules = {
        "all showings": PlaceRule(0.3),
        "a floor": PlaceRule(0.85, is_floor=True),
        "by place": PlaceRule(0.3, weights=PlaceWeights.LOG),
        "the first 5": PlaceRule(0.3, first=5),
        "every list": PlaceRule(0.3, scope=Scope.LIST),
        "every prefix": PlaceRule(0.3, scope=Scope.PREFIX),
    }
    for name, rule in rules.items():
        yield Case(f"one: {name}, 200 users", table, length, [("group", rule)])
    for limit, rule in ((0.14, PlaceRule(0.3)), (0.09, PlaceRule(0.4, weights=PlaceWeights.LOG))):
        name = f"one: Gini {limit:g}, 200 users"
        yield Case(name, table, length, [("group", rule)], gini_limit=limit)


# ---------------------------------------------------------------------- instances of data


def data_table(data: str) -> Table:
    """500 users of a data set; of each the best 10 items of every class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ties in time
        parts = fh.split(fh.load(data))
    model = build(Method.parse("ease+lists"), {}, 0).fit(parts)
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    rows = np.linspace(0, scenario.n_users - 1, USERS).astype(np.int64)
    made = model.item_values(scenario, length=LENGTH)
    values = made.values.masked_fill(made.items < 0, -torch.inf).numpy()[rows]
    groups = {"popular": popular_group(parts.train.item_counts())}
    table = fh.items_of(data)
    cells = dict(zip(table["item"].to_list(), table["genre"].to_list(), strict=True))
    known = {str(item): cell for item, cell in cells.items()}
    genres = np.array([known[str(item)] for item in parts.train.item_ids.tolist()], dtype=object)
    groups |= {genre: attribute_group(genres, (genre,)) for genre in GENRES}
    _, of_item = np.unique(np.stack(list(groups.values())), axis=1, return_inverse=True)
    best = []
    for kind in range(of_item.max() + 1):
        (members,) = (of_item.ravel() == kind).nonzero()
        order = np.argsort(-values[:, members], axis=1, kind="stable")[:, :LENGTH]
        best.append(members[order])
    items = np.concatenate(best, axis=1)
    chosen = np.take_along_axis(values, items, axis=1)
    shown = np.isfinite(chosen)
    return Table(data, np.where(shown, items, -1), rounded(np.where(shown, chosen, 0)), groups)


def data_cases(data: str) -> Iterator[Case]:
    """The cases of one data set, all on the same candidates."""
    table = data_table(data)
    popular, log = PlaceRule(0.4), PlaceRule(0.4, weights=PlaceWeights.LOG)
    rare = PlaceRule(0.03, is_floor=True)
    four = [
        ("popular", popular),
        ("Comedy", PlaceRule(0.2)),
        ("Documentary", rare),
        ("Drama", PlaceRule(0.4, is_floor=True, weights=PlaceWeights.LOG)),
    ]
    by_list = PlaceRule(0.4, scope=Scope.LIST)
    cases: dict[str, list[tuple[str, PlaceRule]]] = {
        "popular<=0.4": [("popular", popular)],
        "popular<=0.4;weights=log": [("popular", log)],
        "popular<=0.4;scope=list": [("popular", by_list)],
        "popular<=0.4;scope=prefix": [("popular", PlaceRule(0.4, scope=Scope.PREFIX))],
        "genre=Documentary>=0.03": [("Documentary", rare)],
        "popular<=0.4 and a floor": [("popular", popular), ("Documentary", rare)],
        "four limits": four,
    }
    for name, limits in cases.items():
        yield Case(f"{data}: {name}", table, LENGTH, limits)
    if data == "ml-100k":
        for most in (0.8, 0.6):
            name = f"{data}: popular<=0.4 and gini<={most:g}"
            yield Case(name, table, LENGTH, [("popular", popular)], gini_limit=most)


# ---------------------------------------------------------------------- today's lists


def solve(case: Case) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """The lists of the engine, with prices and bound."""
    table = case.table
    candidates = Candidates(torch.from_numpy(table.items), torch.from_numpy(table.values))
    if len(case.limits) > 1:
        rules = [GroupRule(rule, table.groups[name], name) for name, rule in case.limits]
        several = lists_under_rules(candidates, rules, length=case.length)
        return several.lists.numpy(), {"prices": several.prices, "bound": several.bound}
    ((name, rule),) = case.limits
    weights, begun = case.position_weights, case.begun
    one = joint_lists(
        candidates,
        torch.from_numpy(table.groups[name]),
        length=case.length,
        rule=rule,
        gini_limit=case.gini_limit,
        position_weights=None if weights is None else torch.tensor(weights, dtype=torch.float64),
        begun=None if begun is None else torch.tensor(begun),
        settled=Spent(*case.settled),
    )
    return one.lists.numpy(), {"prices": (one.price,), "bound": None}


def solved(case: Case) -> dict[str, Any]:
    """The case with its results, as the file stores it."""
    lists, found = solve(case)
    table, discount = case.table, 1 / np.log2(np.arange(2, case.length + 2))
    limits = []
    for name, rule in case.limits:
        weights = rule.weights
        stored = list(weights) if isinstance(weights, tuple) else str(weights)
        limits.append(
            {
                "name": f"{name}{'>=' if rule.is_floor else '<='}{rule.share:g}",
                "members": name,
                "share": rule.share,
                "is_floor": bool(rule.is_floor),
                "scope": str(rule.scope),
                "weights": stored,
                "first": rule.first,
            }
        )
    empty = np.empty((len(lists), 0), np.int64)
    instance = Instance(
        name=case.name,
        length=case.length,
        items=table.items,
        values=table.values,
        limits=tuple(
            StoredLimit(**limit | {"members": table.groups[limit["members"]]}) for limit in limits
        ),
        gini_limit=case.gini_limit,
        position_weights=np.array(case.position_weights or discount),
        begun=empty if case.begun is None else np.array(case.begun),
        settled=case.settled,
        results=Results(0.0, (), True, 0.0, 0),
        lists=lists,
    )
    results = asdict(measured(instance, lists)) | found
    stands = (table.items[:, None, :] == lists[:, :, None]) & (lists >= 0)[:, :, None]
    at = np.where(lists < 0, -1, stands.argmax(2)).astype(np.int16)
    return {
        "name": case.name,
        "table": table.name,
        "length": case.length,
        "limits": limits,
        "gini_limit": case.gini_limit,
        "position_weights": case.position_weights,
        "begun": case.begun,
        "settled": case.settled,
        "results": results,
        "lists": packed(at),
    }


def stored_table(table: Table) -> dict[str, Any]:
    return {
        "items": packed(table.items.astype(np.int16)),
        "values": packed(table.values),
        "groups": {name: packed(members) for name, members in table.groups.items()},
    }


def one_a_line(entries: dict[str, Any]) -> str:
    """JSON with one line per table and instance, so that changes can be read."""
    lines = []
    for key, value in entries.items():
        if key in ("tables", "instances"):
            named = value.items() if isinstance(value, dict) else enumerate(value)
            rows = [
                (f"{json.dumps(name)}: " if isinstance(value, dict) else "") + json.dumps(row)
                for name, row in named
            ]
            inside = ",\n".join(rows)
            value_text = f"{{\n{inside}\n}}" if isinstance(value, dict) else f"[\n{inside}\n]"
        else:
            value_text = json.dumps(value, indent=1)
        lines.append(f"{json.dumps(key)}: {value_text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--times", type=Path, help="what list_speed.py --json has written")
    parser.add_argument("--small", action="store_true", help="few users, nothing is written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables: dict[str, Any] = {}
    instances = []

    def add(case: Case) -> None:
        tables.setdefault(case.table.name, case.table)
        instances.append(solved(case))
        found = instances[-1]["results"]
        kept = "kept" if found["kept"] else "broken"
        print(f"{case.name:48} value {found['value']:12.4f}  {kept}", flush=True)

    for case in drawn_cases(20 if options.small else 200):
        add(case)
    if not options.small:
        for data in ("ml-100k", "ml-1m"):
            for case in data_cases(data):
                add(case)
    print(f"instances {len(instances)}")
    if options.small or options.out is None:
        return
    stored = {
        "commit": COMMIT,
        "command": COMMAND,
        "encoding": "see tests/allocation/baseline.py",
        "times": None if options.times is None else json.loads(options.times.read_text("utf-8")),
        "tables": {name: stored_table(table) for name, table in tables.items()},
        "instances": instances,
    }
    options.out.write_text(one_a_line(stored), encoding="utf-8")
    print(f"bytes {options.out.stat().st_size:,}")


if __name__ == "__main__":
    main()
