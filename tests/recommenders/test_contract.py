"""What every recommender keeps, whatever it is: the contract of `recommenders/base.py` as rules.

A rule takes a subject, a recommender with its miniature settings on a small market, and a folder to
write to. Every agent, every preset and some rankers with each re-ranker go through all of them.
"""

import copy
import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.cli.app import run
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError, FairHorizonError, ModelError
from fairhorizon.histories import UserItems
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.methods import RECOMMENDERS, Method, build, load_method, presets_of
from fairhorizon.metrics.shares import exceeds, whole_showings
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_best
from fairhorizon.recommenders.base import (
    Capabilities,
    FitTask,
    Levels,
    LogPart,
    Prerequisite,
    RankedLists,
    Recommender,
    ServingPlan,
)
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.recommenders.progress import Listener, RoundReport
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank import RERANKERS
from fairhorizon.settings import Settings
from fairhorizon.simulation.dynamics import Outcome, State, advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario, serving_scenario
from fairhorizon.storage import load_model, save_model
from fairhorizon.vocabulary import Protocol

N_USERS, N_ITEMS, LENGTH, SEED = 30, 40, 8, 2
LOG = synthetic(N_USERS, N_ITEMS, 10, seed=5).interactions
STEPS = 3  # of a server between two updates
REMEDY = r"\(.*\w.*\)"  # what an error says to do
Lists = NDArray[np.int64]

EPISODES = {"rounds": 3, "horizon": 4, "evaluate_every": 1}
NETWORKS = {"actor_hidden": (6, 6), "critic_hidden": (6, 6)}
RANKERS = {"warm_start": ("ease", "itemknn"), "always_train": True}
FAST = {"candidates": 10, "history": 8, "kl_limit": 0.2, **RANKERS}
STRONG = {**FAST, "adapt": False}
LONG = {"looking_ahead": {"hidden": (4, 4), "critic_iterations": 8}}
VECTORS = {"dim": 4, "max_epochs": 20, "learning_rate": 0.1, "l2": 0.001}
# weights of scores that follow the history more than chance, after so few rounds
PAPER = {"pmf": VECTORS, "gru_hidden": 16, "initial_std": 0.002}
TUNED = {
    "als_embeddings": {"dim": 4, "max_epochs": 3},
    "gru_hidden": 16,
    "initial_std": 0.002,
    "alternatives": 2,
}
LIRD = {"rounds": 2, "updates": 4, "batch": 64, "horizon": 4, "pmf": {"dim": 4, "max_epochs": 2}}
GAUSSIAN = {"policy": "gaussian", "spread": None}
FROM_VECTORS = {
    "warm_start": (),
    "starts": "first",
    "candidates": 10,
    "history": 2,
    "kl_limit": 0.5,
}
RANKED = {
    "popularity": {},
    "mf": {"dim": 4, "max_epochs": 2},
    "ease": {},
    "gru4rec": {"dim": 8, "max_epochs": 3},
}
SUBJECTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "fcpo:fast": ("fcpo:fast@0.4", {**EPISODES, **NETWORKS, **FAST}),
    "fcpo:strong": ("fcpo:strong@0.4", {**EPISODES, **NETWORKS, **STRONG}),
    "fcpo:start": ("fcpo:start@0.4", {**NETWORKS, **FAST}),
    "fcpo:long": ("fcpo:long@0.4", {**EPISODES, **NETWORKS, **STRONG, **LONG}),
    "fcpo:strong-start": ("fcpo:strong-start@0.4", {**NETWORKS, **STRONG}),
    "fcpo:paper": ("fcpo:paper@0.4", {**EPISODES, **NETWORKS, **PAPER}),
    "fcpo:tuned": ("fcpo:tuned@0.4", {**EPISODES, **NETWORKS, **TUNED}),
    "fcpo, Gaussian over rankers": ("fcpo@0.4", {**EPISODES, **NETWORKS, **STRONG, **GAUSSIAN}),
    "fcpo, softmax over vectors": ("fcpo@0.4", {**EPISODES, **NETWORKS, **PAPER, **FROM_VECTORS}),
    "lird": ("lird", LIRD),
    "lird, lists of two": ("lird", {**LIRD, "list_length": 2}),
    **{name: (name, settings) for name, settings in RANKED.items()},
    **{
        f"{name}+{reranker}": (f"{name}+{reranker}", settings)
        for name, settings in RANKED.items()
        for reranker in RERANKERS
        # a re-ranker sees scores alone, so that all of them are tested behind one ranker
        if name == "ease" or reranker == "quota"
    },
}


