"""fairhorizon init: the file that it writes works as it is."""

import csv
import json
import math
import random
import shlex
from pathlib import Path

import numpy as np
import pytest

from fairhorizon.cli.app import run
from fairhorizon.config_file import read_config
from fairhorizon.datasets import DataSpec

TEXT = """\
# Written by `fairhorizon init shop/log.csv --out shop/fairhorizon.toml`.
# docs/config.md explains every key.
# shop/log.csv: 450 interactions of 30 users with 50 items.
#
#   fairhorizon fit --config fairhorizon.toml --out runs/a
#   fairhorizon evaluate runs/a --config fairhorizon.toml
#   fairhorizon recommend runs/a --config fairhorizon.toml --out lists.csv

method = "fcpo"
seed = 0

# Limits on what is shown (docs/limits.md). The popular items, a fifth of the catalogue, have
# {popular} % of the training log; their limit is halfway between that and a fifth.
# weights=log: a showing counts 1 / log2(1 + rank), so that a limit is not kept by the last places.
limits = [
    "popular<={share};weights=log",
    # seller has 3 values, and those named here have {tiny} % of the log. A floor of half
    # of that keeps a ranking from showing them less and less. Remove the # in front to ask for it.
    # "seller=Tiny>={floor};weights=log",
]

[data]
source = "log.csv"

[columns]
user = "buyer"
item = "sku"
# no rating
time = "bought_at"
# not used: seller

# Settings of the method, as --set has them; `fairhorizon methods fcpo` lists them.
# [settings]
# rounds = 50
"""


def seller(item: int) -> str:
    return ("Mega", "Corner", "Mega", "Tiny")[item % 4]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw, folder = random.Random(5), tmp_path / "shop"
    folder.mkdir()
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["buyer", "sku", "bought_at", "seller"])
        for user in range(30):
            taken = sorted(range(50), key=lambda item: draw.random() * (item + 5))[:15]
            for time, item in enumerate(draw.sample(taken, len(taken))):
                rows.writerow([f"u{user}", f"s{item}", f"2024-05-{time + 1:02}", seller(item)])
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_log_with_names_of_its_own_can_be_fitted_at_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split("init shop/log.csv --out shop/fairhorizon.toml")) == 0
    assert capsys.readouterr().out.splitlines() == [
        "shop/fairhorizon.toml: 450 interactions of 30 users; user 'buyer', item 'sku', time "
        "'bought_at'",
        "next: fairhorizon fit --config shop/fairhorizon.toml --out runs/a",
    ]
    counts = DataSpec(source="shop/log.csv").open().split.train.item_counts()
    popular = np.sort(counts)[-10:].sum() / counts.sum()  # a fifth of the items
    with (place / "log.csv").open(encoding="utf-8", newline="") as file:
        tiny = np.mean([row["seller"] == "Tiny" for row in csv.DictReader(file)])
    share = math.floor((popular + 0.2) / 2 / 0.05) * 0.05
    written = (place / "fairhorizon.toml").read_text(encoding="utf-8")
    assert written == TEXT.format(
        popular=f"{100 * popular:.1f}",
        share=f"{share:g}",
        tiny=f"{100 * tiny:.1f}",
        floor=f"{math.floor(50 * tiny) / 100:g}",
    )
    limits = read_config(place / "fairhorizon.toml").limits
    quick = "--set rounds=1 --set adapt=false --set warm_start='[\"ease\"]'"
    assert run(shlex.split(f"fit --config shop/fairhorizon.toml --out runs/a {quick}")) == 0
    card = json.loads(Path("runs/a/run.json").read_text(encoding="utf-8"))
    assert card["limits"] == list(limits)
    assert run(shlex.split("recommend runs/a --config shop/fairhorizon.toml --out l.csv")) == 0
    audit = "audit l.csv --config shop/fairhorizon.toml --json audit.json"
    assert run(shlex.split(audit)) == 0
    (row,) = json.loads(Path("audit.json").read_text(encoding="utf-8"))["rows"]
    assert [one["kept"] for one in row["limits"]] == [True]


def test_nothing_is_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "fairhorizon.toml"
    file.write_text("# mine\n", encoding="utf-8")
    assert run(["init", "shop/log.csv", "--out", "shop/fairhorizon.toml"]) == 1
    assert capsys.readouterr().err == (
        "error: shop/fairhorizon.toml: already exists (name another --out, or remove it)\n"
    )
    assert file.read_text(encoding="utf-8") == "# mine\n"


def test_what_was_typed_is_written(place: Path) -> None:
    """Options, a table of items, and paths that are not below the folder of the file."""
    text = (place / "log.csv").read_text(encoding="utf-8").replace(",", ";")
    Path("own.txt").write_text(text.replace("buyer", 'who "it" is'), encoding="latin-1")
    items = [f"s{item};{'A, B' if item % 3 else 'Ä'}" for item in range(50)]
    Path("items.csv").write_text("\n".join(["sku;kind", *items]), encoding="latin-1")
    options = "--separator ; --encoding latin-1 --item-table items.csv --out conf/f.toml"
    command = ["init", "own.txt", "--user", 'who "it" is', *options.split()]
    assert run(command) == 0
    written = Path("conf/f.toml").read_text(encoding="utf-8").splitlines()
    here = Path().resolve()
    for line in (
        f'source = "{here}/own.txt"',
        'separator = ";"',
        'encoding = "latin-1"',
        'user = "who \\"it\\" is"',
        f'item_table = "{here}/items.csv"',
        "# its columns, for limits: kind",
    ):
        assert line in written
    config = read_config(Path("conf/f.toml"))
    assert config.columns.user == 'who "it" is'
    floor = next(line for line in written if "kind=" in line).strip().removeprefix("# ")
    assert floor.startswith('"kind=')
    fit = "fit ease+lists --config conf/f.toml --out a"
    assert run([*fit.split(), "--limit", json.loads(floor.rstrip(","))]) == 0


def test_a_log_whose_columns_are_not_recognised(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "odd.csv").write_text("wer,was\na,x\nb,y\n", encoding="utf-8")
    assert run(["init", "shop/odd.csv"]) == 1
    assert capsys.readouterr().err.startswith("error: shop/odd.csv: no column looks like the user")
    assert not Path("fairhorizon.toml").exists()
