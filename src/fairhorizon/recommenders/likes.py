"""Values of items by the chance that the user likes them, learned from responses.

    value(u, i) = P(u likes i) (1 + showings to u since the last like)^since_like

Scores of a ranker order the items of one user; probabilities can be compared between users. The
factor is a rule of thumb for users who may leave: it gives scarce showings to those who had
no luck lately.
"""

import torch
from torch import Tensor

from fairhorizon.recommenders.responses import (
    ITEM_FEATURES,
    USER_FEATURES,
    CategoryExposure,
    LikeProbabilities,
    ResponseHistory,
    Shown,
)
from fairhorizon.storage import below


class LikeModel:
    """Learns from recorded runs, and while it serves; it knows no user and no item by name.

    After `begin`, lists of every step are made of what is `valued`, and the responses are told to
    `note`. `learn` may come between any two steps.

    since_like: exponent of the rule of thumb; 0: probabilities alone.
    kinds: (n_items, kinds) the part that each kind has in an item, where they are known.
    """

    kinds: Tensor | None = None

    def __init__(self, since_like: float = 0.0, pretraining_runs: int = 0) -> None:
        self.since_like, self.pretraining_runs = since_like, pretraining_runs
        self.probabilities = LikeProbabilities()
        self.recorded: list[Shown] = []
        self.begin(torch.zeros(0))

    def begin(self, history: Tensor) -> None:
        """A new run, of users who had taken so many items (b,) before."""
        self.responses = ResponseHistory(history.cpu())
        self.exposure = CategoryExposure(self.kinds, len(history))

    def valued(self, scores: Tensor, in_group: Tensor) -> Tensor:
        """(b, n_items) of the next step, by scores of that shape, -inf for what is not open.

        Values are the scores themselves before anything was learned.
        """
        # Kept for `note`: a response is learned from together with the features it was shown under.
        self.scores, self.in_group = scores.cpu(), in_group.cpu().float()
        # A first run among practice users records responses to lists by plain scores.
        if not self.probabilities.is_fitted:
            return scores
        tiring = self.exposure.tiring(self.probabilities.of_fades)
        of_users = self.responses.of_users()
        values = self.probabilities.predict(of_users, self.scores, self.in_group, tiring)
        # The rule of thumb multiplies a whole user, so it moves scarce showings between users and
        # leaves the order of one user's items as it is.
        values = values * (1 + self.responses.since[:, None]) ** self.since_like
        return values.masked_fill(self.scores == -torch.inf, -torch.inf).to(scores)

    def note(self, lists: Tensor, hits: Tensor) -> None:
        """Record the responses to the lists (b, K) that were made of the values."""
        lists, hits = lists.cpu(), hits.cpu()
        shown, at = lists >= 0, lists.clamp(min=0)
        own = [self.scores.gather(1, at), self.in_group[at]]
        of_items = torch.cat([torch.stack(own, dim=2), self.exposure.of_items(at)], dim=2)
        of_users = self.responses.of_users()[:, None].expand(-1, lists.shape[1], -1)
        self.recorded.append(Shown(of_users[shown], of_items[shown], hits[shown]))
        self.responses.see(lists, hits)
        self.exposure.see(lists)

    def learn(self) -> None:
        """The probabilities, from everything recorded so far."""
        everything = self._joined()
        # Without a single like there is no maximum of the likelihood worth having.
        if everything.liked.any():
            self.probabilities.fit(everything)

    def _joined(self) -> Shown:
        # Something to concatenate where nothing was recorded; `torch.cat` of nothing is an error.
        none = Shown(
            torch.zeros(0, USER_FEATURES),
            torch.zeros(0, ITEM_FEATURES),
            torch.zeros(0, dtype=torch.bool),
        )
        parts = [none, *self.recorded]
        columns = ([getattr(part, name) for part in parts] for name in vars(none))
        return Shown(*map(torch.cat, columns))

    def tensors(self) -> dict[str, Tensor]:
        """What was learned, the record, and the responses of the users of the present run."""
        parts = {
            "recorded": vars(self._joined()),
            "responses": self.responses.tensors(),
            "exposure": self.exposure.tensors(),
        }
        named = {f"{part}.{k}": v for part, some in parts.items() for k, v in some.items()}
        return {**named, "probabilities": self.probabilities.weights}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from `tensors` of another one."""
        recorded = {name: value.clone() for name, value in below("recorded.", tensors).items()}
        self.recorded = [Shown(**recorded)]
        self.probabilities.weights = tensors["probabilities"].clone()
        self.begin(torch.zeros(len(tensors["responses.stay"])))
        self.responses.restore(below("responses.", tensors))
        self.exposure.restore(below("exposure.", tensors))
