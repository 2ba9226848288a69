"""Every setting says what it does, to `help` and in the JSON schema."""

import importlib
import pkgutil

import pytest
from pydantic import ValidationError

import fairhorizon
from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.rankers.mf import RankingMfConfig
from fairhorizon.rerank.quota import Quota
from fairhorizon.settings import Settings


def all_settings(base: type[Settings] = Settings) -> list[type[Settings]]:
    """Every class of settings in the package."""
    for module in pkgutil.walk_packages(fairhorizon.__path__, "fairhorizon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return subclasses(base)


def subclasses(base: type[Settings]) -> list[type[Settings]]:
    found = [inner for one in base.__subclasses__() for inner in (one, *subclasses(one))]
    ours = [one for one in found if one.__module__.startswith("fairhorizon.")]
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


@pytest.mark.parametrize(
    ("settings", "name"), FIELDS, ids=[f"{one.__name__}.{name}" for one, name in FIELDS]
)
def test_every_setting_says_what_it_does(settings: type[Settings], name: str):
    description = settings.model_fields[name].description
    assert description, f"{settings.__name__}.{name} has no docstring"
    assert description[0].isupper()
    assert description.endswith(".")
    assert len(description) < 200


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
