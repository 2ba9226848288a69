"""Step control over the probabilities of a like in place of scores."""

from typing import Annotated, Any

from pydantic import Field

from fairhorizon.rerank.control import StepControl


class LikesControl(StepControl):
    """Step control over calibrated probabilities of a like, for users who can leave.

    In a long run scores become the chance that the user likes the item, learned from responses, so
    that scarce showings go to those who like them most. There is no policy and no critic.
    """

    method = "likes"

    since_like: Annotated[float, Field(ge=0)] = 0.0
    """Exponent of (1 + showings since the user's last like), a factor of the values; 0: none."""
    pretraining_runs: Annotated[int, Field(ge=0)] = 4
    """Recorded runs among simulated users that probabilities are learned from before the run."""

    def stated(self) -> dict[str, Any]:
        return super().stated() | {
            "since_like": self.since_like,
            "pretraining_runs": self.pretraining_runs,
        }
