"""FCPO adapts to the log: weights of the stack, two ensembles, and training that is resumed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.fcpo import serving
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.training import Training
from fairhorizon.rankers.ensemble import Stack, StackConfig
from fairhorizon.recommenders.base import FitTask, LogPart, Prerequisite
from fairhorizon.recommenders.progress import Listener, RoundReport
from fairhorizon.storage import load_model

RANKERS = ("ridge", "ease:recent", "itemknn:recent", "popularity")


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("synthetic-trends:users=90,items=80,interactions_per_user=20"))


@pytest.fixture(scope="module")
def config(small_strong: FcpoConfig) -> FcpoConfig:
    """The default in miniature, without its search for ridge, which takes longest."""
    changes = {
        **{"warm_start": RANKERS, "adapt": True, "spread": None, "rounds": 3, "evaluate_every": 1},
        "always_train": True,
        "ridge": {"decays": (0.8, 0.97), "horizon": 5, "future": 0.85, "popularity": 0.2},
    }
    return FcpoConfig.model_validate({**small_strong.model_dump(), **changes})


@pytest.fixture(scope="module")
def training(parts: Split, config: FcpoConfig) -> Training:
    """Before the first round; not to be trained."""
    return Fcpo(config, seed=1).training(FitTask.from_split(parts))


@pytest.fixture(scope="module")
def stack(parts: Split, config: FcpoConfig) -> Stack:
    return Stack(StackConfig(ridge=config.ridge), seed=1).fit(parts)


def test_the_warm_start_is_the_stack_but_for_one_factor(training: Training, stack: Stack) -> None:
    ensemble = training.ensemble
    assert ensemble is not None
    assert [ranker.method for ranker in ensemble.rankers] == [
        m.method for m in stack.ensemble_.rankers
    ]
    assert len(ensemble.rankers) > 1
    factors = np.array(ensemble.weights) / np.array(stack.ensemble_.weights)
    assert factors == pytest.approx(factors[0], rel=1e-6)
    head = training.actor.body[-1]
    assert head.bias[: len(ensemble.weights)].tolist() == pytest.approx(ensemble.weights)


def test_one_ensemble_learns_on_the_earlier_part_and_one_serves_with_the_whole_log(
    training: Training, stack: Stack, parts: Split
) -> None:
    learning, serving = training.ensemble, training.serving
    assert learning is not None
    assert serving is not None
    inner = earlier_part(parts)
    for early, whole, member in zip(
        learning.rankers, serving.rankers, stack.ensemble_.rankers, strict=True
    ):
        assert early.fingerprint_ == inner.train.fingerprint()
        assert whole.fingerprint_ == parts.train.fingerprint()
        assert early.config == whole.config == member.config
        for name, value in member.tensors().items():
            assert torch.equal(whole.tensors()[name], value)
    assert learning.ndcg == serving.ndcg
    assert len(learning.ndcg) == len(learning.rankers)
    assert learning.summary == serving.summary
    assert len(serving.summary) == 3


class StopAfter(Listener):
    """Ends a training after a round."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.stages: list[str] = []

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        self.stages.append(text)

    def round(self, report: RoundReport) -> None:
        self.stop = report.round == self.last


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])
def test_a_training_that_was_interrupted_leads_to_the_same_model(
    stop: int, parts: Split, config: FcpoConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FEWEST_USERS", 10)
    without = Fcpo(config, seed=1).fit(parts)
    assert without.policy_.ensemble is not None
    listener = StopAfter(stop)
    half = Fcpo(config, seed=1).fit(parts, checkpoint=tmp_path, listener=listener)
    assert (half.finished_, len(half.history_)) == (False, stop)
    assert half.policy_.ensemble is not None
    assert listener.stages[-3:] == list(half.policy_.ensemble.summary)
    again = Fcpo(config, seed=1).fit(parts, checkpoint=tmp_path, resume=True)
    assert again.finished_
    for model, name in ((without, "without"), (again, "again")):
        model.save(tmp_path / name)
    (tensors, card), (others, other_card) = (
        load_model(tmp_path / name, "fcpo") for name in ("without", "again")
    )
    assert card == other_card
    assert tensors.keys() == others.keys()
    for name, value in tensors.items():
        assert torch.equal(value, others[name]), name


def test_only_rankers_without_questions_and_given_settings_are_fitted_beforehand(
    parts: Split,
) -> None:
    def names(preset: str = "fast", **changes: object) -> list[str]:
        needs = Fcpo(FcpoConfig.preset(preset, **changes)).prerequisites(parts)
        assert {need.part for need in needs} == {LogPart.WHOLE, LogPart.EARLIER}
        early = [need.method for need in needs if need.part is LogPart.EARLIER]
        assert needs == tuple(Prerequisite(name, part) for name in early for part in LogPart)
        return early

    assert names() == ["popularity"]
    assert names("strong") == ["gru4rec", "popularity"]
    assert names("strong", gru4rec={"dim": 8}) == ["popularity"]
    assert names(warm_start=("ease:recent", "bpr")) == ["bpr"]
    assert names(adapt=False) == list(RANKERS)
    assert names(adapt=False, ease={"l2": 5.0}) == ["ridge", "itemknn:recent", "popularity"]