@dataclass(frozen=True)
class Subject:
    """A recommender to be tested, by name, with a small log."""

    method: Method
    settings: Mapping[str, Any]

    @classmethod
    def named(cls, name: str, settings: Mapping[str, Any]) -> Self:
        return cls(Method.parse(name), settings)

    @cached_property
    def split(self) -> Split:
        return split(LOG)

    def build(self, method: Method | None = None) -> Recommender:
        return build(method or self.method, self.settings, SEED)

    @cached_property
    def model(self) -> Recommender:
        """Fitted once; not to be changed."""
        return self.build().fit(self.split)

    @cached_property
    def scenario(self) -> Scenario:
        return evaluation_scenario(self.split, self.model.queue_length, Protocol.STANDARD)

    @cached_property
    def lists(self) -> Lists:
        """What the fitted model recommends."""
        return self.lists_of(self.model)

    def lists_of(self, model: Recommender, *, feedback: bool = False) -> Lists:
        return model.recommend(self.scenario, length=LENGTH, feedback=feedback)

    def assert_same(self, model: Recommender) -> None:
        """It cannot be told from the fitted model, by the lists it makes and what it says."""
        np.testing.assert_array_equal(self.lists_of(model), self.lists)
        assert model.description() == self.model.description()


def fit_starts_anew(subject: Subject, _: Path) -> None:
    model = copy.deepcopy(subject.model)
    assert model.fit(subject.split) is model
    subject.assert_same(model)
    assert model.finished_
    assert model.seed == SEED
    assert model.fingerprint_ == subject.split.train.fingerprint()
    popular = popular_group(subject.split.train.item_counts(), model.popular_share)
    assert model.sensitive_.tolist() == popular.tolist()


def abilities_are_known_before_the_fit(subject: Subject, _: Path) -> None:
    assert subject.build().capabilities == subject.model.capabilities


def settings_build_the_same_again(subject: Subject, _: Path) -> None:
    for model in (subject.build(), subject.model):
        settings = json.loads(json.dumps(model.all_settings()))
        again = build(replace(subject.method, level=None), settings, SEED)
        assert again.all_settings() == settings
        assert again.settings == model.settings
        assert isinstance(model.settings, Settings)
        assert (again.method, again.capabilities) == (model.method, model.capabilities)


def lists_are_valid(subject: Subject, _: Path) -> None:
    model, parts = subject.model, subject.split
    of_paper = evaluation_scenario(parts, model.queue_length, Protocol.PAPER)
    at_the_end = serving_scenario(LOG, model.queue_length)
    cases = ((subject.scenario, N_ITEMS + 5), (subject.scenario, 1), (at_the_end, 3), (of_paper, 3))
    for scenario, length in cases:
        for feedback in (False, True):
            lists = model.recommend(scenario, length=length, feedback=feedback)
            assert lists.shape == (N_USERS, length)
            assert lists.dtype == np.int64
            assert_valid(lists, scenario.excluded)
            assert (lists[:, :1] >= 0).all()  # nobody knows the whole catalogue


def assert_valid(lists: Lists, excluded: UserItems | None) -> None:
    """Items of the catalogue, each once a user, none of them excluded; -1 at the end alone."""
    assert lists.min() >= -1
    assert lists.max() < N_ITEMS
    never_shown = None if excluded is None else excluded.mask(torch.arange(N_USERS)).numpy()
    for user, items in enumerate(lists):
        shown = items[items >= 0]
        assert (items[: len(shown)] >= 0).all()
        assert len(np.unique(shown)) == len(shown)
        assert never_shown is None or not never_shown[user, shown].any()


