"""The round that serves, and what is said of it where no round kept the limit."""

import json
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.fitted import BestRound, best_round
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.recommenders.progress import LimitNotKeptWarning, RoundReport

pytestmark = pytest.mark.slow

MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
TINY = ("pmf.max_epochs=1", "gru_hidden=4", "rounds=1", "evaluate_every=1", "users_per_round=20")
PAPER = FcpoConfig.preset("paper", alpha_prime=0.4)  # tolerance 5 %: 42 % counts as kept


def report(number: int, cost: float, validation: float | None) -> RoundReport:
    """A round of 10 steps, whose limit is 4 sensitive items."""
    return RoundReport(number, 1.0, cost, 4.0, 0.01, "active", 1.0, validation)


def test_the_best_evaluated_round_that_kept_the_limit_serves() -> None:
    rounds = [
        report(1, 4.0, 0.10),
        report(2, 4.19, 0.20),  # above the limit, within the tolerance
        report(3, 4.21, 0.30),  # beyond it
        report(4, 3.00, 0.20),  # as good as the second, but later
        report(5, 3.00, None),
    ]
    chosen = best_round(rounds, PAPER)
    assert chosen == BestRound(2, pytest.approx(0.419), 0.4, 0.05, keeps_limit=True)
    assert chosen.remark == ""
    assert str(chosen) == (
        "round 2 serves, with 41.9 % of the showings of the group in training episodes (limit "
        "40 %; up to 42 % counts as kept, by cost_tolerance 0.05)"
    )


def test_the_tolerance_is_a_setting() -> None:
    rounds = [report(1, 4.1, 0.1), report(2, 4.0, 0.05)]
    strict = PAPER.model_copy(update={"cost_tolerance": 0.0})
    numbers = [best_round(rounds, config).number for config in (PAPER, strict)]  # type: ignore[union-attr]
    assert numbers == [1, 2]


def test_without_a_round_that_kept_the_limit_the_last_serves_and_that_is_said() -> None:
    chosen = best_round([report(1, 5.0, 0.1), report(2, 4.5, None), report(3, 4.6, 0.2)], PAPER)
    assert chosen is not None
    assert (chosen.number, chosen.keeps_limit) == (3, False)
    assert chosen.remark == (
        "no evaluated round of the training kept the limit, so the last one serves: round 3, with "
        "46.0 % of the showings of the group (limit 40 %; up to 42 % counts as kept, by "
        "cost_tolerance 0.05)"
    )


def test_a_last_round_that_kept_the_limit_needs_no_evaluation() -> None:
    chosen = best_round([report(1, 5.0, None), report(2, 4.0, None)], PAPER)
    assert chosen is not None
    assert (chosen.number, chosen.keeps_limit) == (2, True)


def test_where_any_level_is_served_no_round_is_marked() -> None:
    assert best_round([report(1, 9.0, 0.1)], FcpoConfig()) is None
    assert best_round([], PAPER) is None


def test_a_fit_that_never_kept_its_limit_says_so_and_so_does_its_file(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    config = small.model_copy(update={"rounds": 2, "evaluate_every": 1, "alpha_prime": 0.01})
    with pytest.warns(LimitNotKeptWarning, match="no evaluated round of the training kept"):
        model = Fcpo(config).fit(market)
    share = model.history_[-1].cost / model.history_[-1].limit * 0.01
    assert share > 0.0105
    assert model.keeps_limit_ is False
    assert f"round 2, with {100 * share:.1f} % of the showings" in model.summary()
    assert model.description()["keeps_limit"] is False
    model.save(tmp_path / "model.safetensors")
    again = Fcpo.load(tmp_path / "model.safetensors")
    assert (again.keeps_limit_, again.remarks_) == (False, model.remarks_)


def test_a_fit_that_kept_its_limit_names_its_round(market: Split, small: FcpoConfig) -> None:
    model = Fcpo(small.model_copy(update={"rounds": 2, "alpha_prime": 1.0})).fit(market)
    assert model.keeps_limit_ is True
    assert model.remarks_ == ()
    assert "round 2 serves, with" in model.summary()
    assert "(limit 100 %; up to 100 % counts as kept, by cost_tolerance 0.05)" in model.summary()


def test_the_policy_served_is_that_of_the_round_named(market: Split, small: FcpoConfig) -> None:
    """The round is found from the reports alone; training keeps the parameters by its own rule."""
    model = Fcpo(small.model_copy(update={"alpha_prime": 0.3, "evaluate_every": 1})).fit(market)
    chosen = best_round(model.history_, model.config)
    assert chosen is not None
    if model.policy_.validation is not None:
        named = next(one for one in model.history_ if one.round == chosen.number)
        assert named.validation == model.policy_.validation
    assert (model.policy_.validation is not None) == any(
        one.keeps_limit(0.05) for one in model.history_ if one.validation is not None
    )


@pytest.mark.filterwarnings("always::fairhorizon.recommenders.progress.LimitNotKeptWarning")
def test_the_command_marks_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = [f"--set={setting}" for setting in TINY]
    out = tmp_path / "run"
    assert run(["fit", "fcpo:paper@0.01", "--data", MARKET, "--out", str(out), *settings]) == 0
    text = capfd.readouterr()
    assert text.err.count("note: no evaluated round of the training kept the limit") == 1
    assert "no evaluated round of the training kept the limit" in text.out  # the line at the end
    assert json.loads((out / "run.json").read_text())["keeps_limit"] is False
    assert run(["evaluate", str(out), "--k=5"]) == 0
    assert "note: no evaluated round of the training" in capfd.readouterr().err


@pytest.mark.parametrize(("command", "file"), [("compare", "table"), ("levels", "levels")])
def test_tables_mark_the_method(
    command: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with them the JSON; a method without such a training has no mark."""
    level = "@0.01" if command == "compare" else ""
    words = ["--levels=0.01"] if command == "levels" else []
    methods = f"fcpo:paper{level},popularity{'+quota' if words else ''}"
    settings = [f"--set=fcpo.{setting}" for setting in TINY]
    options = ["--seeds=1", "--jobs=1", "--k=5", "--out", str(tmp_path), *settings, *words]
    assert run([command, "--data", MARKET, "--methods", methods, *options]) == 0
    printed = capsys.readouterr()
    table = (tmp_path / f"{file}.md").read_text(encoding="utf-8")
    for text in (table, printed.out):
        assert f"fcpo:paper{level} †" in text
        tables = 1 if command == "compare" else 2  # one of where the group is in the lists
        assert text.count("†") == tables + 1  # the marks and their note
        assert "† under some seed no evaluated round" in " ".join(text.split())
    assert "note: fcpo:paper" in printed.err
    name = "comparison" if command == "compare" else "levels"
    rows = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
    assert [row["limit_missed"] for row in rows] == [1, 0]
    if command == "compare":
        assert f"fcpo:paper{level} †" in (tmp_path / "index.html").read_text(encoding="utf-8")
    # the stored rows still have it
    assert run([command, "--data", MARKET, "--methods", methods, *options]) == 0
    assert f"fcpo:paper{level} †" in capsys.readouterr().out
