"""The settings of a policy that looks ahead, among users who can leave."""

from typing import Annotated

from pydantic import Field

from fairhorizon.settings import Settings

Positive = Annotated[int, Field(ge=1)]


class LookingAhead(Settings):
    """How FCPO learns what a like is worth in a state (value=long)."""

    rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds of CPO after every recorded run, and at every update online; 0: a like is worth the
    same in every state."""
    temperature: Annotated[float, Field(gt=0)] = 0.03
    """Temperature of the policy that CPO improves, in likes; serving does not use it."""
    kl_limit: Annotated[float, Field(gt=0)] = 0.05
    """Largest mean KL divergence between the policies before and after a round (delta)."""
    hidden: tuple[Positive, Positive] = (16, 16)
    """Widths of the two hidden layers of the actor."""
    critic_hidden: tuple[Positive, Positive] = (12, 12)
    """Widths of the two hidden layers of each critic."""
    critic_iterations: Annotated[int, Field(ge=2)] = 60
    """Iterations of L-BFGS that fit a critic to what came, and half as many for what it expects."""
    leap: bool = False
    """Whether the actor is fitted to what critics say of a like before the rounds of CPO, where
    those of other users confirm that it is better."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Part of what was observed, against what the critics expect, in what a step is learned from;
    1: likes as they came until the user left or the record ended."""
    latest_runs: Positive = 2
    """Recorded runs that rounds of CPO learn from, the latest ones; critics learn from all."""
    rehearsal_patience: Annotated[float | None, Field(ge=2)] = None
    """Patience of the users of rehearsals, where a policy is to be trained in another world than
    the one it serves in; None: that of the users it serves."""
    presence: Annotated[float, Field(ge=0)] = 0.3
    """What it is worth that a user is still there to be shown something, in likes per step; 0:
    likes alone count."""
    online: bool = True
    """Whether it goes on learning while it serves."""
