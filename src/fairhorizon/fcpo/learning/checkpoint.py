"""A training on disk, between two rounds."""

from pathlib import Path

import torch

from fairhorizon.data.splits import Split
from fairhorizon.errors import ModelError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.learning.training import Training, TrainingState
from fairhorizon.fcpo.warm_start import restored_panel
from fairhorizon.recommenders.progress import RoundReport
from fairhorizon.storage import below, load_model, save_model, understood

KIND = "fcpo-checkpoint"


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
        panel=None if stored is None else restored_panel(tensors, stored),
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
