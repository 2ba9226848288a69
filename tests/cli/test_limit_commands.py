"""--limit in fit, recommend, evaluate and audit: counted again from the lists that are written."""

import csv
import json
import math
import random
from collections import defaultdict
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.model.folder import ModelFolder

USERS, ITEMS, K = 40, 60, 10
FCPO = [
    f"--set={setting}"
    for setting in ('warm_start=["ease","itemknn"]', "adapt=false", "rounds=1", "horizon=3")
]
SELLERS = ("MegaMart", "Corner", "A & B")
GENRES = ("Drama|War", "Drama", "Comedy", "War")


def seller(item: int) -> str:
    return SELLERS[0] if item % 2 == 0 else SELLERS[1 + item // 2 % 2]


def genres(item: int) -> str:
    return GENRES[item % 4]


def of(column: str, value: str) -> set[str]:
    """The items with a value, by their ids."""
    cells = {"seller": seller, "genre": genres}[column]
    return {str(item) for item in range(ITEMS) if value in cells(item).split("|")}


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Customers of 15 items each, the more often the smaller the number; a table of the items."""
    draw, folder = random.Random(5), tmp_path_factory.mktemp("shop")
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "time", "seller"])
        for user in range(USERS):
            taken = sorted(range(ITEMS), key=lambda item: draw.random() * (item + 5))[:15]
            for time, item in enumerate(draw.sample(taken, len(taken))):
                rows.writerow([user, item, time, seller(item)])
    with (folder / "items.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "genre"])
        rows.writerows([item, genres(item)] for item in range(ITEMS))
    return folder


@pytest.fixture(scope="module")
def runs(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("runs"), f"--data={shop / 'log.csv'}"
    fairhorizon("fit", "fcpo", data, *FCPO, "--alpha-prime=0.4", "--out", folder / "fcpo")
    for name in ("ease", "ease+quota", "ease+control", "ease+lists"):
        fairhorizon("fit", name, data, "--out", folder / name)
    return folder


def lists_of(path: Path) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lists[row["user"]].append(row["item"])
    return lists


def recommended(folder: Path, out: Path, *options: object) -> dict[str, list[str]]:
    fairhorizon("recommend", folder, "--k", K, *options, "--out", out)
    return lists_of(out)


def share(lists: dict[str, list[str]], group: set[str], places: int = K) -> float:
    shown = [item for items in lists.values() for item in items[:places]]
    return sum(item in group for item in shown) / len(shown)


def popular(folder: Path) -> set[str]:
    dataset = ModelFolder(folder).data().open()
    return set(dataset.log.item_ids[dataset.sensitive].astype(str))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcpo", "ease+control"])
def test_several_limits_hold_at_once(
    name: str, runs: Path, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {
        "popular<=0.3": (popular(runs / name), 0.0, 0.3),
        "genre=Drama<=0.4": (of("genre", "Drama"), 0.0, 0.4),
        "genre=Comedy>=0.3": (of("genre", "Comedy"), 0.3, 1.0),
        "genre=War<=0.45": (of("genre", "War"), 0.0, 0.45),
    }
    options = [f"--limit={text}" for text in limits]
    table = f"--item-table={shop / 'items.csv'}"
    out = tmp_path / "lists.csv"
    lists = recommended(runs / name, out, *options, table)
    assert sum(map(len, lists.values())) == USERS * K
    for group, least, most in limits.values():
        assert least - 1e-9 <= share(lists, group) <= most + 1e-9
    assert "not kept" not in capsys.readouterr().err

    # evaluate has the same lists and measures the same, and so does an audit of the file
    fairhorizon(
        *("evaluate", runs / name, "--k", K, *options, table),
        *("--json", tmp_path / "m.json", "--lists", tmp_path / "again.csv"),
    )
    said = capsys.readouterr().out
    assert (tmp_path / "again.csv").read_bytes() == out.read_bytes()
    found = json.loads((tmp_path / "m.json").read_text())["limits"]
    assert [one["limit"] for one in found] == list(limits)
    for one, (group, _, _) in zip(found, limits.values(), strict=True):
        assert one["reached"] == pytest.approx(share(lists, group), abs=1e-12)
        assert one["at"]["5"] == pytest.approx(share(lists, group, 5), abs=1e-12)
        assert one["kept"]
    if name == "ease+control":
        assert all(one["price"] >= 0 for one in found)
        assert max(one["price"] for one in found) > 0
    assert said.count("kept: ") == 4
    assert [line.split()[-1:] for line in said.splitlines()].count(["yes"]) == 4
    assert json.loads((runs / name / "metrics.json").read_text())["limits"] == found
    data = f"--data={shop / 'log.csv'}"
    audit = ("audit", out, data, *options, table, "--k", K, "--json", tmp_path / "a.json")
    fairhorizon(*audit)
    (row,) = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert [one | {"price": None} for one in found] == row["limits"]  # a file has no prices


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcpo", "ease+lists", "ease+control"])
@pytest.mark.parametrize(
    "text",
    [
        "seller=MegaMart<=0.2",
        "seller=Corner>=0.5",
        "seller=MegaMart<=0.2@5",
        "seller=MegaMart<=0.3;weights=log",
        "seller=MegaMart<=0.25;scope=list",
        "seller=MegaMart<=0.35;scope=prefix",
        "seller=Corner>=0.4;scope=list",
    ],
)
def test_one_limit_counts_as_it_says(name: str, text: str, runs: Path, tmp_path: Path) -> None:
    lists = recommended(runs / name, tmp_path / "lists.csv", f"--limit={text}")
    head, _, option = text.partition(";")
    group = of("seller", head.split("=")[1].rstrip("<>"))
    asked = float(head.split("=")[2].partition("@")[0])
    flags = [[item in group for item in items] for items in lists.values()]
    assert all(len(row) == K for row in flags)
    if option == "weights=log":
        weights = [1 / math.log2(2 + place) for place in range(K)]
        counted = sum(w for row in flags for w, flag in zip(weights, row, strict=True) if flag)
        assert asked - 0.01 < counted / (USERS * sum(weights)) <= asked + 1e-9
    elif option == "scope=list" and ">=" in head:
        assert min(map(sum, flags)) == math.floor(asked * K)
    elif option == "scope=list":
        assert max(map(sum, flags)) == math.ceil(asked * K)
    elif option == "scope=prefix":
        over = [sum(row[:k]) - math.ceil(asked * k - 1e-9) for row in flags for k in range(1, 11)]
        assert max(over) == 0
    else:
        places = 5 if "@5" in head else K
        shown = [flag for row in flags for flag in row[:places]]
        assert sum(shown) == asked * len(shown)  # 40 lists: whole numbers


@pytest.mark.parametrize("mode", ["recommend", "interactive"])
@pytest.mark.parametrize("name", ["fcpo", "ease+control"])
def test_several_limits_that_count_each_in_their_way(
    name: str, mode: str, runs: Path, tmp_path: Path
) -> None:
    texts = (
        "seller=MegaMart<=0.2@5",
        '"seller=A & B"<=0.4;weights=log',
        "seller=Corner>=0.2;scope=list",
        "popular<=0.4;scope=prefix",
    )
    options = [f"--limit={text}" for text in texts]
    out, found = tmp_path / "lists.csv", tmp_path / "m.json"
    if mode == "recommend":
        lists = recommended(runs / name, out, *options)
    else:
        how = (f"--mode={mode}", "--k", K, *options, "--lists", out, "--json", found)
        fairhorizon("evaluate", runs / name, *how)
        lists = lists_of(out)
        kept = [one["kept"] for one in json.loads(found.read_text())["limits"]]
        assert kept == [True] * 4
    assert all(len(items) == K for items in lists.values())
    assert share(lists, of("seller", "MegaMart"), 5) == 0.2
    weights = [1 / math.log2(2 + place) for place in range(K)]
    of_both = [item in of("seller", "A & B") for items in lists.values() for item in items]
    weighed = sum(w for w, flag in zip(weights * USERS, of_both, strict=True) if flag)
    assert weighed <= 0.4 * USERS * sum(weights) + 1e-9
    most_taken = popular(runs / name)
    for items in lists.values():
        assert sum(item in of("seller", "Corner") for item in items) >= 2
        for k in range(1, K + 1):
            inside = sum(item in most_taken for item in items[:k])
            assert inside <= math.ceil(0.4 * k - 1e-9)


@pytest.mark.parametrize("name", ["fcpo", "ease+lists", "ease+control", "ease+quota"])
def test_a_plain_limit_on_popular_items_is_alpha_prime(
    name: str, runs: Path, tmp_path: Path
) -> None:
    recommended(runs / name, tmp_path / "a.csv", "--alpha-prime=0.25")
    recommended(runs / name, tmp_path / "b.csv", "--limit=popular<=0.25")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_every_value_by_itself(runs: Path, tmp_path: Path) -> None:
    lists = recommended(runs / "fcpo", tmp_path / "lists.csv", "--limit=seller:each<=0.34")
    shares = [share(lists, of("seller", name)) for name in SELLERS]
    assert max(shares) <= 0.34
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "reached"), [("fcpo", 0.35), ("ease+lists", 0.35), ("ease+control", 0.4)]
)
def test_the_gini_index(name: str, reached: float, runs: Path, tmp_path: Path) -> None:
    """The joint lists keep it; the control, which carries a price from place to place, nearly."""

    def index(*options: str) -> float:
        fairhorizon("evaluate", runs / name, "--k", K, *options, "--json", tmp_path / "m.json")
        content = json.loads((tmp_path / "m.json").read_text())
        (gini,) = [one for one in content["limits"] if one["limit"].startswith("gini")]
        assert gini["reached"] == pytest.approx(content["metrics"][f"gini@{K}"], abs=1e-12)
        assert gini["kept"] == (gini["reached"] <= gini["asked"])
        return float(gini["reached"])

    assert index("--limit=gini<=1") > 0.36
    assert index("--limit=gini<=0.35") <= reached
    assert index("--limit=gini<=0.35", "--limit=seller=MegaMart<=0.5") <= reached


def test_one_by_one_under_another_limit(runs: Path, tmp_path: Path) -> None:
    how = ("--one-by-one", "--limit=seller=MegaMart<=0.25")
    lists = recommended(runs / "fcpo", tmp_path / "lists.csv", *how)
    shown = of_group = 0
    for items in lists.values():
        shown += len(items)
        of_group += sum(item in of("seller", "MegaMart") for item in items)
        assert of_group <= 0.25 * shown
    assert of_group >= 0.2 * shown


def test_interactive_lists_keep_limits_too(runs: Path, tmp_path: Path) -> None:
    for options in (["seller=MegaMart<=0.2@5"], ["seller=MegaMart<=0.3", "seller=Corner>=0.4"]):
        given = [f"--limit={text}" for text in options]
        out = ("--lists", tmp_path / "lists.csv", "--json", tmp_path / "m.json")
        fairhorizon("evaluate", runs / "fcpo", "--mode=interactive", "--k", K, *given, *out)
        lists = lists_of(tmp_path / "lists.csv")
        mega = share(lists, of("seller", "MegaMart"), 5 if len(options) == 1 else K)
        assert mega <= (0.2 if len(options) == 1 else 0.3) + 1e-9
        content = json.loads((tmp_path / "m.json").read_text())
        assert all(one["kept"] for one in content["limits"])


def test_limits_of_the_fit_are_the_default(shop: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "run", shop / "items.csv"
    limits = ("--limit", "popular<=0.4", "--limit", "genre=Drama<=0.3")
    data = (f"--data={shop / 'log.csv'}", "--item-table", table)
    fairhorizon("fit", "ease+control", *data, *limits, "--out", out)
    card = ModelFolder(out).card().model_dump()
    assert card["limits"] == ["popular<=0.4", "genre=Drama<=0.3"]
    assert card["item_table"] == str(table)
    assert card["data"]["item_table"] is None  # the group of the fit is by popularity
    assert card["reranker"]["config"]["share"] == 0.4
    lists = recommended(out, tmp_path / "lists.csv")
    assert share(lists, of("genre", "Drama")) <= 0.3
    assert share(lists, popular(out)) <= 0.4
    # --alpha-prime and --limit take the place of all of them
    lists = recommended(out, tmp_path / "lists.csv", "--alpha-prime=0.2")
    assert share(lists, popular(out)) <= 0.2
    assert share(lists, of("genre", "Drama")) > 0.3
    lists = recommended(out, tmp_path / "lists.csv", "--limit=genre=War<=0.1")
    assert share(lists, of("genre", "War")) <= 0.1
    assert share(lists, of("genre", "Drama")) > 0.3
    # together they are two limits
    both = ("--alpha-prime=0.2", "--limit=genre=War<=0.1")
    lists = recommended(out, tmp_path / "lists.csv", *both)
    assert share(lists, of("genre", "War")) <= 0.1
    assert share(lists, popular(out)) <= 0.2


def test_a_level_of_the_fit_is_one_of_its_limits(shop: Path, tmp_path: Path) -> None:
    data = f"--data={shop / 'log.csv'}"
    for number, (method, options) in enumerate(
        [
            ("ease+control@0.3", ["--limit=seller=MegaMart<=0.2"]),
            ("ease+control", ["--alpha-prime=0.3", "--limit=seller=MegaMart<=0.2"]),
            ("ease+control", ["--limit=popular<=0.3", "--limit=seller=MegaMart<=0.2"]),
        ]
    ):
        out = tmp_path / str(number)
        fairhorizon("fit", method, data, *options, "--out", out)
        assert ModelFolder(out).card().limits == ["popular<=0.3", "seller=MegaMart<=0.2"]
        assert ModelFolder(out).recommender().alpha_prime == 0.3
    fairhorizon("fit", "ease", data, "--out", tmp_path / "none")
    assert not ModelFolder(tmp_path / "none").card().limits


def test_a_limit_that_cannot_be_kept_is_reported(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every item has a seller, so three shares of a fifth leave nothing for the rest."""
    out = tmp_path / "lists.csv"
    words = ["recommend", runs / "ease+control", "--k", K, "--limit=seller:each<=0.2", "--out", out]
    assert run([*map(str, words)]) == 3
    lists, said = lists_of(out), capsys.readouterr().out
    for name in SELLERS:
        found = share(lists, of("seller", name))
        text = f'"seller={name}"<=0.2' if "&" in name else f"seller={name}<=0.2"
        assert any(line.startswith(text) for line in said.splitlines())
        away = f"{100 * found - 20:.1f} points too many"
        note = f" not kept: {100 * found:.1f} % of at most 20 %, {away}; "
        assert (note in said) == (found > 0.2)
    assert "not kept" in said


def test_limits_that_conflict_are_refused_with_what_each_would_have_to_give(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sellers have a fifth each at most, so the third would need the other 60 %."""
    out = tmp_path / "lists.csv"
    words = ["recommend", runs / "fcpo", "--k", K, "--limit=seller:each<=0.2", "--out", out]
    assert run([*map(str, words)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "seller=Corner<=0.2 and seller=MegaMart<=0.2 cannot be kept together" in line
    for name in ("Corner", "MegaMart"):
        assert f"at least 0.6 in seller={name}<=0.2" in line
    assert not out.exists()


@pytest.mark.slow
def test_an_audit_has_the_verdict_first(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists, out = tmp_path / "their.csv", tmp_path / "report"
    # MegaMart has the even items: 3 of 4, then 1 of 4
    lists.write_text("user,item\n1,2\n1,4\n1,7\n1,6\n2,1\n2,3\n2,8\n2,5\n")
    data = f"--data={shop / 'log.csv'}"
    texts = ["seller=MegaMart<=0.5", "seller=MegaMart<=0.4", "seller=MegaMart<=0.5;scope=list"]
    many = [f"popular<=0.{n}" for n in range(10, 30)]  # more than can be served under
    options = [f"--limit={text}" for text in (*texts, *many)]
    fairhorizon("audit", lists, data, *options, "--k=2,4", "--out", out)
    said = capsys.readouterr().out
    assert said.index("kept: 50.0 % of at most 50 %") < said.index("Method")
    assert "not kept: 50.0 % of at most 40 %, 10.0 points too many" in said
    (row,) = json.loads((out / "audit.json").read_text())["rows"]
    first, second, third, *others = row["limits"]
    assert (first["reached"], first["kept"], first["lists_above"]) == (0.5, True, 0.5)
    assert (second["kept"], second["excess"]) == (False, pytest.approx(0.1))
    assert (third["broken"], third["reached"], third["kept"]) == (1, 0.75, False)
    assert len(others) == 20
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.index("1 of 23 limits was kept") < page.index("<h2>Limits in numbers</h2>")
    broken = "not kept in 1 of 2 lists, the worst has 75.0 % of at most 50 %"
    assert broken in page
    page = page.replace("\N{NO-BREAK SPACE}", " ")
    first = "not seller=MegaMart&lt;=0.4 (50.0 % of at most 40 %, 10.0 points too many)"
    assert f"1 of 23 limits was kept; {first}" in page


@pytest.mark.parametrize(
    ("command", "options", "code", "message"),
    [
        ("fcpo", ["popular<=40"], 2, "--limit: 'popular<=40', position 10: '40' is no share (give"),
        ("fcpo", ["seller=A:0.3"], 2, "the share comes after <= or >= (give seller=A<=0.3)"),
        ("fcpo", ["sellr=A<=0.3"], 1, "no column 'sellr'; there are seller (name one, or give"),
        ("fcpo", ["seller=A<=0.3"], 1, "no item has the attribute value 'A' (the values are A & B"),
        ("fcpo", ["gini<=0.5", "gini<=.5"], 1, "gini<=0.5 is given twice (give it once)"),
        (
            "fcpo",
            [*(f"popular<=0.{n}" for n in range(10, 22)), "gini<=0.5"],
            1,
            "13 limits at once: fcpo and NAME+lists keep any number on all showings of groups, "
            "fcpo at most 12 of these (give fewer; fairhorizon audit measures any number)",
        ),
        ("ease", ["popular<=0.3"], 1, "ease keeps no limit, not popular<=0.3 (fcpo and NAME+c"),
        ("ease+quota", ["new>=0.1"], 1, "ease+quota keeps a largest share of all showings for"),
        (
            "ease+lists",
            ["popular<=0.3;scope=list", "new>=0"],
            1,
            "ease+lists keeps limits on all showings of groups, or one on a group and one on the "
            "Gini index, not popular<=0.3;scope=list, new>=0 (fcpo and NAME+control keep any "
            "limits, NAME+lists any on all showings, or one that counts in another way)",
        ),
    ],
)
def test_what_is_refused(
    command: str,
    options: list[str],
    code: int,
    message: str,
    runs: Path,
    shop: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By recommend, and by fit before it trains."""
    limits, out = [f"--limit={text}" for text in options], tmp_path / "new"
    data = f"--data={shop / 'log.csv'}"
    for words in (["recommend", runs / command], ["fit", command, data, *FCPO]):
        if command == "ease" and words[0] == "fit":
            message = "ease has no limit to set to 0.3 (try ease+quota)"
            code = 2
        words = words if command == "fcpo" else words[:3]
        assert run([*map(str, words), *limits, "--out", str(out)]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
        assert not out.exists()


def test_two_levels_are_refused(
    runs: Path, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, out = ["--alpha-prime=0.3", "--limit=popular<=0.4"], f"--out={tmp_path / 'new'}"
    data = f"--data={shop / 'log.csv'}"
    for words in (["recommend", str(runs / "fcpo")], ["fit", "fcpo", data]):
        assert run([*words, *both, out]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--alpha-prime: 0.3 and --limit popular<=0.4 are two limits on one gro" in line
    table = f"--item-table={shop / 'items.csv'}"
    assert run(["recommend", str(runs / "fcpo"), table, out]) == 1
    assert "which limits has it the columns of? (give --limit too)" in capsys.readouterr().err
    assert run(["recommend", str(runs / "fcpo"), "--one-by-one", "--limit=gini<=0.5", out]) == 1
    assert "--one-by-one does not keep gini<=0.5 (leave out --one" in capsys.readouterr().err
