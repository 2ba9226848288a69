"""Run folders that version 0.1 wrote can be served from, and its checkpoints be resumed.

`before/run-folders` holds them, `before/lists-of-runs.json` what version 0.1 made of them: lists by
folder and option of `recommend`, or with `--resume` after the rest of the training, whose card is
`resumed.json`. This version cannot make them again.
"""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.fcpo.looking_ahead import LookingAhead
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.methods import Method, build
from fairhorizon.cli.app import run
from fairhorizon.experiments.runs import DataSpec, Run
from fairhorizon.storage import load_model, save_model

pytestmark = pytest.mark.usefixtures("all_steps_of_spreading")

BEFORE = Path(__file__).parent / "before"
MARKET = "synthetic:users=25,items=30,interactions_per_user=8"
INTERRUPTED = {"fcpo-interrupted": "fcpo", "fcpo-paper-interrupted": "fcpo:paper"}
NEW_SETTINGS: dict[str, Any] = {
    **{"explore": 0.0, "adapt": False, "spread_cost": 1.0},
    **{"ridge": {}, "ease": {}, "itemknn": {}, "gru4rec": {}, "als": {}},
    **{"retrieval": "auto", "precision": "single", "value": "score", "rehearsals": 4},
    "looking_ahead": LookingAhead().model_dump(mode="json"),
}
Lists = dict[str, list[int]]  # of every user, best first


def stored(name: str) -> Any:
    return json.loads((BEFORE / f"{name}.json").read_text(encoding="utf-8"))


LISTS: dict[str, dict[str, Lists]] = stored("lists-of-runs")
SERVED = [(name, option) for name, some in LISTS.items() for option in some if option != "--resume"]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A copy, because nothing may be changed here."""
    return Path(shutil.copytree(BEFORE / "run-folders", tmp_path / "runs"))


def recommended(folder: Path, *options: str) -> Lists:
    file = folder / "lists.csv"
    assert run(["recommend", str(folder), "--k=8", "--out", str(file), *options]) == 0
    lists: Lists = {}
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            lists.setdefault(row["user"], []).append(int(row["item"]))
    return lists


def assert_same(now: Lists, then: Lists) -> None:
    """Nearly: what is trained or scored on another CPU is rounded in another way."""
    same = [len({*then[user]} & {*now[user]}) / len(then[user]) for user in then]
    assert sum(same) / len(same) > 0.8


def of_today(card: dict[str, Any]) -> dict[str, Any]:
    """A card of before with the fields that are new: of its data, of rankers a setting, and of FCPO
    some settings, whether it kept its limit, and what it settled on."""
    data = card["data"] | {"encoding": "utf-8"}
    assert data.pop("shuffle_ties") is None
    card = card | {"data": data | {"ties": "keep"}}
    if "ranker" in card:
        card = card | {"ranker": with_popularity(card["ranker"])}
    if card["method"] != "fcpo":
        return card
    any_level = bool(card["config"]["warm_start"])
    rankers = [with_popularity(ranker) for ranker in (card["panel"] or {}).get("rankers", ())]
    return card | {
        "config": card["config"] | NEW_SETTINGS,
        "panel": card["panel"] and card["panel"] | {"rankers": rankers},
        **{"spread_part": 1.0, "settled": False},
        "keeps_limit": None if any_level or not card["rounds"] else True,
    }


def with_popularity(ranker: dict[str, Any]) -> dict[str, Any]:
    """The description of a ranker with the exponent of popularity, where it has one now."""
    if ranker["method"] not in ("ease", "itemknn"):
        return ranker
    return ranker | {"config": ranker["config"] | {"popularity": 0.0}}


def without(card: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in card.items() if key not in names}


def used(name: str, then: torch.Tensor, model: Recommender) -> torch.Tensor:
    """The part of an old tensor that is stored today: a softmax policy had a Gaussian head."""
    if isinstance(model, Fcpo) and model.config.policy == "softmax" and "actor.body.4." in name:
        return then[: len(then) // 2]
    return then


def test_every_folder_has_lists(folders: Path) -> None:
    assert {folder.name for folder in folders.iterdir()} == LISTS.keys()


@pytest.mark.parametrize(("name", "option"), SERVED)
def test_recommend_gives_the_lists_of_before(name: str, option: str, folders: Path) -> None:
    assert_same(recommended(folders / name, *option.split()), LISTS[name][option])


@pytest.mark.parametrize("name", LISTS)
def test_a_card_says_the_same_as_its_model(name: str, folders: Path) -> None:
    old = Run(folders / name)
    card, model, data = of_today(old.card()), old.model(), old.data()
    assert data == DataSpec(source=MARKET, ties="keep")
    assert card["data"] == data.model_dump(mode="json")
    assert {key: card[key] for key in model.description()} == model.description()
    # written again, it is the same run
    again = Run(folders / "again")
    again.folder.mkdir()
    again.write(model, data, card["status"])
    assert again.card() | {"fairhorizon": "0.1.0"} == card
    tensors = load_model(old.model_file, model.kind)[0]
    for key, value in load_model(again.model_file, model.kind)[0].items():
        assert torch.equal(value, used(key, tensors.pop(key), model)), key
    assert not tensors


@pytest.mark.parametrize("name", LISTS)
def test_the_settings_of_before_can_be_given_again(name: str, folders: Path) -> None:
    model = Run(folders / name).model()
    settings = model.all_settings()
    method = Method.parse(INTERRUPTED.get(name, name.replace("-", ":")))
    assert build(method, settings, model.seed).all_settings() == settings


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_checkpoint_is_resumed(name: str, folders: Path) -> None:
    folder = folders / name
    words = ["fit", INTERRUPTED[name], "--data", MARKET, "--out", str(folder), "--resume"]
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert run(words) == 0
    card, then = Run(folder).card(), json.loads((folder / "resumed.json").read_text())
    assert [one["round"] for one in card["rounds"]] == [1, 2, 3, 4]
    assert card["status"] == "finished"
    drop = ("rounds", "fairhorizon")  # what is learned is rounded otherwise on other machines
    assert without(card, *drop) == without(of_today(then), *drop)
    assert LISTS[name]["--resume"] != LISTS[name][""]  # the rest of the training made a difference
    assert_same(recommended(folder), LISTS[name]["--resume"])


@pytest.mark.parametrize("name", ["checkpoint", "model"])
def test_what_is_not_understood_is_refused_with_what_to_do(
    name: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a setting of the settings has gone."""
    folder = folders / "fcpo-interrupted"
    file = folder / f"{name}.safetensors"
    kind = {"checkpoint": "fcpo-checkpoint", "model": "fcpo"}[name]
    tensors, description = load_model(file, kind)
    description["config"]["gone"] = 1
    save_model(file, kind, tensors, description)
    words = {
        "checkpoint": ["fit", "fcpo", "--data", MARKET, "--out", str(folder), "--resume"],
        "model": ["recommend", str(folder), "--out", str(folder / "lists.csv")],
    }[name]
    assert run(words) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"error: {file}: holds something unexpected:")
    assert "gone" in message
    assert message.rstrip().endswith("(fit it again)")
