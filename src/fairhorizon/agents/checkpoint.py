"""A training on disk, between two rounds."""

from dataclasses import asdict
from pathlib import Path

import torch

from fairhorizon.agents.config import FcpoConfig
from fairhorizon.agents.experts import Panel
from fairhorizon.agents.rollout import Trajectories
from fairhorizon.agents.training import RoundReport, Tensors, Training
from fairhorizon.data import Split
from fairhorizon.errors import ModelError
from fairhorizon.storage import load_model, save_model

KIND = "fcpo-checkpoint"


def save_training(training: Training, path: Path) -> None:
    """Write a checkpoint from which `resume_training` goes on bit for bit."""
    tensors = {
        **{f"actor.{name}": value for name, value in training.actor.state_dict().items()},
        **{
            f"critics.{name}": value
            for name, value in training.learner.critics.state_dict().items()
        },
        **{f"best.{name}": value for name, value in training.best.items()},
        "sensitive": training.sensitive,
        "generator": training.generator.get_state(),
    }
    for position, trajectories in enumerate(training.learner.buffer.rounds):
        if position or training.config.buffer_rounds > 1:  # on-policy, nothing of it is used again
            tensors |= {f"buffer.{position}.{k}": v for k, v in vars(trajectories).items()}
    description = {
        "config": training.config.model_dump(mode="json"),
        "seed": training.seed,
        "fingerprint": training.fingerprint,
        "pretraining_rmse": training.pretraining_rmse,
        "reports": [asdict(report) for report in training.reports],
        "best_validation": training.best_validation,
        "evaluations_since_best": training.evaluations_since_best,
        "panel": None if training.panel is None else training.panel.description(),
    }
    if training.panel is not None:
        tensors |= training.panel.tensors()
    save_model(path, KIND, tensors, description)


def resume_training(path: Path, split: Split, device: torch.device) -> Training:
    """The training that `save_training` wrote; refused on other data."""
    tensors, description = load_model(path, KIND)
    if description["fingerprint"] != split.train.fingerprint():
        raise ModelError(f"{path}: was trained on other data (resume with the same --data)")
    vectors = (
        tensors["actor.encoder.user_vectors"],
        tensors["actor.encoder.item_vectors"][:-1],
    )
    stored = description["panel"]
    training = Training(
        split,
        FcpoConfig.model_validate(description["config"]),
        vectors=vectors,
        sensitive=tensors["sensitive"].to(device),
        seed=description["seed"],
        pretraining_rmse=description["pretraining_rmse"],
        panel=None if stored is None else Panel.from_parts(tensors, stored),
    )
    training.actor.load_state_dict(_below(tensors, "actor."))
    training.learner.critics.load_state_dict(_below(tensors, "critics."))
    training.best = {k: v.to(device) for k, v in _below(tensors, "best.").items()}
    training.generator.set_state(tensors["generator"])
    for position in range(training.config.buffer_rounds):
        if stored := _below(tensors, f"buffer.{position}."):
            training.learner.buffer.add(
                Trajectories(**{k: v.to(device) for k, v in stored.items()})
            )
    training.reports = [RoundReport(**report) for report in description["reports"]]
    training.best_validation = description["best_validation"]
    training.evaluations_since_best = description["evaluations_since_best"]
    return training


def _below(tensors: Tensors, prefix: str) -> Tensors:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
