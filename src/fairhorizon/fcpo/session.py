"""The life of a training: begin or resume, train round by round, conclude.

Checkpoints, interruption, the refit of the rankers and progress are handled here, once for all
callers.
"""

import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.networks import numbers_of_items, numbers_of_users
from fairhorizon.fcpo.training import Trained, Training, TrainingState
from fairhorizon.fcpo.warm_start import WarmStart, fit_warm_start, of_part, restored_ensemble
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.mf import Mf
from fairhorizon.recommenders.base import NOTHING_FITTED, Fitted, LogPart
from fairhorizon.recommenders.progress import SILENT, Listener, RoundReport
from fairhorizon.storage import below, load_model, save_model, understood

# ---- Checkpoints: a training on disk, between two rounds -----------------------------------------
KIND = "fcpo-checkpoint"
CHECKPOINT_EVERY = 10  # rounds


def save_training(training: Training, path: Path) -> None:
    """Write a checkpoint; `load_training` continues from it bit for bit."""
    state = training.state()
    parts = {
        "actor": training.actor.state_dict(),  # with what is never trained: the embeddings
        "critics": state.critics,
        "best": state.best,
        "buffer": training.learner.buffer.tensors(),
    }
    tensors = {
        f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()
    }
    tensors |= {"sensitive": training.sensitive, "generator": state.generator}
    description = {
        "config": training.config.model_dump(mode="json"),
        "seed": training.seed,
        "fingerprint": training.fingerprint,
        "pretraining_rmse": training.pretraining_rmse,
        "reports": [report.stored() | {"seconds": report.seconds} for report in state.reports],
        "best_validation": state.best_validation,
        "evaluations_since_best": state.evaluations_since_best,
        "panel": None if training.panel is None else training.panel.description(),
    }
    if training.panel is not None:
        tensors |= training.panel.tensors()
    save_model(path, KIND, tensors, description)


def load_training(path: Path, split: Split, device: torch.device) -> Training:
    """The training that `save_training` wrote; refused on other data."""
    if not path.exists():
        raise ModelError(f"{path}: there is no checkpoint (leave out --resume to start again)")
    with understood(path):
        return _restored(path, split, device)


def begun_with(path: Path) -> tuple[FcpoConfig, int]:
    """The settings and the seed of the training that a checkpoint holds."""
    if not path.exists():
        raise ModelError(f"{path}: there is no checkpoint (leave out --resume to start again)")
    with understood(path):
        _, description = load_model(path, KIND)
        return FcpoConfig.from_file(description["config"]), int(description["seed"])


def _restored(path: Path, split: Split, device: torch.device) -> Training:
    tensors, description = load_model(path, KIND)
    if description["fingerprint"] != split.train.fingerprint():
        raise ModelError(
            f"{path}: was trained on other data (resume with the same --data and split)"
        )
    vectors = (
        tensors["actor.encoder.user_vectors"],
        tensors["actor.encoder.item_vectors"][:-1],
    )
    stored = description["panel"]
    training = Training(
        split,
        FcpoConfig.from_file(description["config"]),
        vectors=vectors,
        sensitive=tensors["sensitive"].to(device),
        seed=description["seed"],
        pretraining_rmse=description["pretraining_rmse"],
        panel=None if stored is None else restored_ensemble(tensors, stored),
    )
    actor = training.actor
    actor.load_state_dict(below("actor.", tensors))
    training.restore(
        TrainingState(
            dict(actor.named_parameters()),
            below("critics.", tensors),
            below("best.", tensors),
            tensors["generator"],
            [RoundReport(**report) for report in description["reports"]],
            description["best_validation"],
            description["evaluations_since_best"],
        )
    )
    training.learner.buffer.restore(below("buffer.", tensors), device)
    return training


# ---- From the first round to the last ------------------------------------------------------------
@dataclass(frozen=True)
class Problem:
    """What a policy is trained for."""

    split: Split
    config: FcpoConfig
    sensitive: Tensor  # (n_items,) bool, on the device to train on
    seed: int


