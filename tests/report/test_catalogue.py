"""The list of methods and of their settings says what the code does."""

import shlex

import pytest

from fairhorizon.cli.fit import make
from fairhorizon.cli.options import parse_settings
from fairhorizon.fcpo.config import PRESETS
from fairhorizon.methods import RECOMMENDERS, MethodError
from fairhorizon.rankers import RANKERS
from fairhorizon.report.catalogue import Entry, Kind, SettingEntry, all_methods, describe
from fairhorizon.rerank import RERANKERS
from fairhorizon.vocabulary import Preset

NAMES = [entry.name for entry in all_methods()]


def setting(method: str, name: str) -> SettingEntry:
    (found,) = [one for one in describe(method).settings if one.name == name]
    return found


def test_every_method_is_listed_once_by_kind() -> None:
    kinds = {kind: [e.name for e in all_methods() if e.kind is kind] for kind in Kind}
    assert kinds[Kind.RANKER] == list(RANKERS)
    assert kinds[Kind.RERANKER] == list(RERANKERS)
    assert kinds[Kind.AGENT] == list(RECOMMENDERS)
    known = ("fast", "strong", "start", "strong-start", "long", "paper", "tuned")
    presets = [f"fcpo:{name}" for name in known]
    assert kinds[Kind.PRESET] == [f"fcpo:{name}" for name in PRESETS] == presets
    assert len(NAMES) == len(set(NAMES)) == 13 + 9 + 2 + 7


def test_a_level_is_for_rerankers_and_fcpo() -> None:
    with_level = [entry.name for entry in all_methods() if entry.takes_level]
    presets = [f"fcpo:{name}" for name in PRESETS]
    assert with_level == [*RERANKERS, "fcpo", *presets]


@pytest.mark.parametrize("entry", all_methods(), ids=NAMES)
def test_a_summary_is_one_sentence(entry: Entry) -> None:
    assert entry.summary.endswith(".")
    assert 30 < len(entry.summary) < 100


def test_the_paper_of_a_method_is_named() -> None:
    summaries = {entry.name: entry.summary for entry in all_methods()}
    assert summaries["ease"] == "EASE, a linear item-to-item model (Steck 2019)."
    assert "Singh & Joachims 2018" in summaries["foe"]
    assert "Xu et al. 2023" in summaries["pmmf"]
    assert "Morik et al. 2020" in summaries["fairco"]
    assert "Wu et al. 2021" in summaries["tfrom"]
    assert "Ge et al. 2021" in summaries["fcpo"]


def test_the_settings_of_a_ranker_by_hand() -> None:
    assert [setting.name for setting in describe("ease").settings] == ["l2"]
    assert describe("ease:recent").settings[:2] == (
        SettingEntry(
            "l2",
            "300.0",
            "number above 0",
            "Weight of the L2 penalty on the item-item weights.",
            "10 to 5000, log scale",
        ),
        SettingEntry(
            "half_life",
            "3.0",
            "number above 0, or null (None)",
            "Age, in items, at which an item of the history counts half; None: all items count "
            "equally.",
            "1 to 50, log scale",
        ),
    )
    assert describe("popularity").settings == ()


@pytest.mark.parametrize(
    ("method", "name", "default", "allowed", "searched"),
    [
        ("fcpo", "rounds", "30", "whole number, at least 0", None),
        ("fcpo:strong", "rounds", "30", "whole number, at least 0", None),
        ("fcpo:paper", "rounds", "100", "whole number, at least 0", None),
        ("fcpo:paper", "spread", "null", "number above 0, at most 1, or null (None)", None),
        ("fcpo:paper", "starts", "first", "first, anywhere, unseen", "first, anywhere"),
        # the range of tune includes the preset's own value
        ("fcpo:strong", "initial_std", "0.05", "number above 0", "0.05 to 3, log scale"),
        ("fcpo:paper", "initial_std", "1.0", "number above 0", "0.1 to 3, log scale"),
        ("fcpo", "pmf.dim", "100", "whole number, at least 1", "16 to 256, log scale"),
        ("lird", "pmf.dim", "32", "whole number, at least 1", "16 to 256, log scale"),
        ("lird", "gamma", "0.5", "number, at least 0, below 1", None),
        ("fcpo", "actor_hidden", "[16, 16]", "list of 2 whole numbers, each at least 1", None),
        (
            "fcpo",
            "warm_start",
            '["ridge", "ease:recent", "itemknn:recent", "popularity"]',
            "list of names",
            None,
        ),
        ("fcpo", "ease", "{}", "settings by name", None),
        ("ncf", "widths", "[32, 16]", "list of whole numbers, each at least 1", None),
        ("mf", "dim", "64", "whole number, at least 1", "16 to 256, log scale"),
        ("mf", "centred", "false", "true or false", None),
        ("mf", "protocol", "standard", "standard, paper", None),
        ("sasrec", "heads", "2", "whole number, at least 1", "1, 2, 4"),
        ("ease+quota", "quota.share", "0.4", "number from 0 to 1", None),
        ("quota", "quota.share", "0.4", "number from 0 to 1", None),
        ("ease:recent+quota", "l2", "300.0", "number above 0", "10 to 5000, log scale"),
    ],
)
def test_a_setting(method: str, name: str, default: str, allowed: str, searched: str) -> None:
    found = setting(method, name)
    assert (found.default, found.allowed, found.searched) == (default, allowed, searched)


def test_what_a_level_sets() -> None:
    assert describe("penalty").level == "ease+penalty@0.35 sets penalty.weight=0.35"
    assert describe("mf+foe").level == (
        "mf+foe@0.35 sets foe.constraint=share, foe.target=0.35, foe.form=at-most"
    )
    assert describe("fcpo:paper").level == "fcpo:paper@0.35 sets alpha_prime=0.35"
    assert describe("lird").level is None


@pytest.mark.parametrize("name", [*NAMES, "ease+quota", "gru4rec+foe"])
def test_fit_takes_the_example(name: str) -> None:
    """And every default can be given by hand."""
    described = describe(name)
    command, fit, method, *words = shlex.split(described.example)
    assert [command, fit] == ["fairhorizon", "fit"]
    given = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    assert len(given) == min(1, len(described.settings))
    every = [f"{one.name}={one.default}" for one in described.settings]
    for settings in (given, every):
        make(method, parse_settings(settings), None, Preset.STRONG, 0)


def test_the_example_sets_what_matters() -> None:
    assert describe("ease+quota").example == (
        "fairhorizon fit ease+quota --data ml-100k --set quota.share=0.4 --out runs/ease+quota"
    )
    assert describe("fcpo:paper").example == (
        "fairhorizon fit fcpo:paper --data ml-100k --set gamma_r=0.95 --out runs/fcpo-paper"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bogus", "there is no method 'bogus' (there are popularity, mf, "),
        (
            "bogus",
            "control, likes, pmmf, fairco, tfrom, fcpo, lird, fcpo:fast, fcpo:strong, fcpo:start, ",
        ),
        ("bogus", "fcpo:strong-start, fcpo:long, fcpo:paper, fcpo:tuned)"),
        (
            "ease+bogus",
            "(there are quota, penalty, foe, lists, control, likes, pmmf, fairco, tfrom)",
        ),
        ("fcpo:bogus", "no such preset (there are itemknn:recent, ease:recent, fcpo:fast, "),
        ("fcpo+quota", "only a ranker can be re-ranked"),
        ("ease+quota@0.4", "the level is not needed here (give ease+quota)"),
    ],
)
def test_what_there_is_not(name: str, message: str) -> None:
    with pytest.raises(MethodError) as error:
        describe(name)
    assert message in str(error.value)