def a_seed_gives_the_same_lists(subject: Subject, _: Path) -> None:
    model, scenario = subject.model, subject.scenario
    for seed in (SEED, SEED + 1):
        first, second = (model.recommend(scenario, length=LENGTH, seed=seed) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        if seed == model.seed:
            np.testing.assert_array_equal(first, subject.lists)


def what_users_like_counts_with_feedback_alone(subject: Subject, _: Path) -> None:
    """One-shot lists know nothing of the test items; interactive ones learn what was liked."""
    model, scenario = subject.model, subject.scenario
    liked = scenario.positive
    nothing = UserItems(torch.zeros_like(liked.indptr), liked.items[:0], liked.n_items)
    unliked = replace(scenario, positive=nothing)
    np.testing.assert_array_equal(model.recommend(unliked, length=LENGTH), subject.lists)
    interactive = subject.lists_of(model, feedback=True)
    without_likes = model.recommend(unliked, length=LENGTH, feedback=True)
    if model.capabilities.feedback:
        assert (interactive != without_likes).any()
        assert (interactive != subject.lists).any()
    else:
        np.testing.assert_array_equal(interactive, without_likes)
        np.testing.assert_array_equal(interactive, subject.lists)


def levels_are_as_the_abilities_say(subject: Subject, _: Path) -> None:
    model, capabilities = subject.model, subject.model.capabilities
    own, own_lists = model.alpha_prime, subject.lists.copy()
    if capabilities.levels is not Levels.SERVED or not capabilities.level_is_share:
        with pytest.raises(ConfigError, match=REMEDY):
            model.with_level(0.25)
        return
    lists = {}
    for level in (0.15, 0.6):
        other = model.with_level(level)
        assert (other.alpha_prime, other.capabilities) == (level, capabilities)
        lists[level] = subject.lists_of(other)
        if capabilities.aims_at_level:
            assert not exceeds(group_share(lists[level], model.sensitive_), level)
    assert (lists[0.15] != lists[0.6]).any()
    np.testing.assert_array_equal(
        subject.lists_of(model.with_level(0.6).with_level(0.15)), lists[0.15]
    )
    assert model.alpha_prime == own
    np.testing.assert_array_equal(subject.lists_of(model), own_lists)
    for no_share in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError):
            model.with_level(no_share)


def group_share(lists: Lists, sensitive: Tensor) -> float:
    shown = lists[lists >= 0]
    return float(sensitive.numpy()[shown].mean())


def what_is_trained_serves_as_what_was_asked_for(subject: Subject, _: Path) -> None:
    if subject.method.capabilities != subject.model.capabilities:
        return  # by settings that no name says, one level is all that this model has
    trained = subject.build(subject.method.trained).fit(subject.split)
    subject.assert_same(trained.as_served_by(subject.build()))


def a_file_holds_the_whole_model(subject: Subject, folder: Path) -> None:
    file = folder / "new" / "model.safetensors"
    subject.model.save(file)
    loaded = load_method(file)
    assert type(loaded) is type(subject.model)
    subject.assert_same(loaded)
    for feedback in (False, True):
        lists, own = (subject.lists_of(one, feedback=feedback) for one in (loaded, subject.model))
        np.testing.assert_array_equal(lists, own)
    for name in ("capabilities", "alpha_prime", "queue_length", "fingerprint_", "seed", "method"):
        assert getattr(loaded, name) == getattr(subject.model, name), name
    assert loaded.all_settings() == subject.model.all_settings()
    assert torch.equal(loaded.sensitive_, subject.model.sensitive_)
    assert json.loads(json.dumps(loaded.description(), allow_nan=False)) is not None
    loaded.save(folder / "again.safetensors")
    assert (folder / "again.safetensors").read_bytes() == file.read_bytes()


def a_file_of_another_kind_is_refused(subject: Subject, folder: Path) -> None:
    file = folder / "model.safetensors"
    subject.model.save(file)
    for other in {Ranked, *RECOMMENDERS.values()} - {type(subject.model)}:
        with pytest.raises(ModelError, match=f"holds a '{subject.model.kind}' model, not"):
            other.load(file)
    with pytest.raises(ModelError, match="no such model file"):
        type(subject.model).load(folder / "missing.safetensors")


