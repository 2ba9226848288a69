"""A panel is fitted, or restored from a file: the rankers by their names."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fairhorizon.agents.lists.panel import Panel
from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.stack.model import suitable
from fairhorizon.settings import SettingsError
from fairhorizon.storage import below
from fairhorizon.vocabulary import OnEpoch, Protocol


def check_names(names: Sequence[str]) -> None:
    """Refuse a panel with a ranker that does not exist."""
    unknown = sorted(set(names) - set(RANKERS))
    if unknown:
        raise SettingsError(
            f"warm_start: there is no ranker {unknown[0]!r} (there are {', '.join(RANKERS)})"
        )


def fit_panel(
    names: Sequence[str],
    split: Split,
    protocol: Protocol,
    seed: int,
    fitted: Mapping[str, Ranker[Any]],
    on_epoch: OnEpoch | None = None,
) -> Panel:
    """Fit the rankers that are not fitted yet; all weights are equal.

    A ranker that cannot be fitted on this log is left out.
    """
    rankers, refusals = [], []
    for name in suitable(names, split):
        try:
            ranker = fitted.get(name) or _fit(name, split, protocol, seed, on_epoch)
        except DataError as error:
            refusals.append(error)
        else:
            rankers.append(ranker)
    if not rankers:
        raise refusals[0]
    for refusal in refusals:
        warnings.warn(f"without one of its rankers: {refusal}", stacklevel=2)
    return Panel(tuple(rankers), (1.0,) * len(rankers))


def restored_panel(tensors: dict[str, Tensor], description: dict[str, Any]) -> Panel:
    """The panel that was described and stored."""
    rankers = []
    for number, stored in enumerate(description["rankers"]):
        own = below(f"expert.{number}.", tensors)
        rankers.append(RANKERS[stored["method"]].from_parts(own, stored))
    return Panel(tuple(rankers), tuple(description["weights"]))


def _fit(
    name: str, split: Split, protocol: Protocol, seed: int, on_epoch: OnEpoch | None
) -> Ranker[Any]:
    ranker_class = RANKERS[name]
    validates = "protocol" in ranker_class.config_class.model_fields
    config = ranker_class.config_class(**({"protocol": protocol} if validates else {}))
    return ranker_class(config, seed=seed).fit(split, on_epoch=on_epoch)
