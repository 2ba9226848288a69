"""Joint allocation: the lists of all users together have the highest value under the limit."""

from typing import Annotated

from pydantic import Field

from fairhorizon.exposure.kept_by_lists import ListLimits
from fairhorizon.rerank.reranker import JointReranker


class ListAllocation(JointReranker):
    """Joint allocation, as FCPO serves: of all lists within the limit, those of the highest value.

    The value of an item is the chance that the user takes it, a softmax of the ranker's scores,
    calibrated on the validation items. The limit is on all showings together: users who gain the
    most by sensitive items are shown more of them.
    """

    method = "lists"
    in_long_run = False
    kept_in_lists = ListLimits.ONE

    spread: Annotated[float | None, Field(gt=0, le=1)] = 0.99
    """Largest Gini index of the lists, relative to the lists of the ranker's plain scores at the
    same limit; None: no bound."""
    candidates: Annotated[int, Field(ge=1)] = 40
    """Best items of each group from which the lists of a user are made."""
