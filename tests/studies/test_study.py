"""Results are kept: none is computed twice, an interrupted study goes on, processes agree."""

import json
import math
import multiprocessing
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import split
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.methods import Method, load_method
from fairhorizon.metrics.significance import holm, paired_t_test
from fairhorizon.metrics.spread import Spread
from fairhorizon.parallel.engine import HERE, Processes
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.studies.compare import against_all, curves, significance, summary_rows, swept
from fairhorizon.studies.rows import StudyRow, summary_row
from fairhorizon.studies.study import Study, Task
from fairhorizon.vocabulary import Mode, Protocol

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
SMALL = {"bpr": {"dim": 4, "max_epochs": 2}}


def methods(*names: str) -> list[Method]:
    return [Method.parse(name) for name in names]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "study", MARKET, ks=(5, 10), settings=SMALL)


def files(study: Study) -> dict[str, int]:
    """Every file with its time of writing."""
    return {
        str(path.relative_to(study.folder)): path.stat().st_mtime_ns
        for path in study.folder.rglob("*")
        if path.is_file()
    }


def without_times(row: StudyRow) -> StudyRow:
    return replace(row, seconds={})


def test_one_method_more_runs_that_one_alone(study: Study) -> None:
    study.run(methods("popularity", "bpr"), [0, 1])
    before = files(study)
    assert sum(name.startswith("models/") for name in before) == 2 * 4  # file and card
    heard: list[StudyRow] = []
    study.run(methods("popularity", "bpr", "bpr+quota@0.2"), [0, 1], on_row=heard.append)
    assert len(heard) == 6
    after = files(study)
    assert {name: after[name] for name in before} == before
    new = sorted(name for name in after if name not in before)
    assert [name.split("-")[0] for name in new] == ["rows/bpr+quota@0.2"] * 4  # no new model


def test_a_result_is_that_of_the_model_evaluated_by_hand(study: Study) -> None:
    method = Method.parse("bpr+quota@0.2")
    study.run([method], [1])
    dataset = study.dataset()
    model = study.build(method, 1)
    model.fit(dataset.split, sensitive=dataset.sensitive)  # type: ignore[call-arg]
    expected = evaluate(model, dataset.split, ks=(5, 10), sensitive=dataset.sensitive)
    row = study.row(method, 1)
    assert row is not None
    assert row.metrics == expected.to_json()["metrics"]
    assert (row.method, row.seed, row.alpha_prime) == ("bpr+quota@0.2", 1, 0.2)
    assert np.array_equal(study.lists(method, 1), expected.lists)
    rate = row.metrics["popularity_rate@10"]
    assert rate is not None
    assert 0 < rate <= 0.2


def test_other_settings_seeds_protocols_modes_and_data_are_other_results(study: Study) -> None:
    method = Method.parse("bpr")
    study.folder.mkdir()
    kinds = "\n".join(f"{item},{'odd' if item % 2 else 'even'}" for item in range(80))
    (study.folder / "kinds.csv").write_text(f"item,kind\n{kinds}\n")
    by_kind = {"item_table": str(study.folder / "kinds.csv"), "group_column": "kind"}
    others = [
        Study(study.folder, MARKET, ks=(5, 10), settings={"bpr": {"dim": 5, "max_epochs": 2}}),
        Study(study.folder, MARKET, ks=(5,), settings=SMALL),
        Study(study.folder, MARKET, Protocol.PAPER, ks=(5, 10), settings=SMALL),
        Study(study.folder, MARKET, mode=Mode.INTERACTIVE, ks=(5, 10), settings=SMALL),
        Study(
            study.folder,
            MARKET.model_copy(update={"ties": 1, "cut": "time"}),
            ks=(5, 10),
            settings=SMALL,
        ),
        *(
            Study(
                study.folder,
                MARKET.model_copy(update={**by_kind, "sensitive_values": (kind,)}),
                ks=(5, 10),
                settings=SMALL,
            )
            for kind in ("odd", "even")
        ),
    ]
    places = {other.row_file(method, 0) for other in (study, *others)}
    assert len(places | {study.row_file(method, 1)}) == 9
    # what is trained depends on the protocol, which validation follows, not on ks and mode
    same = {other.model_file(method, 0) for other in (study, others[1], others[3])}
    assert len(same | {other.model_file(method, 0) for other in others}) == 6
    assert len(same) == 1


