"""The whole and its variants: what each is, what a training is told by, and what is kept."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.tasks import FitTask
from fairhorizon.errors import ConfigError
from fairhorizon.experiments.ablation import (
    VARIANTS,
    WHOLE,
    Variant,
    VariantRun,
    check,
    figures,
    follow,
    run_ablation,
    summaries,
)
from fairhorizon.experiments.datasets import DataSpec
from fairhorizon.experiments.study import Study
from fairhorizon.files import write_json
from fairhorizon.results.spread import Spread
from fairhorizon.results.studies import AblationRow, Course, StudyRow, VariantRow
from fairhorizon.vocabulary import Mode, Protocol

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
TINY = {
    **{"warm_start": ["ease", "itemknn"], "rounds": 2, "horizon": 4, "candidates": 10},
    **{"evaluate_every": 1, "actor_hidden": [4, 4], "critic_hidden": [4, 4], "gru_hidden": 4},
    **{"pmf": {"dim": 4, "max_epochs": 2}, "cg_iterations": 3, "critic_iterations": 2},
}
BY_NAME = {variant.name: variant for variant in VARIANTS}
LEVEL = 0.4


def tiny(folder: Path, **changes: object) -> Study:
    return Study(folder, MARKET, ks=(10,), settings={"fcpo": {**TINY, **changes}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the rankers that the tests share."""
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def made(folder: Path) -> list[AblationRow]:
    return run_ablation(tiny(folder), VARIANTS, LEVEL, [0])


def test_a_variant_differs_from_the_whole_in_what_its_name_says() -> None:
    study = Study(Path("nowhere"), MARKET)
    whole = VariantRun(study, BY_NAME[WHOLE], 0.3, 0).config
    assert whole == FcpoConfig(
        rounds=30, patience=1000, check_weights=False, alpha_prime=0.3, training_limit=0.3
    )
    changed = {
        name: {
            key
            for key in FcpoConfig.model_fields
            if getattr(VariantRun(study, variant, 0.3, 0).config, key) != getattr(whole, key)
        }
        for name, variant in BY_NAME.items()
    }
    assert changed == {
        "fast": set(),
        "no-rounds": {"rounds"},
        "random-start": {"warm_start", "starts", "history", "pmf"},
        "gaussian": {"policy"},
        "no-all-actions": {"all_actions"},
        "no-price": {"group_price"},
        "seen-feedback": {"starts"},
        "equal-weights": set(),
        "default-rankers": {"adapt"},
    }
    assert [name for name, variant in BY_NAME.items() if variant.equal_weights] == ["equal-weights"]


def test_settings_are_those_of_all_variants_and_parts_of_parts_are_kept(tmp_path: Path) -> None:
    random = VariantRun(tiny(tmp_path), BY_NAME["random-start"], LEVEL, 0).config
    assert (random.pmf.dim, random.pmf.target, random.rounds) == (4, "interaction", 2)
    assert random.limit_in_training == LEVEL
    assert VariantRun(tiny(tmp_path), BY_NAME["no-rounds"], LEVEL, 0).config.rounds == 0


def test_all_variants_train_and_serve(made: list[AblationRow]) -> None:
    rows = {row.summary.method: row for row in made}
    assert list(rows) == list(BY_NAME)
    for name, row in rows.items():
        assert 0 < (row.summary.spread("ndcg@10").mean or 0) < 1
        (course,) = row.courses
        rounds = 0 if name == "no-rounds" else 2
        assert len(course.share) == len(course.reward) == len(course.validation)
        assert len(course.share) == rounds + 1
        assert all(0 <= share <= 1 for share in course.share)
        assert 0 <= course.kept <= rounds
        # the limit is kept over all lists together
        rate = row.summary.spread("popularity_rate@10").mean
        assert rate is not None
        assert rate <= LEVEL + 0.005 or name == "gaussian"


def test_what_begins_alike_is_told_alike(made: list[AblationRow]) -> None:
    """The first episodes of variants that differ in nothing but how they learn from them."""
    first = {row.summary.method: row.courses[0] for row in made}
    for name in ("no-rounds", "no-all-actions"):
        assert first[name].share[0] == first[WHOLE].share[0]
        assert first[name].reward[0] == first[WHOLE].reward[0]
        assert first[name].validation[0] == first[WHOLE].validation[0]
    assert first["equal-weights"].share[0] != first[WHOLE].share[0]


