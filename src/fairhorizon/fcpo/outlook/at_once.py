"""Many answers at once: what `AnswersSoFar.see` does place by place, for whoever has no time."""

import torch
from torch import Tensor

from fairhorizon.fcpo.outlook.standing import FADING, LAST, AnswersSoFar


def see_at_once(standing: AnswersSoFar, shown: Tensor, liked: Tensor) -> None:
    """Note answers (b, K) to showings, oldest first; of each user the first so many are shown.

    shown: (b, K) bool, False after the last one of a user.  liked: (b, K) bool.
    """
    n, place = shown.sum(1), torch.arange(shown.shape[1])
    like = (liked & shown).float()
    signs = torch.cat([standing.answers, 2 * like - 1], dim=1)
    standing.answers = signs.gather(1, n[:, None] + torch.arange(LAST))
    keeps = torch.tensor(FADING)
    left = keeps ** (n[:, None] - 1 - place).clamp(min=0)[:, :, None]  # (b, K, FADING)
    standing.faded = standing.faded * keeps ** n[:, None] + (like[:, :, None] * left).sum(1)
    last = (like * (place + 1)).amax(1)  # the place of the last like, from 1
    standing.since = torch.where(last > 0, n - last, standing.since + n)
    standing.stay = standing.stay + n
    standing.likes = standing.likes + like.sum(1)