class OneRound(Listener):
    """Stops a training after its first round."""

    def round(self, report: RoundReport) -> None:  # noqa: ARG002
        self.stop = True


def a_training_is_resumed_or_refuses_it(subject: Subject, folder: Path) -> None:
    model, kept = subject.build(), folder / "kept"
    if not model.capabilities.resume:
        for given in ({"checkpoint": kept}, {"resume": True}, {"checkpoint": kept, "resume": True}):
            with pytest.raises(ConfigError, match=f"keeps no checkpoints {REMEDY}"):
                model.fit(subject.split, **given)
        with pytest.raises(ConfigError, match=f"keeps no checkpoints {REMEDY}"):
            model.resumable(kept, {}, None)
        assert not kept.exists()
        assert not hasattr(model, "fingerprint_")
        return
    with pytest.raises(ConfigError, match=REMEDY):
        model.fit(subject.split, resume=True)
    for resume in (lambda: model.fit(subject.split, checkpoint=kept, resume=True),
                   lambda: model.resumable(kept, {}, None)):  # fmt: skip
        with pytest.raises(FairHorizonError, match=f"there is no checkpoint {REMEDY}"):
            resume()
    model.fit(subject.split, checkpoint=kept, listener=OneRound())
    assert (
        model.finished_ != model.capabilities.learns
    )  # without rounds there is none to stop after
    assert_valid(subject.lists_of(model), subject.scenario.excluded)
    again = subject.build().fit(subject.split, checkpoint=kept, resume=True)
    assert again.finished_
    subject.assert_same(again)
    resumable = model.resumable(kept, {}, None)
    assert (resumable.settings, resumable.seed) == (model.settings, SEED)
    other = split(synthetic(N_USERS, N_ITEMS, 10, seed=6).interactions)
    with pytest.raises(FairHorizonError, match=REMEDY):
        subject.build().fit(other, checkpoint=kept, resume=True)


class World:
    """The users of the market in a long run."""

    def __init__(self, subject: Subject) -> None:
        scenario = subject.scenario
        self.state, self.answers = scenario.begin(torch.arange(N_USERS))
        self.exposure = Exposure(subject.split.train.item_counts())

    def step(self, server: OnlineRecommender) -> Lists:
        """The lists shown: of what is in the catalogue, each once, and never twice to a user."""
        lists = server.serve(self.state, self.exposure)
        assert_valid(lists.numpy(), None)
        assert not (self.state.blocked.gather(1, lists.clamp(min=0)) & (lists >= 0)).any()
        outcome = advance(self.state, lists, self.answers, self.exposure.sensitive)
        self.exposure.add(lists)
        server.observe(lists, outcome, self.exposure)
        self.exposure.relabel()
        self.state = outcome.state
        return lists.numpy().copy()

    def steps(self, server: OnlineRecommender, number: int) -> list[Lists]:
        return [self.step(server) for _ in range(number)]


def what_serves_in_no_long_run_says_so(subject: Subject, _: Path) -> None:
    if not subject.model.capabilities.long_run:
        with pytest.raises(ConfigError, match=f"serves in no long run {REMEDY}"):
            subject.model.online()


def a_server_goes_on_where_another_was(subject: Subject, _: Path) -> None:
    """Restored from the tensors, which are not changed by what the first server does after it."""
    if not subject.model.capabilities.long_run:
        return
    for retrain_on in (None, subject.split):

        def server(log: Split | None = retrain_on) -> OnlineRecommender:
            limits = [PopularityLimit(0.4)]
            return subject.model.online(limits, retrain_on=log, round_length=STEPS)

        first, world = server(), World(subject)
        assert first.queue_length <= subject.scenario.queue.shape[1]
        world.steps(first, STEPS)
        first.update()
        kept, other = first.tensors(), copy.deepcopy(world)
        assert all(isinstance(tensor, Tensor) for tensor in kept.values())
        expected = world.steps(first, STEPS)
        first.update()
        expected += world.steps(first, 1)
        second = server()
        second.restore(kept, other.state)
        shown = other.steps(second, STEPS)
        second.update()
        shown += other.steps(second, 1)
        np.testing.assert_array_equal(np.stack(shown), np.stack(expected))
        assert second.notes() == first.notes()
        assert list(second.remarks) == list(first.remarks)


