"""Long runs on disk: whole at every moment, resumed bit for bit, none made twice."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from fairhorizon.data.synthetic import synthetic_market
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.spread import Spread
from fairhorizon.parallel.engine import Processes
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.simulation.response import ResponseModel
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies.long_results import (
    CountsOverTime,
    RunProgress,
    limit_summaries,
    run_summaries,
)
from fairhorizon.studies.long_term import LongStudy, NamedMethod, RunLimits
from fairhorizon.studies.rows import TrainingRow
from fairhorizon.studies.step_record import SCHEMA, Row
from fairhorizon.studies.study import Study
from fairhorizon.vocabulary import Labels, Protocol, Retrain

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
SMALL: dict[str, Any] = {
    "mf": {"dim": 4, "max_epochs": 2},
    "fcpo": {
        **{"rounds": 2, "horizon": 5, "history": 3},
        **{"warm_start": ["ease", "itemknn"], "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
    },
}
SETTINGS = LongRunSettings(steps=25, update_every=5, alpha_prime=0.3, warm_up=5)


def named(*names: str) -> list[NamedMethod]:
    return [NamedMethod.at_limit(Method.parse(name), SETTINGS.alpha_prime) for name in names]


def make(folder: Path, **changes: Any) -> LongStudy:
    study = Study(folder, MARKET, ks=(1,), settings=SMALL)
    return replace(LongStudy(study, SETTINGS, round_length=10), **changes)


@pytest.fixture
def long_study(tmp_path: Path) -> LongStudy:
    return make(tmp_path / "out")


def stop_after(calls: int) -> Callable[[], None]:
    """Something to be called meanwhile that presses Ctrl-C at that call."""
    left = calls

    def press() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    return press


def files(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def equal(one: CountsOverTime, two: CountsOverTime) -> bool:
    return all(
        np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(two).values(), strict=True)
    )


def test_a_row_per_method_seed_and_step(long_study: LongStudy) -> None:
    chosen = named("popularity", "ease+quota", "mf+foe")
    ended: list[RunProgress] = []
    long_study.run(chosen, [0, 1], on_run=ended.append)
    steps = pl.read_parquet(long_study.study.folder / "steps" / "*.parquet")
    assert steps.columns == list(SCHEMA)
    assert dict(steps.schema) == SCHEMA
    assert steps.height == 3 * 2 * 25
    for (_, _), run in steps.group_by("method", "seed"):
        assert run["step"].to_list() == list(range(1, 26))
        rate = run["popularity_rate"].to_numpy()
        # every step shows as many items, so the rate of all is the mean of the rates of steps
        of_steps = run["step_popularity_rate"].to_numpy().cumsum() / np.arange(1, 26)
        assert rate == pytest.approx(of_steps)
        limited = run["limited_rate"].to_numpy()
        assert np.array_equal(limited, run["popularity_rate_retrospective"].to_numpy())
        assert (limited != rate).any()
        assert run["violation"].to_numpy() == pytest.approx(np.maximum(0, limited - 0.3))
        assert run["violation_share"].null_count() == 5  # the warm-up
        assert run["price"].null_count() == 25
    assert {(run.method, run.seed) for run in ended} == {
        (one.label, seed) for one in chosen for seed in (0, 1)
    }
    assert_frame_equal(
        long_study.steps(chosen, [0, 1]), steps, check_row_order=False, check_exact=True
    )
    kinds = {name.rpartition(".")[2] for name in files(long_study.study.folder / "steps")}
    assert kinds == {"parquet", "npz"}  # no checkpoint is left


def test_a_run_is_that_of_the_library_by_hand(long_study: LongStudy) -> None:
    chosen = named("ease+quota")
    long_study.run(chosen, [1])
    dataset = long_study.study.dataset()
    model = long_study.study.build(Method.parse("ease+quota@0.3"), 1)
    fitted = model.fit(dataset.split)
    server = fitted.online(round_length=10, retrain_on=dataset.split, seed=1)
    users = evaluation_scenario(dataset.split, server.queue_length, Protocol.STANDARD)
    exposure = Exposure(dataset.split.train.item_counts())
    run = LongRun(server, users, exposure, SETTINGS)
    expected = pl.DataFrame([run.step() for _ in range(25)]).fill_nan(None)
    steps = long_study.steps(chosen, [1])
    columns = [name for name in expected.columns if name != "seconds"]
    assert {"ndcg", "recall", "gini", "churn", "coverage", "reward"} <= set(columns)
    assert_frame_equal(steps.select(columns), expected.select(columns), check_exact=True)
    counts = long_study.counts(chosen, [1])["ease+quota", 1]
    assert counts.steps.tolist() == [0, 10, 20, 25]
    assert np.array_equal(counts.counts[0], dataset.split.train.item_counts())
    assert np.array_equal(counts.sensitive[0], dataset.sensitive)
    assert np.array_equal(counts.counts[-1], exposure.counts)
    assert np.array_equal(counts.sensitive[-1], exposure.sensitive.numpy())
    assert counts.counts.sum(1).tolist() == [
        counts.counts[0].sum() + 60 * n for n in (0, 10, 20, 25)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "update_every", "writings", "rows", "kept"),
    [
        ("popularity", 5, 2, 20, 20),
        ("ease+quota", 5, 2, 20, 20),
        ("ease+quota", 7, 3, 24, 14),
        ("mf+foe", 7, 3, 24, 14),
        ("fcpo", 7, 3, 24, 14),
    ],
)
@pytest.mark.parametrize("repeat_after", [None, 4])
def test_a_resumed_run_is_the_uninterrupted_one(
    name: str,
    update_every: int,
    writings: int,
    rows: int,
    kept: int,
    repeat_after: int | None,
    tmp_path: Path,
) -> None:
    """Stopped at the second or third writing; a checkpoint is made right after an update only."""
    changes = {"update_every": update_every, "repeat_after": repeat_after}
    settings = SETTINGS.model_copy(update=changes)
    whole, stopped = (make(tmp_path / place, settings=settings) for place in ("a", "b"))
    chosen = named(name)
    whole.run(chosen, [0])
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0], meanwhile=stop_after(writings))
    record = stopped.task(chosen[0], 0).record()
    before = record.frame()
    assert before["step"].to_list() == list(range(1, rows + 1))
    assert record.checkpoint_file.exists()
    with pytest.raises(ConfigError, match=r"not finished \(--resume continues it, another --out"):
        stopped.run(chosen, [0])
    stopped.run(chosen, [0], resume=True)
    after = stopped.steps(chosen, [0])
    assert_frame_equal(
        after.drop("seconds"), whole.steps(chosen, [0]).drop("seconds"), check_exact=True
    )
    # steps that were there already are not made again: they took as long as before
    assert after["seconds"][:kept].to_list() == before["seconds"][:kept].to_list()
    assert equal(stopped.counts(chosen, [0])[name, 0], whole.counts(chosen, [0])[name, 0])
    assert not record.checkpoint_file.exists()


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("suffix", [".parquet", ".safetensors", "-counts.npz"])
def test_what_is_damaged_is_made_again(suffix: str, part: float, tmp_path: Path) -> None:
    whole, stopped = make(tmp_path / "a"), make(tmp_path / "b")
    chosen = named("popularity")
    whole.run(chosen, [0])
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0], meanwhile=stop_after(1))
    record = stopped.task(chosen[0], 0).record()
    damaged = record.folder / f"{record.name}{suffix}"
    content = damaged.read_bytes()
    damaged.write_bytes(content[: int(part * len(content))])
    (record.folder / f".{record.name}.parquet-1234").write_bytes(b"half")  # of a killed process
    stopped.run(chosen, [0], resume=True)
    expected = whole.steps(chosen, [0]).drop("seconds")
    assert_frame_equal(stopped.steps(chosen, [0]).drop("seconds"), expected, check_exact=True)
    assert len(files(record.folder)) == 2


def test_neither_models_nor_runs_are_made_twice(long_study: LongStudy) -> None:
    folder = long_study.study.folder
    long_study.study.run([Method("mf"), Method("popularity")], [0])
    models = files(folder / "models")
    trained: list[TrainingRow] = []
    chosen = named("mf", "mf+quota@0.5", "popularity")
    long_study.run(chosen, [0], on_model=trained.append)
    assert trained == []
    assert files(folder / "models") == models
    kept = files(folder)
    ended: list[RunProgress] = []
    wider = [*chosen, *named("ease", "ease+quota")]
    long_study.run(wider, [0], on_run=ended.append, on_model=trained.append)
    assert [row.name for row in trained] == ["ease seed 0"]  # once for both
    assert len(ended) == 5
    after = files(folder)
    assert {name: after[name] for name in kept} == kept


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_rows(long_study: LongStudy, tmp_path: Path) -> None:
    chosen = named("popularity", "ease+quota")
    long_study.run(chosen, [0])
    parallel = make(tmp_path / "parallel")
    shutil.copytree(long_study.study.folder / "models", tmp_path / "parallel" / "models")
    ended: list[RunProgress] = []
    parallel.run(chosen, [0], engine=Processes(2), on_run=ended.append)
    assert {run.method for run in ended} == {"popularity", "ease+quota"}
    one, two = (study.steps(chosen, [0]).drop("seconds") for study in (long_study, parallel))
    assert_frame_equal(one, two, check_exact=True)


def test_what_matters_has_its_own_file(long_study: LongStudy) -> None:
    def key(name: str, **changes: Any) -> str:
        return replace(long_study, **changes).key(Method.parse(name), 0)

    limits = asked("gini<=0.9")
    drifting = SimulationConfig(drift=0.1)
    assert key("fcpo", limits=limits) != key("fcpo")
    assert key("ease", limits=limits) != key("ease")  # the record has the excess of the limit
    assert key("fcpo", limits=RunLimits(look_ahead=False)) != key("fcpo")
    assert key("ease", limits=RunLimits(look_ahead=False)) == key("ease")
    assert key("ease+quota", round_length=11) != key("ease+quota")
    assert key("fcpo", round_length=11) != key("fcpo")  # whose rankers are fitted again
    never = {"retrain": Retrain.NONE}
    assert key("fcpo", round_length=11, **never) == key("fcpo", **never) != key("fcpo")
    assert key("ease", retrain=Retrain.ALL) != key("ease")
    assert key("ease+quota", retrain=Retrain.ALL) == key("ease+quota")
    for name in ("fcpo", "ease"):
        assert key(name, simulation=drifting) != key(name)
        assert key(name, simulation=drifting) != key(name, simulation=SimulationConfig())
        assert key(name, settings=SETTINGS.model_copy(update={"warm_up": 6})) != key(name)
        again = [SETTINGS.model_copy(update={"repeat_after": n}) for n in (None, 5, 6)]
        assert len({key(name, settings=settings) for settings in again} | {key(name)}) == 3
        paper = replace(long_study.study, protocol=Protocol.PAPER)
        assert key(name, study=paper) != key(name)


def test_a_share_dial_that_nobody_turned_stands_at_alpha_prime() -> None:
    names = ["fcpo", "ease+quota", "mf+foe@0.2", "ease+penalty", "bpr", "lird"]
    methods = [one.method for one in named(*names)]
    assert [str(method) for method in methods] == [
        *("fcpo@0.3", "ease+quota@0.3", "mf+foe@0.2", "ease+penalty", "bpr", "lird")
    ]
    assert [one.label for one in named(*names)] == names


def asked(*texts: str) -> RunLimits:
    return RunLimits(tuple(map(Limit.parse, texts)))


@pytest.fixture
def shop(tmp_path: Path) -> DataSpec:
    """20 users, 10 items; 0 to 3 are toys, 0 and 4 are of Acme."""
    kinds = ["toy" if item < 4 else "book" for item in range(10)]
    makers = ["Acme" if item in (0, 4) else "Bolt|Cog" for item in range(10)]
    items = [(user, (user + 3 * n) % 10, n) for n in range(6) for user in range(20)]
    rows = [f"{user},{item},{n},{kinds[item]},{makers[item]}" for user, item, n in items]
    log = tmp_path / "shop.csv"
    log.write_text("user,item,timestamp,kind,maker\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return DataSpec(source=str(log))


def test_groups_by_an_attribute_do_not_move(shop: DataSpec, tmp_path: Path) -> None:
    data = shop.model_copy(update={"group_column": "kind", "sensitive_values": ("toy",)})
    settings = LongRunSettings(steps=4, warm_up=0)
    long_study = LongStudy(Study(tmp_path / "out", data, ks=(1,)), settings)
    chosen = named("popularity")
    long_study.run(chosen, [0])
    steps = long_study.steps(chosen, [0])
    assert steps["churn"].sum() == 0
    assert steps["popularity_rate"].equals(steps["popularity_rate_initial"], null_equal=False)
    counts = long_study.counts(chosen, [0])["popularity", 0]
    assert counts.sensitive.tolist() == [[True] * 4 + [False] * 6] * 2


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (["kind=toy<=0.3", "kind=toy>=0.2"], None),
        (["kind=toy<=0.3", "kind=toy>=0.4"], "kind=toy<=0.3, kind=toy>=0.4: no 4 items"),
        (["kind=toy>=0.6", "kind=book>=0.5"], "kind=toy>=0.6, kind=book>=0.5: no 4"),
        (["kind=toy>=0.6", "maker=Acme>=0.4"], None),  # item 0 is both
        (["kind=toy<=0", "maker=Acme>=0.25"], None),  # item 4 is one of four
        (["kind=toy<=0", "maker=Acme>=0.26"], "no 4 items that a user may be shown"),
        (["maker=Bolt,Acme<=0.9"], "no 4 items"),  # everybody is one of them
        (["kind:each<=0.6"], None),
        (["kind:each<=0.4"], "no 4 items"),
        (["kind=car<=0.9"], r"no item has the attribute value 'car' \(the values are book, toy"),
        (["size=big<=0.9"], "no column 'size'"),
        (["kind=toy<=0.3", "kind=toy<=0.3"], r"kind=toy<=0.3 is given twice \(give it once\)"),
    ],
)
def test_limits_must_be_of_this_data_and_fit_together(
    limits: list[str], message: str | None, shop: DataSpec, tmp_path: Path
) -> None:
    study = Study(tmp_path / "out", shop, ks=(1,))
    long_study = LongStudy(study, LongRunSettings(steps=4), limits=asked(*limits))
    if message is None:
        long_study.check(named("fcpo"))
        long_study.check(named("ease+control"))
    else:
        with pytest.raises((ConfigError, DataError), match=message):
            long_study.check(named("fcpo"))
    with pytest.raises(
        ConfigError, match=r"none of the methods can keep it \(add fcpo or ease:recent\+control\)"
    ):
        long_study.check(named("ease+quota"))
    with pytest.raises(ConfigError, match=r"ease\+lists serves in no long run \(use ease\+control"):
        long_study.check(named("ease+lists", "fcpo"))


def test_repeats_let_a_small_group_have_a_larger_share(shop: DataSpec, tmp_path: Path) -> None:
    """Two items are of Acme: 2 of 8 showings, with repeats after 5 steps 4, after 3 steps 6."""
    acme = asked("maker=Acme>=0.7")
    for after, is_kept in ((None, False), (5, False), (3, True)):
        settings = LongRunSettings(steps=8, repeat_after=after)
        long_study = LongStudy(Study(tmp_path, shop, ks=(1,)), settings, limits=acme)
        if is_kept:
            long_study.check(named("fcpo"))
        else:
            with pytest.raises(ConfigError, match="no 8 items that a user may be shown"):
                long_study.check(named("fcpo"))


@pytest.mark.slow
@pytest.mark.parametrize("labels", [Labels.MOMENT, Labels.RETROSPECTIVE])
def test_several_limits_hold_together_in_a_run_of_fcpo(labels: Labels, tmp_path: Path) -> None:
    """With half of the showings for 20 items, the 16 most shown have 40 % at least: they become
    popular, and the retrospective limit gives way to those on fixed groups."""
    table = tmp_path / "items.csv"
    table.write_text("item,kind\n" + "\n".join(f"{n},{'ABCD'[n % 4]}" for n in range(80)))
    limits = replace(asked("kind=A<=0.1", "kind=B>=0.5"), item_table=str(table))
    settings = SETTINGS.model_copy(update={"labels": labels})
    long_study = make(tmp_path / "out", limits=limits, settings=settings)
    chosen = named("fcpo")
    long_study.check(chosen)
    long_study.run(chosen, [0])
    counts = long_study.counts(chosen, [0])["fcpo", 0].counts
    shown = (counts[-1] - counts[0]).reshape(20, 4).sum(0)
    assert shown.sum() == 25 * 60
    assert shown[0] <= 0.1 * 25 * 60
    assert shown[1] >= 0.5 * 25 * 60
    steps = long_study.steps(chosen, [0])
    assert (steps["violation_share"][-1] == 0) == (labels is Labels.MOMENT)
    if labels is Labels.RETROSPECTIVE:
        assert steps["lorenz_share"][-1] >= 0.4
        assert 0.3 < steps["limited_rate"][-1] < 0.37
    assert steps["price"].null_count() == 0
    notes = json.loads(steps["notes"][-1])
    prices = [json.loads(one)["price of kind=A<=0.1"] for one in steps["notes"].drop_nulls()]
    assert max(prices) > 0  # it binds in some step, not necessarily in the last
    assert notes["excess of kind=B>=0.5"] == pytest.approx(0.5 - shown[1] / (25 * 60))
    # the bound and what was reached of it: at most a tenth, at least half
    of_a, of_b = long_study.result(chosen, [0]).limits
    assert (of_a.limit, of_a.method, of_a.violation_share) == ("kind=A<=0.1", "fcpo", 0)
    assert (of_b.limit, of_b.method, of_b.largest_overshoot) == ("kind=B>=0.5", "fcpo", 0)
    assert (of_a.bound, of_a.is_floor, of_b.bound, of_b.is_floor) == (0.1, False, 0.5, True)
    assert of_a.reached.mean == pytest.approx(shown[0] / (25 * 60))
    assert of_b.reached.mean == pytest.approx(shown[1] / (25 * 60))


def test_a_limit_of_the_gini_index_does_not_change_what_is_recorded_of_it(tmp_path: Path) -> None:
    long_study, chosen = make(tmp_path / "out", limits=asked("gini<=0.3")), named("fcpo")
    long_study.run(chosen, [0])
    counts = long_study.counts(chosen, [0])["fcpo", 0].counts
    steps = long_study.steps(chosen, [0])
    assert steps["gini"][-1] == pytest.approx(gini(counts[-1] - counts[0]))
    notes = json.loads(steps["notes"][-1])
    assert notes["excess of gini<=0.3"] == pytest.approx(steps["gini"][-1] - 0.3)
    assert notes["price of gini<=0.3"] >= 0
    (of_gini,) = long_study.result(chosen, [0]).limits
    assert of_gini.bound == 0.3
    assert of_gini.reached.mean == pytest.approx(steps["gini"][-1])


def test_limits_by_hand() -> None:
    limits = {"drama": Limit.parse("genre=drama<=0.3"), "war": Limit.parse("genre=war>=0.6")}
    drama, war = map(str, limits.values())

    def row(method: str, step: int, seed: int = 0, **notes: float) -> Row:
        named = {f"excess of {limits.get(name, name)}": value for name, value in notes.items()}
        known = {"method": method, "step": step, "seed": seed, "notes": json.dumps(named)}
        return dict.fromkeys(SCHEMA) | known

    rows = [
        row("a", 1, drama=0.9, popularity=0.9),  # in the warm-up
        row("a", 2, drama=0.02, popularity=0.3),
        row("a", 3, drama=1e-12, popularity=0.3),  # rounding
        row("b", 2, drama=-0.1),
        row("b", 3, drama=-0.2, war=0.5),
        row("b", 3, seed=1, drama=-0.1),
        dict.fromkeys(SCHEMA) | {"method": "c", "step": 3},
    ]
    bounds = [ResolvedLimit(limit, np.ones(1, dtype=bool)) for limit in limits.values()]
    steps = pl.DataFrame(rows, schema=SCHEMA)
    found = limit_summaries(steps, 1, bounds)
    broken = [(row.limit, row.method, row.violation_share, row.largest_overshoot) for row in found]
    assert broken == [(drama, "a", 0.5, 0.02), (drama, "b", 0.0, 0.0), (war, "b", 1.0, 0.5)]
    reached = [(row.bound, row.is_floor, row.reached.mean) for row in found]
    assert reached == [  # at the last step, the mean over seeds; a floor is missed downwards
        (0.3, False, pytest.approx(0.3)),
        (0.3, False, pytest.approx(0.15)),
        (0.6, True, pytest.approx(0.1)),
    ]
    # with no step after the warm-up there is still what was reached
    unchecked = limit_summaries(steps, 5, bounds)
    assert [row.violation_share for row in unchecked] == [None] * 3
    assert [row.reached for row in unchecked] == [row.reached for row in found]


def test_a_warm_up_longer_than_the_run_is_no_licence(tmp_path: Path) -> None:
    """The policy wants popular items alone and labels stay: it may spend what 20 steps allow."""
    warm = {"warm_start": ["popularity"], "rounds": 0, "initial_std": 0.01}
    settings = LongRunSettings(steps=20, alpha_prime=0.3, warm_up=100, relabel_every=100)
    study = Study(tmp_path / "out", MARKET, ks=(1,), settings={"fcpo": SMALL["fcpo"] | warm})
    long_study, chosen = LongStudy(study, settings), named("fcpo")
    long_study.run(chosen, [0])
    rates = long_study.steps(chosen, [0])["popularity_rate"]
    assert rates[0] == 1
    assert rates[-1] == pytest.approx(0.3)


def test_simulated_users_answer_by_the_truth_of_a_market(tmp_path: Path) -> None:
    whole, stopped = (
        make(tmp_path / place, simulation=SimulationConfig(drift=0.2)) for place in ("a", "b")
    )
    response = whole.user_source().response()
    truth = synthetic_market(MARKET.source).relevance
    assert response.probabilities(torch.arange(60)).numpy() == pytest.approx(truth, rel=1e-4)
    chosen = named("popularity", "ease+quota")
    whole.run(chosen, [0, 1])
    steps = whole.steps(chosen, [0, 1])
    assert 0 < steps["reward"].mean() < 1
    by_chance = steps.group_by("seed").agg(pl.col("reward").sum())["reward"]
    assert by_chance[0] != by_chance[1]
    with pytest.raises(KeyboardInterrupt):
        stopped.run(chosen, [0, 1], meanwhile=stop_after(4))
    stopped.run(chosen, [0, 1], resume=True)
    assert_frame_equal(
        stopped.steps(chosen, [0, 1]).drop("seconds"), steps.drop("seconds"), check_exact=True
    )


def test_the_answers_of_simulated_users_are_fitted_once(shop: DataSpec, tmp_path: Path) -> None:
    settings = LongRunSettings(steps=3)
    study = Study(tmp_path / "out", shop, ks=(1,))
    long_study = LongStudy(study, settings, simulation=SimulationConfig())
    trained: list[TrainingRow] = []
    long_study.run(named("popularity"), [0, 1], on_model=trained.append)
    assert [row.name for row in trained] == [
        *("popularity seed 0", "popularity seed 1", "simulated users")
    ]
    (file,) = (tmp_path / "out" / "models").glob("response-*.safetensors")
    before = file.stat().st_mtime_ns
    kept: ResponseModel = long_study.user_source().response()
    assert kept.probabilities(torch.arange(20)).shape == (20, 10)
    long_study.run(named("ease"), [0])
    assert file.stat().st_mtime_ns == before


def test_lists_longer_than_the_catalogue_are_refused(tmp_path: Path) -> None:
    long_study = make(tmp_path, settings=LongRunSettings(list_length=81))
    with pytest.raises(ConfigError, match=r"lists of 81: there are only 80 items"):
        long_study.check(named("popularity"))


def test_mean_and_deviation_at_the_last_step_by_hand() -> None:
    def row(method: str, seed: int, step: int, **values: Any) -> Row:
        return dict.fromkeys(SCHEMA) | {"method": method, "seed": seed, "step": step} | values

    rows = [
        row("b", 0, 1, ndcg=0.9, churn=3, seconds=1.0),
        row("b", 0, 2, ndcg=0.1, churn=4, seconds=2.0),
        row("b", 1, 1, ndcg=0.9, churn=0, seconds=3.0),
        row("b", 1, 2, ndcg=0.4, churn=1, seconds=4.0),
        row("a", 0, 1, ndcg=None, churn=0, seconds=0.5),
    ]
    first, second = run_summaries(pl.DataFrame(rows, schema=SCHEMA))
    assert (first.method, first.seeds, first.steps) == ("b", (0, 1), 2)
    metrics = first.to_json()["metrics"]
    assert metrics["ndcg"] == pytest.approx({"mean": 0.25, "std": 0.3 / 2**0.5})
    assert metrics["churn"] == pytest.approx({"mean": 4.0, "std": 6 / 2**0.5})
    assert metrics["seconds_per_step"]["mean"] == pytest.approx(2.5)
    assert metrics["gini"] == {"mean": None, "std": None}
    assert second.method == "a"
    assert second.metrics["ndcg"] == Spread(None, None)
    assert second.metrics["seconds_per_step"] == Spread(0.5, 0.0)
