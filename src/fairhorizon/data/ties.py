"""Ties: rows of one user at one time, whose order in a file carries no meaning.

Where there are many (ratings entered in one sitting, baskets, times in days), they are often sorted
by item or by something else that a ranker could learn, to no use for what comes next.
"""

import warnings
from typing import Literal

import numpy as np

from fairhorizon.data.interactions import EqualTimesWarning, Interactions
from fairhorizon.errors import ConfigError

Ties = Literal["auto", "keep"] | int  # an integer: the seed to shuffle with
MOST_TIED = 0.1  # with a larger share of tied rows, "auto" shuffles
AUTO_SEED = 0


def tied_share(log: Interactions) -> float:
    """The share of rows that have the user and the time of another row; 0 without times."""
    if log.timestamps is None or not len(log):
        return 0.0
    order = np.lexsort((log.timestamps, log.users))
    users, times = log.users[order], log.timestamps[order]
    as_before = np.append(False, (users[1:] == users[:-1]) & (times[1:] == times[:-1]))
    as_next = np.append(as_before[1:], False)
    return float((as_before | as_next).mean())


def shuffled_ties(log: Interactions, seed: int) -> Interactions:
    """The log with the rows of every time in random order; the times stay ascending."""
    if log.timestamps is None:
        return log
    draws = np.random.default_rng(seed).random(len(log))
    return log.take(np.lexsort((draws, log.timestamps)))


def with_ties(log: Interactions, ties: Ties) -> Interactions:
    """The log with its ties in the wanted order; a warning says so if "auto" shuffles them."""
    if ties == "keep":
        return log
    if ties == "auto":
        share = tied_share(log)
        if share <= MOST_TIED:
            return log
        # stack: this function, the split, whoever calls it
        warnings.warn(
            f"{log.name or 'the log'}: {ties_note(share)}", EqualTimesWarning, stacklevel=3
        )
        return shuffled_ties(log, AUTO_SEED)
    if not isinstance(ties, int) or ties < 0:
        raise ConfigError(f"ties must be 'auto', 'keep' or a seed (0, 1, ...), not {ties!r}")
    return shuffled_ties(log, ties)


def ties_note(share: float) -> str:
    """What "auto" does with a log of this tied share, in words."""
    found = f"{100 * share:.1f} % of the rows share user and time with another"
    if share > MOST_TIED:
        return (
            f"{found}: their order is shuffled (seed {AUTO_SEED}); --keep-ties keeps that of the "
            "file"
        )
    return f"{found}: they keep the order of the file; --shuffle-ties SEED shuffles them"
