"""Models in memory: loaded once, or when one is about to be promoted."""

import gc
import threading
from pathlib import Path

import torch

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.model.model import Model, open_model
from fairhorizon.model.requests import RepeatRule, Requests
from fairhorizon.model.serving import ServingState

MOST = 2  # the present one, and the one that comes next or was before

_loaded: dict[str, Model] = {}
_loading = threading.Lock()


def loaded(folder: str) -> Model:
    """The model of a folder; a FairHorizonError says why it cannot be served."""
    with _loading:
        if folder not in _loaded:
            model = open_model(Path(folder))
            check_values(model.state)
            for name in list(_loaded)[: len(_loaded) - MOST + 1]:
                del _loaded[name]
            _loaded[folder] = model
            gc.collect()
            gc.freeze()  # a model stays: requests need not wait until it was looked through
        return _loaded[folder]


def is_loaded(folder: str) -> bool:
    return folder in _loaded


def check_values(state: ServingState) -> None:
    """Refuse a model whose items have no values, by asking for those of one user."""
    person = state.people.find(state.people.ids[0])
    if person is None:
        raise ModelError("the log of the model has no users (fit it again)")
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.people, state.n_items, state.free.queue_length
    )
    try:
        with torch.inference_mode():
            state.free.item_values(scenario, length=1)
    except ConfigError as error:
        raise ModelError(str(error)) from None
