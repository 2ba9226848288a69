"""Settings that are given for a ranker of an ensemble stay; all others are chosen."""

import json
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.methods import load_method
from fairhorizon.model.folder import ModelFolder
from fairhorizon.rankers.ease import RecentEase, RecentEaseConfig
from fairhorizon.rankers.ensemble import StackConfig
from fairhorizon.rankers.ridge import Ridge, RidgeConfig
from fairhorizon.rankers.selection import LaterPart, select_settings
from fairhorizon.settings import Given, SettingsError, changed
from fairhorizon.vocabulary import Protocol

MARKET = "synthetic:users=60,items=80,interactions_per_user=20,seed=5"
QUICK = ('warm_start=["ease:recent"]', "rounds=0", "candidates=10", "spread=none")


@pytest.fixture(scope="module")
def part() -> LaterPart:
    return LaterPart.from_training(split(load(MARKET)), Protocol.STANDARD, seed=0)


def test_what_is_given_is_never_changed_and_the_rest_is_chosen(part: LaterPart) -> None:
    free = select_settings(RecentEase(), part, {})
    assert isinstance(free, RecentEaseConfig)
    assert free.l2 != RecentEaseConfig().l2  # this market wants another one
    for half_life in (None, 7.0):
        given = {"half_life": half_life}
        chosen = select_settings(RecentEase(changed(RecentEaseConfig(), given)), part, given)
        assert isinstance(chosen, RecentEaseConfig)
        assert chosen.half_life == half_life
        assert chosen.l2 != RecentEaseConfig().l2
    everything: Given = {"l2": 5.0, "half_life": 7.0, "training_half_life": 9.0, "popularity": 0.3}
    fixed = changed(RecentEaseConfig(), everything)
    assert select_settings(RecentEase(fixed), part, everything) == fixed
    ridge = select_settings(Ridge(RidgeConfig(l2=1.0)), part, {"l2": 1.0})
    assert isinstance(ridge, RidgeConfig)
    assert ridge.l2 == 1.0


@pytest.mark.parametrize("config", [FcpoConfig, StackConfig])
def test_a_setting_that_a_ranker_cannot_take_is_refused_by_name(
    config: type[FcpoConfig] | type[StackConfig],
) -> None:
    known = "l2, half_life, training_half_life, popularity"
    with pytest.raises(SettingsError) as error:
        changed(config(), {"ease": {"halflife": 5}})
    assert str(error.value) == f"ease: there is no halflife (but {known})"
    with pytest.raises(SettingsError, match="ridge: l2=-1: give a number above 0"):
        changed(config(), {"ridge": {"l2": -1}})
    taken = changed(config(), {"ease": {"half_life": 5, "l2": 2}})
    for name in ("ease", "ease:recent"):
        assert taken.given_to(name) == {"half_life": 5, "l2": 2}
    assert all(not taken.given_to(name) for name in ("ridge", "itemknn:recent", "popularity"))


def test_what_is_given_is_the_same_after_a_file() -> None:
    config = FcpoConfig(ridge={"decays": (0.8, 0.97)})
    assert FcpoConfig.model_validate_json(config.model_dump_json()) == config
    assert changed(RidgeConfig(), config.given_to("ridge")).decays == (0.8, 0.97)


def settings_of_ease(model: object) -> RecentEaseConfig:
    """Of the ranker that a stored model serves with."""
    assert isinstance(model, Fcpo)
    ensemble = model.policy_.ensemble
    assert ensemble is not None
    (ease,) = ensemble.rankers
    assert isinstance(ease.config, RecentEaseConfig)
    return ease.config


def test_settings_of_a_ranker_reach_it_from_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--set={setting}" for setting in (*QUICK, "ease.half_life=5")]
    out = tmp_path / "run"
    assert run(["fit", "fcpo", "--data", MARKET, *words, "--out", str(out)]) == 0
    config = settings_of_ease(ModelFolder(out).recommender())
    assert config.half_life == 5
    assert config.l2 != RecentEaseConfig().l2
    assert (
        f"rankers, by weight: ease:recent 1 (l2={config.l2:g} half_life=5"
        in capsys.readouterr().err
    )
    assert ModelFolder(out).card().model_dump()["config"]["ease"] == {"half_life": 5}
    wrong = ["--set=ease.halflife=5", "--out", str(tmp_path / "wrong")]
    assert run(["fit", "fcpo", "--data", MARKET, *wrong]) == 2
    assert "ease: there is no halflife (but l2, " in capsys.readouterr().err


@pytest.mark.parametrize("study", ["compare", "levels"])
def test_settings_of_a_ranker_reach_it_from_a_study(study: str, tmp_path: Path) -> None:
    words = [f"--set=fcpo.{setting}" for setting in (*QUICK, "ease.half_life=5")]
    more = ["--levels=0.4", "--k=10"] if study == "levels" else ["--k=10"]
    out, rows = tmp_path / "study", tmp_path / "rows.json"
    command = [study, "--data", MARKET, "--methods=fcpo", "--seeds=1", "--jobs=1", *words, *more]
    assert run([*command, "--out", str(out), "--json", str(rows)]) == 0
    (model,) = (out / "models").glob("fcpo*.safetensors")
    assert settings_of_ease(load_method(model)).half_life == 5
    assert json.loads(rows.read_text())["rows"]
