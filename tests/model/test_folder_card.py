"""A model folder remembers its data, split and groups, and says what is wrong with it."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

import fairhorizon as fh
from fairhorizon.data.interactions import NoTimestampsWarning
from fairhorizon.data.splits import Split
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, DataError, FairHorizonError, ModelError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.model.card import CHECKPOINT
from fairhorizon.model.folder import ModelFolder
from fairhorizon.recommenders.base import FitTask


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two users, five items: 10 is taken twice, 20 .. 50 once; by kind A B B A|B C."""
    path = tmp_path / "log.csv"
    rows = ["u,10,1,A", "u,20,2,B", "u,30,3,B", "w,10,4,A", "w,40,5,A|B", "w,50,6,C"]
    path.write_text("user,item,timestamp,kind\n" + "\n".join(rows))
    return path


def test_the_popular_group_follows_from_training_counts_and_the_share(log: Path) -> None:
    # Training is all but the last item of each user: 10 twice, 20 and 40 once.
    spec = DataSpec(source=str(log))
    assert spec.open().sensitive.tolist() == [True, False, False, False, False]
    assert spec.open(popular_share=0.5).sensitive.tolist() == [True, True, False, True, False]


def test_a_group_is_called_by_what_it_was_chosen_by(log: Path) -> None:
    assert DataSpec(source=str(log)).open().group_name == "popular"
    spec = DataSpec(source=str(log), group_column="kind", sensitive_values=("B", "C"))
    assert spec.group_name == spec.open().group_name == "kind = B or C"


def test_groups_by_a_column_of_the_log_or_of_a_table(log: Path, tmp_path: Path) -> None:
    spec = DataSpec(source=str(log), group_column="kind", sensitive_values=("B", "C"))
    assert spec.open().sensitive.tolist() == [False, True, True, True, True]
    table = tmp_path / "items.csv"
    table.write_text("item,brand\n50,y\n40,x\n30,x\n20,x\n10,y\n60,z\n")
    of_table = spec.model_copy(
        update={"item_table": str(table), "group_column": "brand", "sensitive_values": ("y",)}
    )
    assert of_table.open().sensitive.tolist() == [True, False, False, False, True]


def test_what_does_not_belong_together_is_refused(log: Path) -> None:
    spec = DataSpec(source=str(log))
    for update in ({"group_column": "kind"}, {"sensitive_values": ("A",)}):
        with pytest.raises(ConfigError, match="go together"):
            spec.model_copy(update=update).open()
    with pytest.raises(ConfigError, match=r"items.csv: which column has the groups"):
        spec.model_copy(update={"item_table": "items.csv"}).open()
    grouped = {"group_column": "kind", "sensitive_values": ("A",)}
    with pytest.raises(DataError, match=r"synthetic:users=5 has no column 'kind' \(give an item"):
        DataSpec(source="synthetic:users=5", **grouped).open()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there is no"):
        DataSpec(source="x", colour="red")  # type: ignore[call-arg]


def test_the_cut_and_the_columns_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"{n % 2};{n}\n" for n in range(10)))
    spec = DataSpec(source=str(path), user=0, item=1, header=False, separator=";", cut="time")
    again = DataSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    with pytest.warns(NoTimestampsWarning):
        parts = again.open().split
    assert parts.train.item_ids[parts.train.items].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert parts.test.item_ids[parts.test.items].tolist() == [8, 9]


def test_a_run_is_read_as_it_was_written(market: Split, small: FcpoConfig, tmp_path: Path) -> None:
    model = Fcpo(small.model_copy(update={"rounds": 1}), seed=3)
    training = model.training(FitTask.from_split(market))
    training.round()
    run, spec = ModelFolder(tmp_path / "new" / "run"), DataSpec(source="synthetic", ties=4)
    run.write(model.adopt(training), spec)
    training.save(run.folder / CHECKPOINT)
    assert run.data() == spec
    # resumed without a word on ties, it has those it began with
    plain = DataSpec(source="synthetic")
    assert run.with_its_ties(plain) == spec
    kept = DataSpec(source="synthetic", ties="keep")
    assert run.with_its_ties(kept) == kept
    assert ModelFolder(tmp_path / "none").with_its_ties(plain) == plain
    card = run.card().model_dump()
    assert (card["status"], card["method"], card["seed"]) == ("finished", "fcpo", 3)
    assert card["rounds"][0]["reward"] == training.reports[0].reward
    assert "seconds" not in card["rounds"][0]
    assert np.array_equal(run.recommender().sensitive_, training.sensitive)
    resumed = model.training(FitTask.from_split(market, checkpoint=run.folder, resume=True))
    assert resumed.reports == training.reports


@pytest.mark.parametrize("ties", ["auto", "keep", 4])
def test_the_order_of_ties_is_stored(ties: str | int) -> None:
    spec = DataSpec(source="synthetic", ties=ties)
    assert DataSpec.model_validate_json(spec.model_dump_json()) == spec


def test_an_unknown_order_of_ties_is_refused() -> None:
    for wrong in ({"ties": "file"}, {"ties": -1}, {"ties": "keep", "shuffle_ties": 3}):
        with pytest.raises(ValidationError):
            DataSpec.model_validate({"source": "synthetic", **wrong})


