"""The settings of LIRD."""

from typing import Annotated, Literal

from pydantic import Field

from fairhorizon.rankers.mf import MfConfig
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import Protocol

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]


class LirdConfig(Settings):
    """Settings of LIRD."""

    # the MDP
    list_length: Positive = 1
    """Items of a list (K)."""
    horizon: Positive = 10
    """Steps of a training episode (T)."""
    history: Positive = 5
    """Number of a user's most recent items in the state (N)."""
    gamma: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Discount of the reward per step."""
    starts: Literal["first", "anywhere"] = "anywhere"
    """Where training episodes begin in a user's log: after the first items, or anywhere."""
    protocol: Protocol = Protocol.STANDARD
    """Which items training and validation may show; "paper" includes the history."""

    # the networks
    pmf: MfConfig = MfConfig(target="interaction", dim=32)
    """Settings of the matrix factorisation whose vectors the state is made of."""
    gru_hidden: Positive = 64
    """Width of the GRU that encodes the history."""
    gru_layers: Positive = 1
    """Number of GRU layers."""
    actor_hidden: Positive = 128
    """Width of the actor's hidden layer."""
    critic_hidden: Positive = 128
    """Width of the critic's hidden layer."""
    temperature: Annotated[Rate, Search(0.1, 10, log=True)] = 1.0
    """Temperature of the softmax over items through which the actor is trained."""

    # one round: an episode of some users, then updates from the replay memory
    rounds: Positive = 30
    """Largest number of training rounds."""
    users_per_round: Positive = 1024
    """Users with an episode in a round, drawn at random if there are more."""
    buffer_rounds: Positive = 20
    """Number of most recent rounds that the replay memory holds."""
    updates: Positive = 200
    """Gradient steps per round."""
    batch: Positive = 256
    """Transitions per gradient step, drawn from the replay memory."""
    actor_rate: Annotated[Rate, Search(0.0001, 0.01, log=True)] = 3e-3
    """Learning rate of the actor."""
    critic_rate: Annotated[Rate, Search(0.0001, 0.01, log=True)] = 3e-3
    """Learning rate of the critic."""
    target_rate: Annotated[float, Field(gt=0, le=1)] = 0.01
    """How far the target networks move towards the trained ones in a gradient step."""
    noise: Annotated[float, Field(ge=0)] = 0.3
    """Standard deviation of the exploration noise, relative to the size of the actor's output."""
    logged: Annotated[Share, Search(0, 1)] = 0.5
    """Share of the training lists that are taken from the log instead of the actor."""

    patience: Positive = 5
    """Rounds without a better validation NDCG before training stops."""