@pytest.mark.parametrize("name", ["fcpo@0.4", "fcpo:paper@0.4", "lird", "bpr", "ncf+foe"])
def test_methods_validate_under_the_protocol_they_are_judged_by(study: Study, name: str) -> None:
    paper = Study(study.folder, MARKET, Protocol.PAPER, settings={"popularity": {}})
    for place, protocol in ((study, "standard"), (paper, "paper")):
        assert place.build(Method.parse(name), 0).all_settings()["protocol"] == protocol
    assert paper.build(Method("popularity"), 0).all_settings() == {}


def test_an_interrupted_study_goes_on_where_it_stopped(study: Study) -> None:
    wanted = methods("popularity", "bpr", "bpr+quota")

    def stop(_: StudyRow) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(wanted, [0], on_row=stop)
    kept = files(study)
    assert sum(name.startswith("rows/") for name in kept) == 2  # one result: row and lists
    study.run(wanted, [0])
    after = files(study)
    assert {name: after[name] for name in kept} == kept
    assert all(study.row(method, 0) for method in wanted)


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_results(study: Study, tmp_path: Path) -> None:
    wanted = methods("bpr", "bpr+penalty@1", "popularity")
    study.run(wanted, [0, 1], engine=HERE)
    parallel = Study(tmp_path / "parallel", MARKET, ks=(5, 10), settings=SMALL)
    heard: list[StudyRow] = []
    parallel.run(wanted, [0, 1], engine=Processes(2), on_row=heard.append)
    assert len(heard) == 6
    for method in wanted:
        for seed in (0, 1):
            one, two = study.row(method, seed), parallel.row(method, seed)
            assert one is not None
            assert two is not None
            assert without_times(one) == without_times(two)


@pytest.mark.parametrize("damage", [b"", b"{", bytes(range(256))])
def test_damaged_files_are_made_again(study: Study, damage: bytes) -> None:
    method = Method.parse("bpr+quota")
    study.run([method], [0])
    before = study.row(method, 0)
    assert before is not None
    for path in [*study.folder.rglob("*.*")]:
        good = path.read_bytes()
        path.write_bytes(damage)
        if path.parent.name == "models":
            study.row_file(method, 0).unlink()  # else nobody looks at the model
        study.run([method], [0])
        after = study.row(method, 0)
        assert after is not None
        assert without_times(after) == without_times(before)
        if path.suffix != ".json":  # which hold times
            assert path.read_bytes() == good


