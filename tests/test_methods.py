"""Methods by name: parsed, built with settings, described so that they can be built again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import PRESETS
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.methods import (
    GIVEN,
    RECOMMENDERS,
    Method,
    MethodError,
    build,
    load_method,
    rankers_of,
)
from fairhorizon.rankers import RANKERS, ranker_class
from fairhorizon.recommenders.given_lists import GivenLists
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.registry import LazyClasses
from fairhorizon.rerank import RERANKERS
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.quota import Quota
from fairhorizon.settings import SettingsError
from fairhorizon.storage import save_model


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("ease", Method("ease")),
        ("ease:recent", Method("ease", preset="recent")),
        ("ease:recent+quota@0.4", Method("ease", "quota", 0.4, "recent")),
        (" fcpo@0.4 ", Method("fcpo", level=0.4)),
        ("fcpo:paper@0.4", Method("fcpo", level=0.4, preset="paper")),
        ("bpr+quota", Method("bpr", "quota")),
        ("bpr+penalty@2", Method("bpr", "penalty", 2.0)),
    ],
)
def test_a_name_says_ranker_re_ranker_and_level(text: str, method: Method) -> None:
    assert Method.parse(text) == method
    assert str(method) == text.strip()


@pytest.mark.parametrize("classes", [RANKERS, RERANKERS, RECOMMENDERS])
def test_every_class_is_listed_under_its_own_name(classes: LazyClasses[Any]) -> None:
    assert {name: kind.method for name, kind in classes.items()} == {name: name for name in classes}


def test_what_is_read_from_files_has_the_names_of_its_classes() -> None:
    assert (ranker_class("scores:mine").method, GivenLists.method) == GIVEN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("esae", r"there is no method 'esae' \(there are popularity, mf,"),
        ("ease+quta", r"there is no re-ranker 'quta' \(there are "),
        ("ease+", "there is no re-ranker ''"),
        ("fcpo+quota", "only a ranker can be re-ranked"),
        (
            "ease:old",
            r"ease:old: there is no such preset \(there are itemknn:recent, ease:recent, ",
        ),
        ("ease@0.4", "ease has no level to set"),
        ("ease+quota@much", r"'much' is no number \(as in ease\+quota@0.4\)"),
    ],
)
def test_a_wrong_name_is_told(text: str, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        Method.parse(text)


def test_a_limit_goes_to_methods_whose_dial_is_a_share() -> None:
    assert Method("fcpo").limited_to(0.3) == Method("fcpo", level=0.3)
    assert Method("mf", "quota").limited_to(0.3) == Method("mf", "quota", 0.3)
    for method in (Method("mf"), Method("mf", "penalty"), Method("fcpo", level=0.2)):
        with pytest.raises(ConfigError):
            method.limited_to(0.3)


def test_settings_reach_their_part() -> None:
    model = build(Method.parse("bpr+quota"), {"dim": 7, "quota": {"share": 0.3}}, seed=5)
    assert isinstance(model, Ranked)
    assert (model.ranker.config.dim, model.reranker, model.seed) == (7, Quota(share=0.3), 5)
    at_level = build(Method.parse("bpr+quota@0.6"), {"quota": {"share": 0.3}}, seed=5)
    assert isinstance(at_level, Ranked)
    assert at_level.reranker == Quota(share=0.6)  # the name says it last
    policy = build(Method.parse("fcpo:paper@0.4"), {"pmf": {"dim": 8}}, seed=1)
    assert isinstance(policy, Fcpo)
    pmf = PRESETS["paper"].pmf.model_copy(update={"dim": 8})
    assert policy.config == PRESETS["paper"].model_copy(update={"alpha_prime": 0.4, "pmf": pmf})


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("bpr", {"dims": 7}, r"there is no dims \(but dim,"),
        ("bpr", {"quota": {"share": 0.3}}, r"there is no quota"),
        ("popularity", {"dim": 7}, r"there is no dim \(but none\)"),
        ("bpr+quota", {"quota": {"shares": 0.3}}, r"there is no shares \(but share\)"),
        ("bpr+quota", {"quota": 0.3}, r"quota=0.3 \(say which of its settings, as in quota.key="),
        ("bpr+quota@1.5", {}, "share=1.5: give at most 1"),
        ("fcpo@2", {}, "alpha_prime=2.0: give at most 1"),
        ("fcpo", {"pmf": {"dims": 3}}, r"there is no pmf.dims \(but dim,"),
    ],
)
def test_wrong_settings_are_told(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build(Method.parse(name), given, seed=0)


@pytest.mark.parametrize("name", [*RANKERS, "fcpo@0.4", "lird", "mf+foe", "als+penalty@2"])
def test_a_model_can_be_built_again_from_its_settings(name: str) -> None:
    method = Method.parse(name)
    model = build(method, {}, seed=0)
    settings = model.all_settings()
    assert build(method, settings, seed=0).all_settings() == settings


def test_any_model_file_is_loaded_by_what_it_holds(market: Split, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    model = build(Method.parse("popularity+penalty@0.5"), {}, seed=3)
    assert isinstance(model, Ranked)
    model.fit(market).save(file)
    again = load_method(file)
    assert isinstance(again, Ranked)
    assert (again.method, again.reranker, again.seed) == (model.method, Penalty(weight=0.5), 3)
    save_model(file, "oracle", {"x": torch.zeros(1)}, {})
    with pytest.raises(ModelError, match="holds a 'oracle' model, which this version does not"):
        load_method(file)


def test_fcpo_is_the_fast_one_unless_it_is_said() -> None:
    for name, preset in (("fcpo", "fast"), ("fcpo:strong", "strong"), ("fcpo:paper", "paper")):
        model = build(Method.parse(name), {}, seed=0)
        assert isinstance(model, Fcpo)
        assert model.config == PRESETS[preset]
    paper = build(Method("fcpo"), {}, seed=0, preset="paper")
    assert paper.all_settings() == PRESETS["paper"].model_dump(mode="json")


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("ease", "ease"),
        ("ease+quota@0.4", "ease"),
        ("ease:recent+lists@0.4", "ease:recent"),
        ("ease+lists", "ease"),
        ("lird", "lird"),
        ("fcpo@0.4", "fcpo:fast"),
        ("fcpo:strong@0.4", "fcpo:strong"),
        ("fcpo:strong", "fcpo:strong"),
        ("fcpo:start@0.4", "fcpo:start"),
        ("fcpo:paper@0.4", "fcpo:paper@0.4"),  # for its level alone
        ("fcpo:paper", "fcpo:paper"),
    ],
)
def test_what_is_trained_does_not_depend_on_what_is_chosen_later(name: str, trained: str) -> None:
    assert str(Method.parse(name).trained) == trained


def test_a_file_name_has_no_colon():
    assert Method.parse("fcpo:strong@0.4").file_name == "fcpo-strong@0.4"
    assert Method.parse("ease+quota@0.4").file_name == "ease+quota@0.4"


def test_the_rankers_that_a_method_is_made_of():
    found = {
        name: rankers_of(build(Method.parse(name), {}, seed=0))
        for name in ("fcpo", "fcpo:start", "stack+lists", "ease+quota", "fcpo:paper", "lird")
    }
    four = {"ridge", "ease:recent", "itemknn:recent", "popularity"}
    assert found["fcpo"] == found["fcpo:start"] == found["stack+lists"] == four
    assert found["ease+quota"] == {"ease"}
    assert found["fcpo:paper"] == found["lird"] == frozenset()
    strong = rankers_of(build(Method.parse("fcpo:strong-start"), {}, seed=0))
    assert strong == four | {"gru4rec"}


OWN_METHOD = Path(__file__).parents[1] / "docs" / "how-to" / "own-method.md"
METHODS = """
[fairhorizon.methods]
trending = trending:Trending
ease = trending:Trending
number = trending:NUMBER
lost = nowhere:Lost
"""


@pytest.mark.slow
def test_an_installed_package_brings_a_method(tmp_path: Path) -> None:
    """The ranker of the docs, as a package: the command line knows it and says what fails."""
    example = re.search(r"```python\n(.*?)```", OWN_METHOD.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "trending.py").write_text(f"{example[1]}\n\nNUMBER = 7\n", encoding="utf-8")
    package = tmp_path / "trending-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: trending\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(METHODS)
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    words = "fit trending+quota@0.4 --data synthetic:users=20,items=30,interactions_per_user=8"
    done = subprocess.run(
        [sys.executable, "-m", "fairhorizon", *words.split(), "--out", str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["method"] == "trending+quota"
    # Without the package:
    with pytest.raises(ModelError, match=r"no ranker 'trending' \(install the package that "):
        load_method(tmp_path / "run" / "model.safetensors")
    assert "the method ease of trending:Trending is there already" in done.stderr
    assert "the method number of trending:NUMBER is neither a Ranker nor a Recomm" in done.stderr
    assert "the method lost of nowhere:Lost fails: ModuleNotFoundError" in done.stderr
