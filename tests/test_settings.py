"""Every setting says what it does, to `help` and in the JSON schema."""

import importlib
import inspect
import pkgutil
import re
from typing import Literal

import pytest
from pydantic import ValidationError

import fairhorizon
from fairhorizon.cli.options import parse_settings
from fairhorizon.datasets import DataSpec
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.rankers.mf import RankingMfConfig
from fairhorizon.rerank.quota import Quota
from fairhorizon.settings import Settings, SettingsError, changed, expected, faults


def all_settings(base: type[Settings] = Settings) -> list[type[Settings]]:
    """Every class of settings in the package."""
    for module in pkgutil.walk_packages(fairhorizon.__path__, "fairhorizon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return subclasses(base)


def subclasses(base: type[Settings]) -> list[type[Settings]]:
    found = [inner for one in base.__subclasses__() for inner in (one, *subclasses(one))]
    ours = [one for one in found if one.__module__.startswith("fairhorizon.")]
    # what is abstract has its settings in the classes made of it
    ours = [one for one in ours if not inspect.isabstract(one)]
    return sorted(set(ours), key=lambda one: one.__name__)


ALL = all_settings()
FIELDS = [(one, name) for one in ALL for name in one.model_fields]


def test_all_settings_are_found():
    names = {one.__name__ for one in ALL}
    assert names >= {
        "AlsConfig",
        "BprConfig",
        "DataSpec",
        "EaseConfig",
        "ExposureFairness",
        "FcpoConfig",
        "Gru4RecConfig",
        "ItemKnnConfig",
        "LirdConfig",
        "LongRunSettings",
        "MfConfig",
        "NcfConfig",
        "Penalty",
        "Quota",
        "RankingMfConfig",
        "ResponseConfig",
        "SasRecConfig",
        "SimulationConfig",
    }


def test_every_setting_says_what_it_does():
    for settings, name in FIELDS:
        description = settings.model_fields[name].description
        where = f"{settings.__name__}.{name}: {description}"
        assert description, where
        assert description[0].isupper(), where
        assert description.endswith("."), where
        assert len(description) < 200, where


def test_the_schema_has_the_descriptions():
    limits = FcpoConfig.model_json_schema()["properties"]["kl_limit"]
    assert limits["description"] == (
        "Largest mean KL divergence between the policies before and after an update (delta)."
    )
    assert (limits["default"], limits["exclusiveMinimum"]) == (0.02, 0)
    share = Quota.model_json_schema()["properties"]["share"]
    assert share["description"] == ("Largest share of every list that may be sensitive items (q).")


def test_an_inherited_setting_keeps_its_description():
    assert RankingMfConfig.model_fields["batch"].description == "Interactions per gradient step."
    assert RankingMfConfig().dim == 64


def test_settings_are_frozen_and_refuse_what_they_do_not_know():
    with pytest.raises(ValidationError, match="frozen"):
        Quota(share=0.5).share = 0.6  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Quota.model_validate({"shares": 0.5})


WRONG: tuple[object, ...] = ("wrong", -1e9, 1e9, 0.5, -1, None, [], [-1], ["x"], {}, {"x": 1}, True)


def test_every_fault_says_what_to_give():
    """All constraints that our settings have, in our words instead of pydantic's."""
    theirs = re.compile(r"Input|\bvalid\b|unable to parse|Value error|instance")
    for settings, name in FIELDS:
        messages: list[str] = []
        for value in (*WRONG, float("nan"), object()):
            try:
                settings.model_validate({name: value})
            except ValidationError as error:
                messages += [faults(error), *map(expected, error.errors())]
        assert messages, f"{settings.__name__}.{name}"
        assert all(messages), f"{settings.__name__}.{name}"
        assert [message for message in messages if theirs.search(message)] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha_prime": 1.5}, "alpha_prime=1.5: give at most 1"),
        ({"alpha_prime": 0}, "alpha_prime=0: give a number above 0"),
        ({"alpha_prime": "much"}, "alpha_prime=much: give a number"),
        ({"alpha_prime": float("nan")}, "alpha_prime=nan: give a finite number"),
        ({"rounds": -1}, "rounds=-1: give at least 0"),
        ({"rounds": "many"}, "rounds=many: give a whole number"),
        ({"rounds": 1.5}, "rounds=1.5: give a whole number"),
        ({"rounds": "none"}, "rounds=none: give a whole number"),
        ({"attention": "odd"}, "attention=odd: give one of even, log"),
        ({"actor_hidden": 8}, "actor_hidden=8: give a list, as in [64,64]"),
        ({"actor_hidden": [8, "x"]}, "actor_hidden.1=x: give a whole number"),
        ({"pmf": {"dim": 0}}, "pmf.dim=0: give at least 1"),
        ({"pmf": 3}, "pmf=3: give its settings by name, as in dim=32"),
        (
            {"rounds": -1, "seed": 1},
            "rounds=-1: give at least 0; there is no seed (but ridge",
        ),
    ],
)
def test_a_fault_names_setting_value_and_remedy(given: dict[str, object], message: str):
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}"):
        changed(FcpoConfig(), given)


def test_a_fault_of_several_types_is_one_fault():
    with pytest.raises(ValidationError) as raised:
        DataSpec.model_validate({"source": "x", "user": [1]})
    assert faults(raised.value) == "user=[1]: give text or a whole number"


@pytest.mark.parametrize("word", ["none", "None", "null", "NONE"])
def test_the_word_none_is_none(word: str):
    assert changed(FcpoConfig(), parse_settings([f"spread={word}"])).spread is None


class Words(Settings):
    __module__ = "tests"  # none of the package's settings
    style: Literal["none", "full"] = "full"
    inner: Quota = Quota(share=0.5)


def test_where_the_word_none_is_a_value_it_stays_a_word():
    assert changed(Words(), parse_settings(["style=none"])).style == "none"
    with pytest.raises(SettingsError, match=r"^inner\.share=none: give a number$"):
        changed(Words(), parse_settings(["inner.share=none"]))