def test_the_whole_is_the_agent_as_it_is_fitted_anywhere(
    folder: Path, made: list[AblationRow]
) -> None:
    study = tiny(folder)
    run, dataset = VariantRun(study, BY_NAME[WHOLE], LEVEL, 0), study.dataset()
    agent = Fcpo(run.config, seed=0).fit(dataset.split, sensitive=dataset.sensitive)
    course = made[0].courses[0]
    assert list(course.reward[:-1]) == [report.reward for report in agent.history_]
    assert course.share[:-1] == pytest.approx([report.cost / 4 for report in agent.history_])
    assert list(course.validation[1:]) == [report.validation for report in agent.history_]


@pytest.mark.parametrize("tolerance", [0.0, 100.0])
def test_a_course_counts_the_rounds_to_the_limit_and_to_the_policy_that_serves(
    tolerance: float, folder: Path
) -> None:
    """With no tolerance the popular market is over a limit of 0.05, with much of it never."""
    study = tiny(folder, cost_tolerance=tolerance, kl_limit=1e-6)
    run, dataset = VariantRun(study, BY_NAME[WHOLE], 0.05, 0), study.dataset()
    session = Fcpo(run.config, seed=0).session(FitTask(dataset.split, dataset.sensitive))
    training = session.training
    course = follow(session)
    assert course.limit == 0.05
    assert course.rounds_to_limit == (0 if tolerance else None)
    best = max(value or 0 for value in course.validation)
    assert course.kept == course.validation.index(best)
    assert figures(course)["validation"] == best == training.best_validation
    assert figures(course)["share_after"] == course.share[2]


def test_without_a_round_that_keeps_the_limit_the_last_policy_serves(folder: Path) -> None:
    study = tiny(folder, cost_tolerance=0.0)
    run, dataset = VariantRun(study, BY_NAME["random-start"], 1e-6, 0), study.dataset()
    session = Fcpo(run.config, seed=0).session(FitTask(dataset.split, dataset.sensitive))
    assert follow(session).kept == 2


def test_weights_are_those_of_panel_and_actor(folder: Path) -> None:
    study = tiny(folder, adapt=False)  # with both rankers
    run, dataset = VariantRun(study, BY_NAME["equal-weights"], LEVEL, 0), study.dataset()
    session = Fcpo(run.config, seed=0).session(FitTask(dataset.split, dataset.sensitive))
    training = session.training
    weighed = training.panel
    assert weighed is not None
    assert weighed.weights != (1.0, 1.0)
    for weights in ((1.0, 1.0), weighed.weights):
        training.weigh(weights)
        assert training.panel is not None
        assert training.panel.weights == weights
        head = training.actor.body[-1]
        assert head.bias[:3].tolist() == pytest.approx([*weights, 0.0])  # and no price


def test_a_gaussian_policy_begins_with_the_weights_of_the_whole(
    folder: Path, made: list[AblationRow]
) -> None:
    study, panels = tiny(folder), []
    for name in (WHOLE, "gaussian"):
        run, dataset = VariantRun(study, BY_NAME[name], LEVEL, 0), study.dataset()
        model = Fcpo(run.config, seed=0)
        panels.append(run.start(model, dataset, run.fitted(dataset)).training.panel)
    whole, gaussian = panels
    assert whole is not None
    assert gaussian is not None
    assert whole.weights == gaussian.weights != (1.0, 1.0)
    assert made