class Session:
    """One training from its beginning to its end, in one sitting or several."""

    def __init__(
        self,
        training: Training,
        *,
        fitted: Fitted = NOTHING_FITTED,
        listener: Listener = SILENT,
        checkpoint: Path | None = None,
    ) -> None:
        self.training, self.fitted, self.listener = training, fitted, listener
        self.checkpoint = checkpoint  # the file; None: nothing is kept
        # The rankers of the whole log, where they are fitted already.
        self.serving: Ensemble | None = None
        self.stopped = False

    @classmethod
    def begin(
        cls,
        problem: Problem,
        *,
        fitted: Fitted = NOTHING_FITTED,
        listener: Listener = SILENT,
        checkpoint: Path | None = None,
    ) -> "Session":
        """A training before its first round, from rankers or else from pretrained embeddings."""
        _check(problem)
        split, config = problem.split, problem.config
        if not config.warm_start:
            training, serving = _from_embeddings(problem, listener), None
        else:
            panels = fit_warm_start(split, config, problem.seed, fitted, listener)
            training, serving = _from_rankers(problem, panels), panels.serving
        session = cls(training, fitted=fitted, listener=listener, checkpoint=checkpoint)
        session.serving = serving
        return session

    @classmethod
    def resume(
        cls,
        problem: Problem,
        checkpoint: Path,
        *,
        fitted: Fitted = NOTHING_FITTED,
        listener: Listener = SILENT,
    ) -> "Session":
        """The training of a checkpoint; only how long to train may differ from what it began as."""
        training = load_training(checkpoint, problem.split, problem.sensitive.device)
        training.extend(problem.config)
        if problem.seed != training.seed:
            raise ConfigError(
                f"--seed {problem.seed}: the checkpoint has seed {training.seed} (leave it out)"
            )
        if not torch.equal(training.sensitive, problem.sensitive):
            raise ConfigError(
                f"{checkpoint}: was trained with other groups (give the same --group-column, "
                "--sensitive, --item-table and --set popular_share)"
            )
        return cls(training, fitted=fitted, listener=listener, checkpoint=checkpoint)

    def run(self) -> Trained:
        """Train to the end, or until Ctrl-C where there is a checkpoint to resume from."""
        with (
            _patient_interrupt(self.checkpoint is not None) as interrupt,
            closing(self.rounds()) as rounds,
        ):
            for report in rounds:
                if interrupt.pressed or self.listener.stop:
                    self.stopped = True
                    break
                if report.round % CHECKPOINT_EVERY == 0:
                    self._save()
        self._save()
        return self.conclude()

    def rounds(self) -> Generator[RoundReport]:
        """The rounds that are left, one at a time; none where they could add nothing."""
        if why := self.training.look_for_gain():
            self.listener.stage(f"no rounds of CPO: {why} (always_train runs them anyway)")
        for report in self.training.rounds():
            self.listener.round(report)
            yield report

    def conclude(self) -> Trained:
        """The result so far; a training that is finished ends with rankers fitted on the whole log.

        A training that was stopped keeps the rankers that it was trained with.
        """
        training = self.training
        if not training.finished:
            return Trained(training, training.panel, finished=False)
        if not training.config.refits_rankers:
            return Trained(training, training.panel, finished=True)
        if self.stopped:
            return Trained(training, training.panel, finished=False)
        try:
            return Trained(training, self._refitted(), finished=True)
        except KeyboardInterrupt:
            if self.checkpoint is None:
                raise
            return Trained(training, training.panel, finished=False)

    def _refitted(self) -> Ensemble | None:
        panel, split = self.training.panel, self.training.split
        if panel is None:
            return None
        if self.serving is not None:
            return self.serving.weighed(panel.weights)
        names = [ranker.method for ranker in panel.rankers]
        self.listener.stage(f"{split.name}: fitting {', '.join(names)} on the whole training log")
        return panel.refitted(split, of_part(self.fitted, LogPart.WHOLE), self.listener.epoch)

    def _save(self) -> None:
        if self.checkpoint is not None:
            save_training(self.training, self.checkpoint)


def _check(problem: Problem) -> None:
    """Refuse a log that is too small for training episodes."""
    split, config = problem.split, problem.config
    if config.list_length * config.horizon > split.train.n_items:
        raise ConfigError(
            f"{config.horizon} lists of {config.list_length} need more than the "
            f"{split.train.n_items} items there are (set a smaller horizon or list_length)"
        )


def _from_embeddings(problem: Problem, listener: Listener) -> Training:
    """As in the paper: random weights over the embeddings of a factorisation."""
    split, config = problem.split, problem.config
    listener.stage(f"{split.name}: pretraining the embeddings", metric="RMSE")
    pmf = Mf(config.pmf, seed=problem.seed).fit(split, on_epoch=listener.epoch)
    listener.stage(f"PMF validation RMSE {pmf.validation_rmse_:.4f}")
    return Training(
        split,
        config,
        vectors=(pmf.user_vectors_, pmf.item_vectors_),
        sensitive=problem.sensitive,
        seed=problem.seed,
        pretraining_rmse=pmf.validation_rmse_,
    )


def _from_rankers(problem: Problem, panels: WarmStart) -> Training:
    """A warm start from rankers."""
    split = problem.split
    taken = torch.from_numpy(split.train.item_counts())
    histories = torch.from_numpy(split.train.user_counts())
    training = Training(
        split,
        problem.config,
        vectors=(numbers_of_users(histories), numbers_of_items(taken, problem.sensitive)),
        sensitive=problem.sensitive,
        seed=problem.seed,
        pretraining_rmse=None,
        panel=panels.learning,
    )
    training.weigh_rankers()
    return training


class _Interrupt:
    """Whether Ctrl-C has been pressed."""

    pressed = False


@contextmanager
def _patient_interrupt(wanted: bool) -> Iterator[_Interrupt]:
    """The first Ctrl-C only asks to stop after the present round; a second one stops at once."""
    asked = _Interrupt()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.pressed = True
        # Not print, which may be in the middle of a line of its own when the signal comes.
        os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)