def test_an_empty_folder_is_no_run(market: Split, tmp_path: Path) -> None:
    run = ModelFolder(tmp_path)
    with pytest.raises(ModelError, match=r"no model here, run.json is missing \(fairhorizon fit"):
        run.data()
    with pytest.raises(ModelError, match=r"checkpoint.safetensors: there is no checkpoint"):
        Fcpo().fit(market, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"seed": "three"}, "seed=three: give a whole number"),
        ({"seed": True}, "seed=True: give a whole number"),
        ({"seed": 1.5}, "seed=1.5: give a whole number"),
        ({"seed": -1}, "seed=-1: give at least 0"),
        ({"method": 7}, "method=7: give text"),
        ({"method": None}, "method=None: give text"),
        ({"status": "new"}, "status=new: give one of finished, interrupted"),
        ({"data": "ml-1m"}, "data=ml-1m: give its settings by name, as in dim=32"),
    ],
)
def test_a_card_with_a_wrong_type_is_refused(
    change: dict[str, object], fault: str, tmp_path: Path
) -> None:
    run = ModelFolder(tmp_path)
    card = {
        "format": 1,
        "fairhorizon": fh.__version__,
        "status": "finished",
        "data": DataSpec(source="synthetic").model_dump(mode="json"),
        "method": "ease",
        "seed": 0,
        "limits": [],
        "item_table": None,
        "files": {},
        "ranker": {},
    }
    run.card_file.write_text(json.dumps(card))
    assert card.items() <= run.card().model_dump().items()
    run.card_file.write_text(json.dumps(card | change))
    message = f"{run.card_file}: not the card of a model: {fault} (fit it again)"
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        run.data()


def test_a_card_without_its_seed_is_refused(tmp_path: Path) -> None:
    run = ModelFolder(tmp_path)
    card = {"format": 1, "fairhorizon": "", "status": "finished", "data": {}, "method": ""}
    run.card_file.write_text(json.dumps(card))
    with pytest.raises(ModelError, match=r"seed is missing; limits is missing; .*\(fit it again\)"):
        run.data()


def test_data_of_a_card_that_cannot_be_read_are_said_in_one_line(tmp_path: Path) -> None:
    run, data = ModelFolder(tmp_path), {"source": 3, "cut": "never"}
    card = {
        "format": 1,
        "fairhorizon": "0.1",
        "status": "finished",
        "method": "x",
        "seed": 0,
        "data": data,
    }
    card |= {"limits": [], "item_table": None, "files": {}}
    run.card_file.write_text(json.dumps(card))
    with pytest.raises(ModelError, match=r"source=3: give text; cut=never: give one of"):
        run.data()


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A folder with all files that a model can have but an retention."""
    items = pl.DataFrame({"item": range(45), "kind": ["a", "b", "c"] * 15})
    log = fh.load("synthetic:users=30,items=40,interactions_per_user=10")
    model = fh.fit(log, "ease+lists", limits=["popular<=0.4"], items=items)
    model.observe(pl.DataFrame({"user": [3], "item": [44], "rating": [5.0], "timestamp": [10**10]}))
    model.save(tmp_path / "run")
    return tmp_path / "run"


FILES = ["items.parquet", "log.parquet", "model.safetensors", "observed.parquet"]


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_byte_is_refused_in_every_file(file: str, whole: Path) -> None:
    assert sorted(ModelFolder(whole).card().files) == FILES
    content = bytearray((whole / file).read_bytes())
    content[-9] ^= 1
    (whole / file).write_bytes(content)
    with pytest.raises(ModelError, match=rf"run/{file}: has changed since it was written.*\(copy"):
        fh.open_model(whole)
    (whole / file).unlink()
    with pytest.raises(ModelError, match=rf"run/{file}: is missing \(copy the whole folder"):
        fh.open_model(whole)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": 2}, "format 2, this version reads 1"),
        (
            {"fairhorizon": "99.1"},
            f"written by FairHorizon 99.1, and this is {fh.__version__} (install",
        ),
        ({"fairhorizon": "new"}, "written by FairHorizon new, and this is"),
        ({"method": "mf"}, "its method is not that of model.safetensors (copy"),
        ({"seed": 7}, "its seed is not that of model.safetensors"),
        ({"limits": ["popular<=most"]}, "run.json: 'popular<=most', position 10"),
        ({"limits": "popular<=0.4"}, "limits=popular<=0.4: give a list"),
        ({"files": {}}, "log.parquet: run.json does not name this file (fit it again)"),
        ({"data": {"source": "log.parquet", "cut": "none", "ties": "backwards"}}, "ties=backwards"),
    ],
)
def test_a_changed_card_is_refused(change: dict[str, object], fault: str, whole: Path) -> None:
    file = whole / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(FairHorizonError, match=f"run.*{re.escape(fault)}"):
        fh.open_model(whole)


def test_files_of_two_models_are_no_model(whole: Path, tmp_path: Path) -> None:
    """As after a copy, or a replacement, that was broken off."""
    fh.fit("synthetic:users=30,items=40,interactions_per_user=9", "ease").save(tmp_path / "two")
    (tmp_path / "two" / "model.safetensors").replace(whole / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors: has changed since it was written"):
        fh.open_model(whole)


def test_what_a_model_does_not_have_is_not_left_of_the_one_before(whole: Path) -> None:
    fh.fit("synthetic:users=30,items=40,interactions_per_user=9", "ease").save(whole)
    assert sorted(path.name for path in whole.iterdir()) == [
        *("log.parquet", "model.safetensors", "run.json"),
    ]
