"""The search for settings: its space, its trials, what it keeps."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import Field

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.datasets import Dataset
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.evaluation.short_term import validation_ndcg
from fairhorizon.histories import UserItems
from fairhorizon.limits.groups import popular_group
from fairhorizon.methods import RECOMMENDERS, Method, MethodError, build
from fairhorizon.parallel.engine import Processes, Work
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ensemble import Stack
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.simulation.feedback import validation_scenario
from fairhorizon.studies.tuning import (
    Objective,
    Tuning,
    defaults,
    dotted,
    merged,
    nested,
    search_space,
)
from fairhorizon.vocabulary import Protocol

HILL = Method("hill")


class Inner(Settings):
    depth: Annotated[int, Field(ge=1), Search(1, 8, log=True)] = 2
    bound: int = 3


class HillConfig(Settings):
    place: Annotated[float, Search(-1, 1)] = 0.75
    scale: Annotated[float | None, Search(0.1, 10, log=True)] = Field(None, gt=0)
    side: Annotated[str, Choice(("left", "right"))] = "left"
    inner: Inner = Inner()
    unsearched: float = 1.0


class Hill(Ranker[HillConfig]):
    """The share of users whose validation item it knows is 1 - |place|; "right" diverges."""

    method = "hill"
    config_class = HillConfig

    def _learn(self, split: Split, on_epoch: Any) -> None:  # noqa: ARG002
        if self.config.side == "right":
            raise ConfigError("the training diverged (go left)")
        users, items = torch.tensor(split.validation.users), torch.tensor(split.validation.items)
        known = users < (1 - abs(self.config.place)) * split.train.n_users
        self.table = torch.zeros(split.train.n_users, split.train.n_items)
        self.table[:, : split.train.n_items // 2] = -1.0
        self.table[users[known], items[known]] = 1.0
        self.table[users[~known], items[~known]] = -2.0

    def scores(self, users: torch.Tensor, queue: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return self.table[users]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None: ...


@pytest.fixture(autouse=True)
def hill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RANKERS, "hill", Hill)


@pytest.fixture
def dataset(market: Split) -> Dataset:
    log = market.train  # its id maps are those of all parts
    return Dataset(log, market, popular_group(market.train.item_counts()))


@dataclass(frozen=True)
class Given:
    """Data that are there already."""

    given: Dataset

    def dataset(self) -> Dataset:
        return self.given


def objective(dataset: Dataset, method: Method = HILL, **changes: Any) -> Objective:
    return Objective(method, Given(dataset), **changes)


def test_the_space_is_read_off_the_settings() -> None:
    model = build(Method("hill"), {}, 0)
    assert search_space(model, {}) == {
        "place": FloatDistribution(-1, 1),
        "scale": FloatDistribution(0.1, 10, log=True),
        "side": CategoricalDistribution(("left", "right")),
        "inner.depth": IntDistribution(1, 8, log=True),
    }
    left = search_space(model, {"place": 0.5, "inner": {"depth": 3}})
    assert sorted(left) == ["scale", "side"]
    # a default outside the space (None here) is left to the search
    assert defaults(model, search_space(model, {})) == {
        "place": 0.75,
        "side": "left",
        "inner.depth": 2,
    }


@pytest.mark.parametrize("method", [*RANKERS, *RECOMMENDERS, "fcpo:paper"])
def test_every_space_of_ours_can_be_proposed_and_holds_the_defaults(method: str) -> None:
    model = build(Method.parse(method), {}, 0)
    space = search_space(model, {})
    assert space or method in (Popularity.method, Stack.method)
    assert set(defaults(model, space)) == set(space)
    for name, where in space.items():
        ends = getattr(where, "choices", None) or (where.low, where.high)  # type: ignore[attr-defined]
        for value in ends:
            build(Method.parse(method), nested({name: value}), 0)  # within the setting's bounds


def test_lists_are_proposed_as_text_and_set_as_lists() -> None:
    model = build(Method("ridge"), {}, 0)
    space = search_space(model, {})
    assert "[0.8, 0.97]" in space["decays"].choices  # type: ignore[attr-defined]
    assert defaults(model, space)["decays"] == "[0.8, 0.97]"
    assert nested({"decays": "[0.9, 1.0]", "pmf.l2": 1}) == {"decays": [0.9, 1.0], "pmf": {"l2": 1}}


def test_a_space_is_that_of_the_preset() -> None:
    strong, paper = (
        search_space(build(Method.parse(name), {}, 0), {}) for name in ("fcpo:strong", "fcpo:paper")
    )
    # a policy without a warm start has no feedback that its rankers have not seen
    assert paper["starts"] == CategoricalDistribution(("first", "anywhere"))
    assert strong["starts"] == CategoricalDistribution(("first", "anywhere", "unseen"))
    # a range is wide enough for where the preset is
    assert paper["initial_std"] == FloatDistribution(0.1, 3, log=True)
    assert strong["initial_std"] == FloatDistribution(0.05, 3, log=True)


def test_fcpo_is_tuned_from_the_preset_of_the_paper_unless_another_is_named(
    dataset: Dataset,
) -> None:
    for given, expected in (
        (objective(dataset, Method("fcpo")), "fcpo:paper"),
        (objective(dataset, Method("fcpo"), preset="strong"), "fcpo:strong"),
        (objective(dataset, Method("fcpo", preset="strong")), "fcpo:strong"),
        (objective(dataset, Method("fcpo", preset="paper"), preset="strong"), "fcpo:paper"),
    ):
        assert str(given.method_with_preset) == expected
        model = build(Method.parse(expected), {}, 0)
        assert given.model({}).settings == model.settings
    assert objective(dataset, Method("ease")).method_with_preset == Method("ease")


def test_dotted_and_nested_are_inverse() -> None:
    tree = {"a": 1, "pmf": {"l2": 0.5, "deep": {"er": "x"}}}
    flat = {"a": 1, "pmf.l2": 0.5, "pmf.deep.er": "x"}
    assert (dotted(tree), nested(flat)) == (flat, tree)
    assert merged(tree, {"pmf": {"l2": 2}, "b": 3}) == {
        "a": 1,
        "pmf": {"l2": 2, "deep": {"er": "x"}},
        "b": 3,
    }


def test_the_first_trial_is_the_default_and_the_best_is_the_best_recorded(
    dataset: Dataset, tmp_path: Path
) -> None:
    tuning = Tuning(objective(dataset, given={"side": "left"}), tmp_path)
    trials = list(tuning.run(12))
    assert [trial.number for trial in trials] == list(range(1, 13))
    assert trials[0].settings["place"] == 0.75
    assert trials[0].value == pytest.approx(0.25, abs=1e-12)  # 15 of 60 users on rank 1
    values = [trial.value for trial in trials]
    assert all(value is not None for value in values)
    assert tuning.best.value == max(value for value in values if value is not None)
    assert tuning.best.value == trials[tuning.best.number - 1].value
    for trial in trials:
        n_known = math.ceil((1 - abs(trial.settings["place"])) * 60)
        assert trial.value == pytest.approx(n_known / 60, abs=1e-12)
    assert len({trial.settings["place"] for trial in trials}) == 12


@pytest.mark.slow
def test_a_search_in_pieces_is_that_in_one_go(dataset: Dataset, tmp_path: Path) -> None:
    whole = list(Tuning(objective(dataset), tmp_path / "whole").run(12))
    for trials, expected in ((1, 1), (5, 4), (5, 0), (3, 0), (12, 7)):
        piece = Tuning(objective(dataset), tmp_path / "pieces")
        assert len(list(piece.run(trials))) == expected
    assert Tuning(objective(dataset), tmp_path / "pieces").trials == whole
    other = list(Tuning(objective(dataset, seed=1), tmp_path / "other").run(3))
    assert other[1].settings != whole[1].settings


class Backwards(Processes):
    """The last task is the first to end."""

    def each(self, tasks: Sequence[Work[Any]], **options: Any) -> Iterator[Any]:
        return super().each(tasks[::-1], **options)


def test_one_at_a_time_is_what_optuna_asks_and_is_told(dataset: Dataset, tmp_path: Path) -> None:
    goal = objective(dataset, given={"side": "left"})
    space = search_space(goal.model({}), goal.given)
    study = optuna.create_study(direction="maximize")
    study.enqueue_trial(defaults(goal.model({}), space))
    for number in range(14):  # the sampler begins to learn after 10
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        proposal = study.ask(space)
        study.tell(proposal, goal.value(nested(proposal.params)))
    expected = [(trial.params, trial.value) for trial in study.trials]
    found = Tuning(goal, tmp_path).run(14)
    assert [(trial.settings, trial.value) for trial in found] == expected


@pytest.mark.slow
def test_a_batch_is_the_same_whoever_ends_first_and_in_pieces(
    dataset: Dataset, tmp_path: Path
) -> None:
    goal = objective(dataset, given={"side": "left"})  # none of which fails
    whole = list(Tuning(goal, tmp_path / "whole").run(14, batch=3))
    assert [trial.number for trial in whole] == list(range(1, 15))
    backwards = Tuning(goal, tmp_path / "backwards")
    assert list(backwards.run(14, Backwards(), batch=3)) == whole
    for trials in (1, 5, 11, 14):  # stops in the middle of batches
        list(Tuning(goal, tmp_path / "pieces").run(trials, batch=3))
    assert Tuning(goal, tmp_path / "pieces").trials == whole
    alone = list(Tuning(goal, tmp_path / "alone").run(14))
    # before the sampler learns, a proposal depends on its number alone
    assert [trial.settings for trial in alone[:10]] == [trial.settings for trial in whole[:10]]
    assert [trial.settings for trial in alone[10:]] != [trial.settings for trial in whole[10:]]


def test_a_trial_that_is_stopped_is_not_kept(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(Tuning(objective(dataset), tmp_path / "whole").run(4))
    tuning = Tuning(objective(dataset), tmp_path / "stopped")
    trials = tuning.run(4)
    assert [next(trials), next(trials)] == whole[:2]
    with monkeypatch.context() as patched:

        def press_ctrl_c(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(Hill, "_learn", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            next(trials)
    again = Tuning(objective(dataset), tmp_path / "stopped")
    assert again.trials == whole[:2]
    assert list(again.run(4)) == whole[2:]


def test_trials_that_diverge_count_and_the_search_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    tuning = Tuning(objective(dataset), tmp_path)
    trials = list(tuning.run(10))
    failed = [trial for trial in trials if trial.settings["side"] == "right"]
    assert 0 < len(failed) < 10
    for trial in failed:
        assert (trial.value, trial.error) == (None, "the training diverged (go left)")
    assert tuning.best.settings["side"] == "left"
    assert Tuning(objective(dataset), tmp_path).trials == trials


def test_if_all_fail_the_last_error_is_shown(dataset: Dataset, tmp_path: Path) -> None:
    tuning = Tuning(objective(dataset, given={"side": "right"}), tmp_path)
    assert len(list(tuning.run(2))) == 2
    with pytest.raises(ConfigError, match=r"no trial of 2 succeeded: the training diverged"):
        tuning.write_best()
    assert not (tmp_path / "best.json").exists()


def test_a_folder_of_another_search_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    list(Tuning(objective(dataset), tmp_path).run(1))
    parts = dataset.split
    shorter = Split(parts.train.take(np.arange(len(parts.train) - 1)), parts.validation, parts.test)
    others = {
        "method": objective(dataset, Method("ease")),
        "data": objective(Dataset(dataset.log, shorter, dataset.sensitive)),
        "groups": objective(Dataset(dataset.log, parts, ~dataset.sensitive)),
        "protocol": objective(dataset, protocol=Protocol.PAPER),
        "seed": objective(dataset, seed=1),
        "settings": objective(dataset, given={"unsearched": 2.0}),
    }
    for what, other in others.items():
        with pytest.raises(ConfigError, match=rf"a search of hill with other .*\b{what}\b"):
            Tuning(other, tmp_path)
    assert len(Tuning(objective(dataset), tmp_path).trials) == 1


@pytest.mark.parametrize("content", [b"", b"not a data base at all"])
def test_a_file_that_is_no_study_is_refused(
    dataset: Dataset, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "study.db").write_bytes(content)
    with pytest.raises(ConfigError, match=r"study\.db: holds no search: .*name another --out"):
        Tuning(objective(dataset), tmp_path)
    assert (tmp_path / "study.db").read_bytes() == content


def test_what_cannot_be_tuned_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=r"ease\+quota: a re-ranker is not trained \(tune ease,"):
        objective(dataset, Method("ease", "quota"))
    with pytest.raises(ConfigError, match="popularity has no settings to search"):
        Tuning(objective(dataset, Method("popularity")), tmp_path)


@pytest.mark.parametrize("protocol", Protocol)
def test_validation_ndcg_by_the_definition(market: Split, protocol: Protocol) -> None:
    model = Ranked(Popularity()).fit(market)
    lists = model.recommend(validation_scenario(market, 1, protocol), length=20)
    total = 0.0
    for user, item in zip(market.validation.users, market.validation.items, strict=True):
        shown = lists[user].tolist()
        total += 1 / math.log2(shown.index(item) + 2) if item in shown else 0
    expected = total / len(market.validation)
    assert validation_ndcg(model, market, protocol) == pytest.approx(expected, rel=1e-12)
    history = UserItems.from_log(market.train).mask(torch.arange(len(lists))).numpy()
    in_history = np.take_along_axis(history, lists.clip(0), 1).any()
    assert in_history == (protocol is Protocol.PAPER)


def test_without_validation_items_there_is_nothing_to_choose_by() -> None:
    users, items = np.repeat(np.arange(4), 5), np.tile(np.arange(5), 4)
    parts = split(from_arrays(users, items, timestamps=np.arange(20)))
    empty = Split(parts.train, parts.validation.take([]), parts.test)
    with pytest.raises(DataError, match="no validation items to choose settings by"):
        validation_ndcg(Ranked(Popularity()).fit(empty), empty)
