"""The settings of FCPO. The defaults are the preset `paper`."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from fairhorizon.environment import Protocol
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.settings import Choice, Search, Settings

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class FcpoConfig(Settings):
    # the constraint
    alpha_prime: Annotated[float, Field(gt=0, le=1)] = 1.0  # largest share of sensitive items shown
    popular_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of the catalogue that is G0

    # the CMDP
    list_length: Positive = 1  # K
    horizon: Positive = 10  # T
    history: Positive = 5  # N, the length of the queue
    gamma_r: Annotated[Share, Search(0.5, 0.99)] = 0.95
    gamma_c: Share = 1.0
    # where in a log training episodes begin
    starts: Annotated[Literal["first", "anywhere"], Choice(("first", "anywhere"))] = "first"
    protocol: Protocol = Protocol.STANDARD  # of training episodes and of validation

    # the networks
    # rankers whose scores the actor weighs, in place of item embeddings; see experts.py
    warm_start: tuple[str, ...] = ()
    pmf: MfConfig = MfConfig()
    gru_hidden: Positive = 64
    gru_layers: Positive = 2
    actor_hidden: tuple[Positive, Positive] = (64, 64)
    critic_hidden: tuple[Positive, Positive] = (64, 64)
    initial_std: Annotated[float, Field(gt=0), Search(0.1, 3, log=True)] = 1.0

    # one round of Algorithm 1
    rounds: Annotated[int, Field(ge=0)] = 100  # M
    episodes_per_user: Positive = 1
    users_per_round: Positive = 8192  # drawn anew every round where there are more
    minibatch: Positive = 8192  # trajectories drawn from the replay buffer
    buffer_rounds: Positive = 1  # 1: on-policy
    gae_lambda: Share = 0.0

    # the policy update
    kl_limit: Annotated[float, Field(gt=0), Search(0.005, 0.5, log=True)] = 0.05  # delta
    cg_iterations: Positive = 10
    cg_damping: Annotated[float, Field(ge=0)] = 0.1
    fisher_states: Positive = 256  # sub-sample of states that Fisher products are taken on
    line_search_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5  # beta
    line_search_attempts: Positive = 10
    critic_iterations: Positive = 10  # of L-BFGS

    # when to look, keep and stop
    evaluate_every: Positive = 10
    patience: Positive = 5  # evaluations without a better validation NDCG
    validation_length: Positive = 20
    cost_tolerance: Annotated[float, Field(ge=0)] = (
        0.05  # a round this little above d keeps the limit
    )
    checkpoint_every: Positive = 10

    @field_validator("warm_start")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - set(RANKERS))
        if unknown:
            raise ValueError(f"there is no ranker {unknown[0]!r} (there are {', '.join(RANKERS)})")
        return names


PRESETS = {
    "paper": FcpoConfig(),
    # No rounds before it serves: the log's feedback is what its rankers were fitted on, and a
    # policy that learns from it trusts them too much. It learns while it serves.
    "strong": FcpoConfig(warm_start=("gru4rec", "ease"), initial_std=0.05, rounds=0),
}
