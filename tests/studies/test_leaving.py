"""Studies of users who leave: calibration, pretraining, and a run that goes on."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from fairhorizon.datasets import DataSpec
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.evaluation.run_records import by_activity, practice_users
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.fcpo.retention.policy import BOUND
from fairhorizon.methods import Method
from fairhorizon.recommenders.likes import LikeModel
from fairhorizon.report.long_term import can_leave, staying_grid
from fairhorizon.simulation.churn import ChurnConfig
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies.long_term import (
    LongStudy,
    NamedMethod,
    RunLimits,
    UserSource,
    learner_of,
)
from fairhorizon.studies.study import Study
from fairhorizon.vocabulary import Retrain

MARKET = DataSpec(source="synthetic:users=80,items=60,interactions_per_user=20")
SMALL: dict[str, Any] = {
    "fcpo": {
        **{"rounds": 1, "horizon": 5, "history": 3, "adapt": False},
        **{"warm_start": ["ease"], "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
        "list_length": 1,
        "looking_ahead": {
            "hidden": [4, 4],
            "critic_iterations": 8,
            "rounds": 3,
            "pretraining_runs": 1,
        },
    },
}
CHURN_FEATURES = ChurnConfig(patience=3, like_adds=2)


def make(folder: Path, steps: int = 12) -> LongStudy:
    study = Study(folder, MARKET, ks=(1,), settings=SMALL)
    settings = LongRunSettings(steps=steps, update_every=4, alpha_prime=0.3, warm_up=0)
    return LongStudy(study, settings, SimulationConfig(churn=CHURN_FEATURES), retrain=Retrain.NONE)


def named(*names: str) -> list[NamedMethod]:
    return [NamedMethod.at_limit(Method.parse(name), 0.3) for name in names]


def stop_after(calls: int) -> Any:
    left = iter(range(calls))

    def press() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return press


def test_likes_and_who_is_there_are_in_record_and_table(tmp_path: Path) -> None:
    long_study, chosen = make(tmp_path / "a"), named("ease", "ease+control")
    long_study.run(chosen, [0])
    steps = long_study.result(chosen, [0]).steps
    for method in ("ease", "ease+control"):
        own = steps.filter(pl.col("method") == method)
        here, likes = own["here"].to_numpy(), own["likes"].to_numpy()
        assert (np.diff(here) <= 0).all()  # nobody comes back
        assert 0 < here[-1] < 1
        assert (np.diff(likes) >= 0).all()
        shown = np.diff(own["showings"].to_numpy(), prepend=0)
        assert shown == pytest.approx([1, *here[:-1]])  # who is there is shown an item
        notes = json.loads(own["notes"][-1])
        thirds = [notes[f"here of {name}"] for name in ("light", "medium", "heavy")]
        assert np.average(thirds, weights=counted_thirds()) == pytest.approx(here[-1])
        assert notes["practice likes"] >= 0
    assert can_leave(steps)
    grid = staying_grid(steps)
    assert grid.headings == [
        *("Method", "Likes", "Showings", "Still there", "Light", "Medium", "Heavy"),
    ]
    record = long_study.task(chosen[0], 0).record()
    found = record.of_users("likes")
    assert found is not None
    counted = ~practice_users(80).numpy()
    assert counted.sum() == 54
    assert found[counted].mean() == pytest.approx(
        steps.filter(pl.col("method") == "ease")["likes"][-1]
    )


def counted_thirds() -> list[int]:
    """Light, medium and heavy users without those by whom settings are chosen."""
    groups = by_activity(torch.from_numpy(make(Path()).study.dataset().split.train.user_counts()))
    return [int((inside & ~practice_users(80)).sum()) for inside in groups.values()]


def test_activity_has_three_equal_parts() -> None:
    groups = by_activity(torch.tensor([9, 1, 5, 5, 2, 8]))
    assert {name: inside.nonzero().flatten().tolist() for name, inside in groups.items()} == {
        "light": [1, 4],
        "medium": [2, 3],
        "heavy": [0, 5],
    }


@pytest.mark.slow
def test_a_policy_with_a_horizon_is_pretrained_and_goes_on_where_it_was(tmp_path: Path) -> None:
    chosen = named("fcpo:long")
    whole, stopped = make(tmp_path / "a", steps=24), make(tmp_path / "b", steps=24)
    whole.run(chosen, [0])
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0], meanwhile=stop_after(0))
    stopped.run(chosen, [0], resume=True)
    steps = [one.steps(chosen, [0]).drop("seconds", "notes") for one in (whole, stopped)]
    assert_frame_equal(*steps, check_exact=True)
    (file,) = (tmp_path / "a" / "models").glob("pretrained-*.safetensors")
    assert file.stat().st_size > 0
    notes = json.loads(whole.steps(chosen, [0])["notes"][-1])
    assert 0 < notes["worth of a like"] < math.exp(2 * BOUND)
    assert steps[0]["limited_rate"][-1] <= 0.3 + 1e-9


@pytest.mark.parametrize("method", ["ease+likes", "fcpo:long"])
def test_who_is_for_practice_is_in_no_figure(tmp_path: Path, method: str) -> None:
    long_study, (chosen,) = make(tmp_path), named(method)
    run, _ = long_study.task(chosen, 0)._begin()
    learner = learner_of(run.recommender)
    if isinstance(learner, LikeModel):
        users, stays = len(learner.responses.stay), learner.responses.stay
    else:
        assert isinstance(learner, RetentionModel)
        users, stays = len(learner.here), learner.responses.stay
    assert users == practice_users(80).sum() == 26
    assert stays.max() == 12  # all steps of a pretraining run
    row = run.step()
    assert len(run.state.users) == 80  # the run that counts serves everybody
    counted = ~practice_users(80)
    assert row["likes"] == pytest.approx(float(run.likes_of_users()[counted].double().mean()))


def test_chances_of_a_like_go_on_where_they_were(tmp_path: Path) -> None:
    chosen = named("ease+likes")
    whole, stopped = make(tmp_path / "a", steps=24), make(tmp_path / "b", steps=24)
    whole.run(chosen, [0])
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0], meanwhile=stop_after(0))
    stopped.run(chosen, [0], resume=True)
    steps = [one.steps(chosen, [0]).drop("seconds", "run") for one in (whole, stopped)]
    assert_frame_equal(*steps, check_exact=True)
    assert steps[0]["limited_rate"][-1] <= 0.3 + 1e-9


@pytest.mark.parametrize(
    "rule", [{"mmr": 0.8}, {"kind_quota": 1, "window": 3}], ids=["mmr", "quota"]
)
def test_a_rule_about_kinds_goes_on_where_it_was(tmp_path: Path, rule: dict[str, Any]) -> None:
    """Of users who are sated by the same kinds; without the rule they are shown other items."""
    table = tmp_path / "items.csv"
    table.write_text("item,kind\n" + "\n".join(f"{item},{'ABC'[item % 3]}" for item in range(60)))
    simulation = SimulationConfig(
        churn=CHURN_FEATURES.model_copy(update={"satiation": 1.0, "by": "kind"})
    )

    def begun(folder: str, settings: dict[str, Any]) -> LongStudy:
        study = Study(tmp_path / folder, MARKET, ks=(1,), settings={"control": settings})
        run = LongRunSettings(steps=24, update_every=4, alpha_prime=0.3, warm_up=0)
        asked = RunLimits(item_table=str(table))
        return LongStudy(study, run, simulation, asked, retrain=Retrain.NONE, by="kind")

    chosen = named("ease+control")
    whole, stopped, plain = begun("a", rule), begun("b", rule), begun("c", {})
    for one in (whole, plain):
        one.check(chosen)
        one.run(chosen, [0])
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0], meanwhile=stop_after(0))
    stopped.run(chosen, [0], resume=True)
    steps = [one.steps(chosen, [0]).drop("seconds", "run") for one in (whole, stopped, plain)]
    assert_frame_equal(*steps[:2], check_exact=True)
    assert steps[0]["ndcg"][-1] != steps[2]["ndcg"][-1]
    assert steps[0]["limited_rate"][-1] <= 0.3 + 1e-9


def test_what_a_like_adds_keeps_half_of_the_users_for_sixty_steps(tmp_path: Path) -> None:
    market = DataSpec(source="synthetic:users=80,items=150,interactions_per_user=20")
    study = Study(tmp_path, market, ks=(1,))
    source = UserSource(study)
    simulation = SimulationConfig(churn=ChurnConfig(patience=3))
    settled = source.settled(simulation)
    assert settled.churn is not None
    assert settled.churn.like_adds is not None
    (file,) = (tmp_path / "models").glob("patience-*.json")
    before = file.stat().st_mtime_ns
    assert source.settled(simulation) == settled
    assert file.stat().st_mtime_ns == before
    settings = LongRunSettings(steps=60, alpha_prime=1.0, warm_up=0)
    long_study = LongStudy(study, settings, simulation, retrain=Retrain.NONE)
    chosen = named("stack")
    long_study.run(chosen, [0])
    last = long_study.steps(chosen, [0])["here"][-1]
    assert 0.33 < last < 0.67  # three standard errors: answers are drawn anew


@pytest.mark.slow
def test_exploration_is_noise_on_values_with_propensities(tmp_path: Path) -> None:
    long_study = make(tmp_path)
    noisy = {"fcpo": {**SMALL["fcpo"], "explore": 0.2}}
    noisy_study = replace(long_study, study=replace(long_study.study, settings=noisy))
    chosen = named("fcpo:long")
    noisy_study.run(chosen, [0])
    notes = [json.loads(text) for text in noisy_study.steps(chosen, [0])["notes"]]
    means = [note["mean propensity"] for note in notes]
    assert all(1 / 60 < mean < 0.9 for mean in means)
    assert noisy_study.steps(chosen, [0])["limited_rate"][-1] <= 0.3 + 1e-9