def a_server_leaves_the_model_as_it_is(subject: Subject, folder: Path) -> None:
    if not subject.model.capabilities.long_run:
        return
    before, after = folder / "before.safetensors", folder / "after.safetensors"
    lists = subject.lists.copy()
    subject.model.save(before)
    server = subject.model.online(
        [PopularityLimit(0.2)], retrain_on=subject.split, round_length=STEPS, learn=True
    )
    world = World(subject)
    for _round in range(3):
        world.steps(server, STEPS)
        server.update()
    np.testing.assert_array_equal(subject.lists_of(subject.model), lists)
    subject.model.save(after)
    assert after.read_bytes() == before.read_bytes()
    assert all(isinstance(value, float) for value in server.notes().values())
    assert all(isinstance(remark, str) for remark in server.remarks)


def a_server_makes_lists_of_the_length_or_refuses(subject: Subject, _: Path) -> None:
    if not subject.model.capabilities.long_run:
        return
    own = World(subject).step(subject.model.online()).shape
    assert own == (N_USERS, subject.settings.get("list_length", 1))
    try:
        server = subject.model.online(list_length=3)
    except ConfigError as error:
        assert "list_length=3" in str(error)  # noqa: PT017  # some can, some refuse
    else:
        assert World(subject).step(server).shape == (N_USERS, 3)


def a_limit_is_kept_at_every_step(subject: Subject, _: Path) -> None:
    if not subject.model.capabilities.limits:
        return
    server, world = subject.model.online([PopularityLimit(0.3)]), World(subject)
    for number in range(1, 16):
        free = ~world.state.blocked & ~world.exposure.sensitive
        lists = world.step(server)
        assert (lists[free.any(1)] >= 0).all()  # nothing is kept by showing nothing
        exposure = world.exposure
        assert not exceeds(exposure.n_sensitive / exposure.n_shown, 0.3)
        if number % 5 == 0:
            server.update()
    assert "price of popularity" in server.notes()


def requests_keep_the_limit_after_every_list(subject: Subject, _: Path) -> None:
    model = subject.model
    if not model.capabilities.requests:
        with pytest.raises(ConfigError, match=REMEDY):
            model.recommend_one_by_one(subject.scenario, length=LENGTH)
        return
    lists = model.recommend_one_by_one(subject.scenario, length=LENGTH)
    assert_valid(lists, subject.scenario.excluded)
    shown = (lists >= 0).sum(1).cumsum()
    in_group = (model.sensitive_.numpy()[lists] & (lists >= 0)).sum(1).cumsum()
    assert shown[-1] == N_USERS * LENGTH
    assert not any(exceeds(rate, model.alpha_prime) for rate in in_group / shown)


def prerequisites_are_not_fitted_again(subject: Subject, _: Path) -> None:
    needs = subject.build().prerequisites(subject.split)
    logs = {LogPart.WHOLE: subject.split, LogPart.EARLIER: earlier_part(subject.split)}
    fitted: dict[Prerequisite, Ranker[Any]] = {}
    for need in needs:
        ranker = build(Method(need.method), {}, SEED).fit(logs[need.part]).ranker
        assert ranker is not None
        fitted[need] = ranker
    if not fitted:
        return
    with pytest.MonkeyPatch.context() as patch:
        for ranker in fitted.values():
            patch.setattr(type(ranker), "fit", lambda *_, **__: pytest.fail("fitted again"))
        model = subject.build().fit(subject.split, fitted=fitted)
    subject.assert_same(model)