@pytest.mark.slow
def test_a_killed_training_is_tried_again(study: Study) -> None:
    def kill() -> None:
        while len(workers := multiprocessing.active_children()) < 2:
            time.sleep(0.01)
        time.sleep(0.2)  # they are all started now, and read their first task for longer than that
        workers[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    heard: list[StudyRow] = []
    study.run(methods("bpr", "popularity"), [0, 1], engine=Processes(2), on_row=heard.append)
    killer.join()
    found = sorted((row.method, row.seed) for row in heard)
    assert found == [("bpr", 0), ("bpr", 1), ("popularity", 0), ("popularity", 1)]


def test_what_cannot_be_run_is_refused_by_name(study: Study) -> None:
    study.check(methods("bpr", "popularity+foe", "fcpo"))
    settings = {"foe": {"candidates": 9}, "ease": {"l2": -1}}
    wrong = Study(study.folder, MARKET, ks=(5, 10), settings=settings)
    with pytest.raises(ConfigError, match="a list of 10 cannot be made of 9 candidates"):
        wrong.check(methods("popularity", "popularity+foe"))
    with pytest.raises(ConfigError, match=r"^ease\+quota: l2=-1: give a number above 0"):
        wrong.check(methods("ease+quota"))


def test_a_method_that_cannot_be_trained_is_named(study: Study) -> None:
    wrong = Study(study.folder, MARKET, ks=(5, 10), settings={"fcpo": {"horizon": 81}})
    with pytest.raises(FairHorizonError, match=r"^fcpo:paper@0.4: 81 lists of 1 need more than"):
        wrong.run(methods("popularity", "fcpo:paper@0.4"), [0])


WARM = {
    **{"warm_start": ["ease", "bpr"], "rounds": 0, "gru_hidden": 4, "actor_hidden": [4, 4]},
    **{"pmf": {"dim": 4, "max_epochs": 2}, "critic_hidden": [4, 4], "adapt": False},
}


def test_one_model_serves_every_level_it_is_asked_for(tmp_path: Path) -> None:
    study = Study(tmp_path, MARKET, ks=(10,), settings={"fcpo": WARM})
    wanted = methods("fcpo:fast@0.4", "fcpo@0.2", "fcpo:fast")
    study.run(wanted[:2], [0])
    (model,) = tmp_path.glob("models/fcpo*.safetensors")
    written = model.stat().st_mtime_ns
    study.run(wanted, [0])
    assert list(tmp_path.glob("models/fcpo*.safetensors")) == [model]
    assert model.stat().st_mtime_ns == written
    rows = [study.row(method, 0) for method in wanted]
    assert [row and row.alpha_prime for row in rows] == [0.4, 0.2, 1.0]
    rates = [row.metrics["popularity_rate@10"] or 0 for row in rows if row]
    assert rates[1] <= 0.2005 < rates[0] <= 0.4005 < rates[2]
    # whoever takes a model from the study has it at the level
    served, _ = Task(study, (wanted[1],), 0).trained(study.dataset())
    assert served.alpha_prime == 0.2


def test_rankers_of_a_warm_start_are_fitted_once_on_either_split(tmp_path: Path) -> None:
    study = Study(tmp_path, MARKET, Protocol.PAPER, ks=(10,), settings={"fcpo": WARM})
    study.run(methods("fcpo:fast@0.6"), [0])
    models = {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*.safetensors")}
    assert sorted(path.name.split("-seed0-")[0] for path in models) == [
        *("bpr", "bpr-early", "ease", "ease-early", "fcpo-fast")
    ]
    parts = study.dataset().split
    for early, seen in ((False, parts), (True, split(parts.train))):
        for name in ("ease", "bpr"):
            kept = load_method(study.model_file(Method(name), 0, early=early))
            assert isinstance(kept, Ranked)
            assert kept.fingerprint_ == seen.train.fingerprint()
        assert kept.ranker.config.protocol is Protocol.PAPER
        ranker = type(kept.ranker)(kept.ranker.config, seed=0).fit(seen)
        for key, value in ranker.tensors().items():
            assert torch.equal(kept.ranker.tensors()[key], value)
    study.run(methods("ease", "bpr+quota@0.3", "fcpo"), [0])
    again = {path: path.stat().st_mtime_ns for path in models}
    assert again == models
    # another log before its end is another model; of other settings too
    assert study.model_file(Method("ease"), 0, early=True) != study.model_file(Method("ease"), 0)
    other = Study(tmp_path, MARKET, Protocol.PAPER, settings={"ease": {"l2": 3.0}})
    places = {s.model_file(Method("ease"), 0, early=True) for s in (study, other)}
    assert len(places) == 2


def test_settings_of_an_unknown_method_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"settings of 'esae': there is none \(there are popul"):
        Study(tmp_path, MARKET, settings={"esae": {"l2": 3}})


def row(seed: int, ndcg: float, ratio: float | None, method: str = "m") -> StudyRow:
    return StudyRow(
        dataset="d",
        method=method,
        protocol=Protocol.STANDARD,
        mode=Mode.ONE_SHOT,
        alpha_prime=1.0,
        seed=seed,
        metrics={"ndcg@5": ndcg, "exposure_ratio@5": ratio},
        seconds={"fit": float(seed)},
        settings={},
        notes=("b",) if seed else ("a", "b"),
    )


def test_mean_and_deviation_over_seeds_by_hand() -> None:
    summary = summary_row([row(0, 0.1, 2.0), row(1, 0.2, None), row(5, 0.6, 1.0)])
    assert summary.seeds == (0, 1, 5)
    # deviations -0.2, -0.1, 0.3: squares 0.14, halved
    assert summary.metrics["ndcg@5"].mean == pytest.approx(0.3)
    assert summary.metrics["ndcg@5"].std == pytest.approx(0.07**0.5)
    assert summary.metrics["exposure_ratio@5"] == Spread(None, None)
    assert summary.seconds == {"fit": 2.0}
    assert summary.notes == ("a", "b")
    assert summary_row([row(0, 0.1, 2.0)]).metrics["ndcg@5"] == Spread(0.1, 0.0)


def test_the_best_is_tested_against_the_runner_up_over_users(study: Study) -> None:
    wanted = methods("bpr", "popularity", "popularity+quota@0")
    study.run(wanted, [0, 1])
    rows = summary_rows(study, wanted, [0, 1])
    tests = significance(study, wanted, [0, 1])
    truth = study.dataset().split.test
    wants = {user: set(truth.items[truth.users == user].tolist()) for user in set(truth.users)}
    names = ["recall@5", "f1@5", "ndcg@5", "recall@10", "f1@10", "ndcg@10"]
    assert [test.metric for test in tests] == names
    for test in tests:
        means = {r.method: r.metrics[test.metric].mean or 0 for r in rows}
        best, *others = sorted(means, key=lambda name: -means[name])
        second = next(name for name in others if name[:3] != best[:3])  # of another model
        assert (test.best, test.second, test.users) == (best, second, len(wants))
        assert test.difference == pytest.approx(means[best] - means[second])
        assert test.t_test_corrected >= test.t_test
        assert test.bootstrap_corrected >= test.bootstrap
    # the recall of every user by a plain loop, for one of them
    test = tests[0]

    def recalls(name: str) -> list[float]:
        lists = [study.lists(Method.parse(name), seed)[:, :5].tolist() for seed in (0, 1)]
        return [
            sum(len(items & set(shown[user])) / len(items) for shown in lists) / 2
            for user, items in wants.items()
        ]

    p = paired_t_test(recalls(test.best), recalls(test.second))
    assert test.t_test == pytest.approx(p)
    assert significance(study, wanted[:1], [0]) == []
    # one against all others: a line per rival and metric, corrected for all of them together
    against = against_all(study, wanted[1], wanted, [0, 1])
    rivals = ("bpr", "popularity+quota@0")
    assert [(one.metric, one.best, one.second) for one in against] == [
        (name, "popularity", rival) for name in names for rival in rivals
    ]
    means = {row.method: row.metrics["recall@5"].mean or 0 for row in rows}
    assert against[0].difference == pytest.approx(means["popularity"] - means["bpr"])
    assert against[0].t_test == pytest.approx(paired_t_test(recalls("popularity"), recalls("bpr")))
    corrected = holm([one.t_test for one in against])
    assert [one.t_test_corrected for one in against] == pytest.approx(corrected)


def test_the_second_is_no_re_ranking_of_the_best(study: Study) -> None:
    # a quota of everything changes no list: as the second it would be equal, at p = 1
    wanted = methods("bpr", "bpr+quota@1", "popularity")
    study.run(wanted, [0])
    for test in significance(study, wanted, [0]):
        assert {test.best, test.second} in ({"bpr", "popularity"}, {"bpr+quota@1", "popularity"})
        assert test.t_test < 1
    # of one model alone: those whose lists differ, if any do
    assert significance(study, wanted[:2], [0]) == []
    apart = methods("bpr", "bpr+quota@1", "bpr+quota@0")
    study.run(apart, [0])
    for test in significance(study, apart, [0]):
        assert "bpr+quota@0" in (test.best, test.second)


def test_a_method_is_swept_over_its_levels_and_its_rows_are_sorted_by_level() -> None:
    assert swept(Method("ease")) == [Method("ease")]
    assert swept(Method("ease", "quota", 0.3)) == [Method("ease", "quota", 0.3)]
    levels = [method.level for method in swept(Method("ease", "penalty"))]
    assert levels == sorted(levels)
    assert levels[0] == 0  # the ranker as it is
    order = methods("ease", "ease+quota@0.9", "ease+quota@0.1", "fcpo@1")
    rows = [
        summary_row([row(n, 0.1, None, str(method))], name=method.name, level=method.level)
        for n, method in enumerate(order)
    ]
    lines = {
        name: [(one.method, one.seeds, one.level) for one in line]
        for name, line in curves(rows).items()
    }
    assert lines == {
        "ease": [("ease", (0,), None)],
        "ease+quota": [("ease+quota@0.1", (2,), 0.1), ("ease+quota@0.9", (1,), 0.9)],
        "fcpo": [("fcpo@1", (3,), 1.0)],
    }


def test_a_row_is_strict_json_and_says_what_it_was_made_with(study: Study) -> None:
    method = Method.parse("popularity+quota@0.5")
    study.run([method], [0])
    text = study.row_file(method, 0).read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert content["settings"] == {"quota": {"share": 0.5}}
    assert set(content["seconds"]) == {"fit", "evaluate"}
    assert list(content) == [
        *("dataset", "method", "protocol", "mode", "seed", "alpha_prime"),
        *("metrics", "settings", "seconds", "notes", "keeps_limit", "prices"),
    ]
    kept = study.row(method, 0)
    assert kept is not None
    assert kept.to_json() == content
    assert StudyRow.from_json(content) == kept


@pytest.mark.parametrize("content", [[], {}, {"dataset": "d"}, "text"])
def test_what_is_no_row_of_a_study_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match="not a row of a study"):
        StudyRow.from_json(content)  # type: ignore[arg-type]


def test_what_is_not_finite_is_null_in_json() -> None:
    content = row(0, math.nan, math.inf).to_json()
    assert content["metrics"] == {"ndcg@5": None, "exposure_ratio@5": None}
    assert Spread.from_values([0.1, math.nan]) == Spread()
