"""Groups of items as a matrix, and what showings they have.

members: (n_items, n_groups) the part of each item that belongs to each group. A row adds up to 1,
or to 0 for an item of no group, which counts nowhere.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics.accuracy import EMPTY, check_codes, first_k


def membership(groups: NDArray[Any]) -> csr_array:
    """`members` of groups that share no item, in the order of their codes.

    groups: (n_items,) the group of each item as a whole number, or as True or False.
    """
    _, codes = np.unique(groups, return_inverse=True)
    return csr_array((np.ones(len(codes)), codes, np.arange(len(codes) + 1)))


def shared_membership(values: Sequence[Collection[str]]) -> csr_array:
    """`members` of items that may have several values, each of which has an equal part of them.

    values: (n_items,) the values of each item, as {"Drama", "War"}; groups are sorted by value.
    """
    codes = {name: code for code, name in enumerate(sorted(set().union(*values)))}
    rows = [item for item, own in enumerate(values) for _ in own]
    columns = [codes[name] for own in values for name in own]
    parts = [1 / len(own) for own in values for _ in own]
    return csr_array((parts, (rows, columns)), shape=(len(values), len(codes)))


def exposure_matrix(
    lists: NDArray[np.integer[Any]], weights: NDArray[np.float64], n_items: int
) -> csr_array:
    """(n_users, n_items): the weight of the place at which each user is shown each item.

    lists: (n_users, K) item codes, -1 for an empty place.  weights: (k,) of the first k places.
    """
    shown = first_k(lists, len(weights))
    check_codes(shown, n_items)
    users, places = np.nonzero(shown != EMPTY)
    entries = (weights[places], (users, shown[users, places]))
    return csr_array(entries, shape=(len(lists), n_items))