def a_group_can_be_given(subject: Subject, _: Path) -> None:
    group = np.arange(N_ITEMS) % 3 == 0
    model = subject.build().fit(subject.split, sensitive=group)
    assert model.sensitive_.tolist() == group.tolist()
    if model.capabilities.levels is Levels.SERVED and model.capabilities.aims_at_level:
        assert not exceeds(group_share(subject.lists_of(model), model.sensitive_), 0.4)


RULES: tuple[Callable[[Subject, Path], None], ...] = (
    fit_starts_anew,
    abilities_are_known_before_the_fit,
    settings_build_the_same_again,
    lists_are_valid,
    a_seed_gives_the_same_lists,
    what_users_like_counts_with_feedback_alone,
    levels_are_as_the_abilities_say,
    what_is_trained_serves_as_what_was_asked_for,
    a_file_holds_the_whole_model,
    a_file_of_another_kind_is_refused,
    a_training_is_resumed_or_refuses_it,
    what_serves_in_no_long_run_says_so,
    a_server_goes_on_where_another_was,
    a_server_leaves_the_model_as_it_is,
    a_server_makes_lists_of_the_length_or_refuses,
    a_limit_is_kept_at_every_step,
    requests_keep_the_limit_after_every_list,
    prerequisites_are_not_fitted_again,
    a_group_can_be_given,
)


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    """Each is fitted when it is first needed."""
    return {label: Subject.named(*given) for label, given in SUBJECTS.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("default:for .* users no ranking of:UserWarning")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("label", SUBJECTS)
def test_contract(
    label: str,
    rule: Callable[[Subject, Path], None],
    subjects: dict[str, Subject],
    tmp_path: Path,
) -> None:
    rule(subjects[label], tmp_path)


def test_every_agent_and_preset_is_a_subject() -> None:
    named = [Method.parse(name) for name, _ in SUBJECTS.values()]
    for agent in RECOMMENDERS:
        presets = presets_of(agent) or (None,)
        assert set(presets) <= {method.preset for method in named if method.base == agent}


class UsualSettings(Settings):
    """Settings of what most people take."""

    boost: float = 1.0
    """How much a like raises an item with a neighbouring code."""
    alpha_prime: float = 1.0
    """Largest share of the group in every list."""


class Usual(Recommender):
    """What most people take: an agent that is nothing but this class, to be named in RECOMMENDERS.

    Likes raise the next item of the catalogue; the first items of a list may be of the group.
    """

    kind = "usual"
    method = "usual"
    presets = MappingProxyType({"plain": UsualSettings(), "eager": UsualSettings(boost=50.0)})
    level_setting = "alpha_prime"
    queue_length = 1
    capabilities = Capabilities(levels=Levels.SERVED, level_is_share=True, aims_at_level=True)

    def __init__(self, config: UsualSettings, seed: int) -> None:
        self.config, self.seed = config, seed

    @classmethod
    def configured(cls, config: Settings, seed: int) -> Self:
        assert isinstance(config, UsualSettings)
        return cls(config, seed)

    @property
    def settings(self) -> UsualSettings:
        return self.config

    @property
    def alpha_prime(self) -> float:
        return self.config.alpha_prime

    def with_level(self, alpha_prime: float) -> Self:
        if not 0 < alpha_prime <= 1:
            raise ConfigError(f"{alpha_prime:g} is no share (give one up to 1)")
        other = copy.copy(self)
        other.config = self.config.model_copy(update={"alpha_prime": alpha_prime})
        return other

    def as_served_by(self, other: Self) -> Self:
        return self.with_level(other.alpha_prime)

    def _fit(self, task: FitTask) -> None:
        self.sensitive_ = torch.tensor(task.group)
        self.counts_ = torch.from_numpy(task.split.train.item_counts()).float()
        self.fingerprint_ = task.split.train.fingerprint()

    def rank(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool = False,
        seed: int | None = None,  # noqa: ARG002
    ) -> RankedLists:
        state, answers = scenario.begin(torch.arange(scenario.n_users))
        server = self._online(ServingPlan())
        left = torch.full((scenario.n_users,), whole_showings(self.alpha_prime * length))
        shown = []
        for _ in range(length):
            never_shown = state.blocked | ((left <= 0)[:, None] & self.sensitive_)
            lists = server.best(never_shown)
            outcome = advance(state, lists, answers, self.sensitive_)
            if feedback:
                server.learn(lists, outcome)
            left, state = left - outcome.cost.long(), outcome.state
            shown.append(lists)
        return RankedLists(torch.cat(shown, dim=1).numpy())

    def _online(self, plan: ServingPlan) -> "UsualServer":
        plan.check_list_length(self.method, 1)
        return UsualServer(self)

    def description(self) -> dict[str, Any]:
        own = {"config": self.config.model_dump(mode="json"), "seed": self.seed}
        return {"method": self.method, "fingerprint": self.fingerprint_, **own}

    def save(self, path: Path) -> None:
        tensors = {"counts": self.counts_, "sensitive": self.sensitive_}
        save_model(path, self.kind, tensors, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.kind)
        model = cls(UsualSettings.model_validate(description["config"]), description["seed"])
        model.counts_, model.sensitive_ = tensors["counts"], tensors["sensitive"]
        model.fingerprint_ = description["fingerprint"]
        return model


class UsualServer:
    """The most taken item that is left, and what likes have raised."""

    queue_length, remarks = 1, ()

    def __init__(self, model: Usual) -> None:
        self.counts, self.boost = model.counts_, model.config.boost
        self.raised = torch.zeros(N_USERS, len(self.counts))

    def best(self, never_shown: Tensor) -> Tensor:
        return first_best((self.raised + self.counts).masked_fill(never_shown, -torch.inf))[:, None]

    def learn(self, lists: Tensor, outcome: Outcome) -> None:
        rows, slots = outcome.hits.nonzero(as_tuple=True)
        self.raised[rows, (lists[rows, slots] + 1) % len(self.counts)] += self.boost

    def serve(self, state: State, exposure: Exposure) -> Tensor:  # noqa: ARG002
        return self.best(state.blocked)

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        self.learn(lists, outcome)

    def update(self) -> None:
        """It learns at once."""

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {"raised": self.raised.clone()}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:  # noqa: ARG002
        self.raised = tensors["raised"].clone()


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that makes a class an agent."""
    monkeypatch.setitem(RECOMMENDERS, "usual", Usual)


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_new_agent_is_a_class_and_a_line(
    rule: Callable[[Subject, Path], None], tmp_path: Path
) -> None:
    rule(Subject.named("usual:eager@0.4", {"boost": 70.0}), tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("usual")
def test_all_commands_know_a_new_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = f"--data=synthetic:users={N_USERS},items={N_ITEMS},interactions_per_user=10"

    def fairhorizon(*words: object) -> str:
        assert run([str(word) for word in words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    fairhorizon("fit", "usual:eager@0.2", data, "--set=boost=60", "--out", tmp_path / "run")
    lists = tmp_path / "lists.csv"
    fairhorizon("recommend", tmp_path / "run", "--k=5", "--out", lists)
    with lists.open(encoding="utf-8") as lines:
        assert len(list(csv.DictReader(lines))) == 5 * N_USERS
    assert "boost" in fairhorizon("methods", "usual")
    assert "usual:eager" in fairhorizon("methods")
    rows = tmp_path / "rows.json"
    methods = ("popularity", "usual", "usual:eager@0.2")
    chosen = (data, "--methods", ",".join(methods), "--jobs=1", "--set=usual.boost=60")
    fairhorizon("compare", *chosen, "--k=5", "--seeds=1", "--json", rows, "--out", tmp_path / "c")
    found = json.loads(rows.read_text(encoding="utf-8"))["rows"]
    assert [row["method"] for row in found] == list(methods)
    rates = [row["metrics"]["popularity_rate@5"]["mean"] for row in found]
    assert rates[0] == rates[1] > 0.2  # both show what most people take
    assert rates[2] == 0.2
    steps = ("--steps=6", "--seeds=1", "--update-every=3", "--warm-up=2", "--round=5")
    fairhorizon("longterm", *chosen, *steps, "--out", tmp_path / "longterm")
