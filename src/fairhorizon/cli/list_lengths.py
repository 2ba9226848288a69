"""The option --k: how long lists are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LENGTHS = (5, 10, 20)  # without --k, those that the catalogue can fill
LONGEST = LENGTHS[-1:]

Length = Annotated[
    int | None,
    typer.Option(
        "--k", min=1, help="Length of the lists.", show_default="20, or all items if fewer"
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--k",
        help="Comma-separated list lengths.",
        show_default="5,10,20, without those above the number of items",
    ),
]


def parse_lengths(text: str | None) -> list[int] | None:
    """The lengths typed, in rising order; None if none were."""
    if text is None:
        return None
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise typer.BadParameter(
            f"{text!r} (give whole numbers from 1 on, as in 5,10,20)",
            param_hint="--k",
        )
    return values


def fitting(ks: Sequence[int] | None, n_items: int, default: Sequence[int] = LENGTHS) -> list[int]:
    """The lengths given, refused if there are too few items; else the defaults that fit.

    If no default fits, lists have all items.
    """
    if ks is None:
        return [k for k in default if k <= n_items] or [n_items]
    if max(ks) > n_items:
        raise ConfigError(f"--k {max(ks)}: there are only {n_items} items (give at most as many)")
    return list(ks)


def fitting_length(k: int | None, n_items: int, default: Sequence[int] = LONGEST) -> int:
    """The same for lists of one length."""
    return fitting(None if k is None else [k], n_items, default)[0]


def warn_if_shorter(lists: "NDArray[np.int64]", length: int) -> None:
    """Print a note if users have too few items left for a list of this length."""
    sizes = (lists >= 0).sum(1)
    shorter = int((sizes < length).sum())
    if shorter:
        typer.echo(
            f"note: {shorter:,} of {len(lists):,} lists have fewer than {length} items, the "
            f"shortest {sizes.min()}: no more are left to recommend to these users",
            err=True,
        )
