"""Small data that many tests share."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from fairhorizon.allocation import spreading
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.report import charts

# In the background of a script Python is deaf to Ctrl-C, and so is every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Small tensors are slower on several threads, and sums depend on how they are cut.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # in processes that tests start

# Pictures are drawn as always, but coarse: most tests only see that they are there.
charts.SHARPNESS = 0.5

# Lists are spread over the catalogue as always, but in few steps: that takes most of the time on
# small markets. Tests of how well it is done ask for all of them (`all_steps_of_spreading`).
ALL_STEPS = {name: getattr(spreading, name) for name in ("PARTS", "TRIALS")}
spreading.PARTS, spreading.TRIALS = 8, 3

# No test may fail because the machine is busy.
# The same examples in every run: what fails here fails everywhere.
settings.register_profile("patient", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("patient")


@pytest.fixture(scope="module")
def all_steps_of_spreading() -> Iterator[None]:
    """Lists are spread as a user's are; for a whole module, and what it fits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ALL_STEPS.items():
            patch.setattr(spreading, name, value)
        yield


@pytest.fixture(scope="session")
def market() -> Split:
    """60 users, 80 items, 20 interactions a user."""
    return split(synthetic(60, 80, 20, seed=3).interactions)


@pytest.fixture(scope="session")
def small() -> FcpoConfig:
    """FCPO in miniature."""
    return FcpoConfig.preset(
        "paper",
        pmf=MfConfig(dim=8, max_epochs=3),
        gru_hidden=8,
        actor_hidden=(8, 8),
        critic_hidden=(8, 8),
        rounds=6,
        horizon=5,
        history=3,
        evaluate_every=2,
    )


@pytest.fixture(scope="session")
def small_strong() -> FcpoConfig:
    """The preset `strong` in miniature, over rankers with their default settings."""
    return FcpoConfig.preset(
        "strong",
        warm_start=("ease:recent", "popularity"),
        adapt=False,
        patience=5,
        candidates=12,
        actor_hidden=(8, 8),
        critic_hidden=(8, 8),
        rounds=4,
        horizon=5,
        history=10,
        evaluate_every=2,
    )


@pytest.fixture(scope="session")
def strong_model(market: Split, small_strong: FcpoConfig) -> Fcpo:
    """A policy over items for the market, to be served from and not to be changed."""
    return Fcpo(small_strong, seed=1).fit(market)
