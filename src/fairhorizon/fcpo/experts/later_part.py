"""The later part of a training log, which rankers have not seen.

A policy that learns from the very interactions its rankers were fitted on trusts them too much.
So the training log is divided once more, as the whole log was: rankers are fitted on the earlier
part, the policy learns from the later part, and then the rankers are fitted on all of it.
"""

import torch
from torch import Tensor

from fairhorizon.data.splits import LATER
from fairhorizon.histories import UserItems


def where_unseen_begins(histories: UserItems) -> Tensor:
    """(n_users,) how many of a user's training items come before the later part.

    The later part is the test items of `earlier_part`. In a log too short for any it is the last
    item, which rankers used for early stopping only.
    """
    counts = histories.indptr.diff()
    later = (counts // LATER).clamp(min=1)
    return torch.where(counts > 1, counts - later, counts)
