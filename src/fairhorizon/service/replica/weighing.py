"""What a like of those who ask is worth: where they stood at the end of the record, and since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairhorizon.fcpo.retention.replay import FittedRetention
from fairhorizon.fcpo.retention.state import ResponseHistory, see_many
from fairhorizon.service.store.shown import MOST_SHOWN


@dataclass(frozen=True)
class UsersSoFar:
    """What the database knows of those who ask, by id.

    events: what they took or refused, oldest first.
    shown: their newest lists, oldest first; empty where nobody looks at them.
    """

    events: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    shown: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def answers(self, user: str, since: float, negative: Sequence[str]) -> list[bool]:
        """Whether each of the newest showings to a user was liked, oldest first.

        A like is feedback that names the list, and is neither `read` nor negative.
        """
        liked = {
            (row.list_id, row.item_id)
            for row in self.events.get(user, ())
            if row.list_id is not None and row.type not in negative
        }
        found = [
            (row.id, item) in liked
            for row in self.shown.get(user, ())
            if row.served_at > since
            for item in row.items
        ]
        return found[-MOST_SHOWN:]


def standing_now(
    outlook: FittedRetention, users: Sequence[str | None], taken: Tensor, answers: list[list[bool]]
) -> ResponseHistory:
    """The standing of users after answers (b, ...) that came after the record.

    users: ids; None: somebody who asked to be forgotten.
    """
    standing = outlook.standing_of(users, taken)
    width = max(map(len, answers), default=0)
    if width:
        shown = torch.tensor([len(own) for own in answers])[:, None] > torch.arange(width)
        liked = torch.tensor([own + [False] * (width - len(own)) for own in answers])
        see_many(standing, shown, liked)
    return standing