def test_rankers_are_fitted_once_and_results_kept(folder: Path, made: list[AblationRow]) -> None:
    names = sorted(file.name.rsplit("-", 1)[0] for file in folder.glob("models/*.safetensors"))
    assert names == ["ease-early-seed0", "ease-seed0", "itemknn-early-seed0", "itemknn-seed0"]
    times = {file: file.stat().st_mtime_ns for file in folder.glob("*/*")}
    heard: list[str] = []
    again = run_ablation(
        *(tiny(folder), VARIANTS, LEVEL, [0]),
        on_ranker=lambda row: pytest.fail(f"{row} again"),
        on_row=lambda row: heard.append(row.result.method),
    )
    assert heard == list(BY_NAME)
    assert again == made
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*/*")} == times


def test_an_interrupted_study_goes_on(folder: Path, made: list[AblationRow]) -> None:
    """Half a file is as good as none."""
    run = VariantRun(tiny(folder), BY_NAME["no-rounds"], LEVEL, 0)
    whole = run.file.read_text(encoding="utf-8")
    run.file.write_text(whole[: len(whole) // 2], encoding="utf-8")
    run_ablation(tiny(folder), VARIANTS, LEVEL, [0], on_ranker=pytest.fail)
    restored, before = json.loads(run.file.read_text(encoding="utf-8")), json.loads(whole)
    for timed in (restored, before):
        del timed["seconds"]
    assert restored == before
    assert made


def test_other_settings_have_other_results(tmp_path: Path) -> None:
    run = VariantRun(tiny(tmp_path), BY_NAME[WHOLE], LEVEL, 0)
    others = [
        replace(run, level=0.3),
        replace(run, seed=1),
        replace(run, variant=Variant(WHOLE, "", equal_weights=True)),
        replace(run, study=tiny(tmp_path, kl_limit=0.01)),
    ]
    assert len({run.file, *(other.file for other in others)}) == 5


def test_summaries_by_hand(tmp_path: Path) -> None:
    study = tiny(tmp_path)
    values = {WHOLE: (0.20, 0.24), "no-price": (0.19, 0.21), "gaussian": (0.1, None)}
    runs = []
    for name, ndcgs in values.items():
        for seed, ndcg in enumerate(ndcgs):
            run = VariantRun(study, BY_NAME[name], LEVEL, seed)
            course = Course(
                limit=LEVEL,
                share=(0.8, 0.5),
                reward=(1.0, 0.5),
                validation=(0.1, 0.2),
                rounds_to_limit=3 if seed else None,
                kept=seed,
            )
            result = StudyRow(
                dataset="d",
                method=name,
                protocol=Protocol.STANDARD,
                mode=Mode.ONE_SHOT,
                seed=seed,
                alpha_prime=LEVEL,
                metrics={"ndcg@10": ndcg, **figures(course)},
                settings={},
                seconds={"fit": 1.0 + seed},
                notes=(),
            )
            row = VariantRow(result, course)
            write_json(run.file, row.to_json())
            assert run.row() == row
            runs.append(run)
    whole, no_price, gaussian = summaries(runs)
    assert whole.difference is None
    assert no_price.difference is not None
    assert no_price.difference.mean == pytest.approx(-0.02)  # of -0.01 and -0.03
    assert no_price.difference.std == pytest.approx(0.02 / math.sqrt(2))
    assert gaussian.difference is None
    metrics = no_price.summary.metrics
    assert metrics["ndcg@10"].mean == pytest.approx(0.2)
    assert metrics["validation"].mean == pytest.approx(0.15)  # of rounds 0 and 1
    assert metrics["rounds_to_limit"] == Spread(None, None)
    assert (no_price.rounds_to_limit, no_price.kept) == ([None, 3], [0, 1])
    assert no_price.summary.seconds == {"fit": 1.5}
    assert no_price.meaning == BY_NAME["no-price"].meaning
    content = no_price.to_json()
    assert (content["kept"], content["limit"], content["seconds"]) == ([0, 1], LEVEL, {"fit": 1.5})
    assert content["courses"][1]["share"] == [0.8, 0.5]
    assert content["difference"]["mean"] == pytest.approx(-0.02)
    (alone,) = summaries(runs[2:4])
    assert alone.difference is None  # there is no whole to hold it against


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ease": {"l2": 1}}, r"settings of ease: .* \(give fcpo.key=value\)"),
        ({"fcpo": {"training_limit": 0.5}}, r"fcpo.training_limit: .* \(give --alpha-prime"),
        ({"fcpo": {"roundz": 1}}, "there is no roundz"),
        ({"fcpo": {"warm_start": []}}, r"fcpo.warm_start: .* \(name a ranker or more\)"),
    ],
)
def test_settings_that_no_run_can_do_with(
    settings: dict[str, dict[str, object]], message: str
) -> None:
    study = Study(Path("nowhere"), MARKET, settings=settings)
    with pytest.raises(ConfigError, match=message):
        check(study, VARIANTS, LEVEL)


def test_a_level_beyond_all() -> None:
    with pytest.raises(ConfigError, match=r"alpha_prime=1\.5"):
        check(Study(Path("nowhere"), MARKET), VARIANTS, 1.5)
