"""The settings of FCPO. The defaults are the preset `strong`; `paper` is the paper's own."""

from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.ranking import discount
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.vocabulary import Protocol

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class FcpoConfig(Settings):
    # the constraint
    alpha_prime: Annotated[float, Field(gt=0, le=1)] = 1.0  # largest share of sensitive items shown
    popular_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of the catalogue that is G0
    # the limit that a policy which serves any level is trained under; None: alpha_prime
    training_limit: Annotated[float | None, Field(gt=0, le=1)] = 0.5
    # how unequal exposure may be (Gini), as a share of what the most even of the rankers of the
    # warm start makes of it at the same level; None: as unequal as it comes
    spread: Annotated[float | None, Field(gt=0, le=1)] = 0.99

    # the CMDP
    list_length: Positive = 1  # K
    # what a slot of a list counts, for reward and exposure: all the same, or 1 / log2(k + 1)
    attention: Literal["even", "log"] = "even"
    horizon: Positive = 10  # T
    history: Positive = 50  # N, the length of the queue
    gamma_r: Annotated[Share, Search(0.5, 0.99)] = 0.95
    gamma_c: Share = 1.0
    # where in a log training episodes begin; unseen: where the log of the warm start ends
    starts: Annotated[
        Literal["first", "anywhere", "unseen", "seen"],
        Choice(("first", "anywhere", "unseen", "seen")),
    ] = "unseen"
    protocol: Protocol = Protocol.STANDARD  # of training episodes and of validation

    # the policy
    # gaussian: W is sampled and the best item taken; softmax: the item is sampled (softmax.py)
    policy: Literal["gaussian", "softmax"] = "softmax"
    temperature: Annotated[float, Field(gt=0), Search(0.1, 2, log=True)] = 0.5  # of the softmax
    all_actions: bool = True  # exact expectations of immediate rewards and costs (prospects.py)
    group_price: bool = True  # the group of an item is one of its signals
    # rankers whose scores the actor weighs, in place of item embeddings; see experts.py
    warm_start: tuple[str, ...] = ("gru4rec", "ease", "itemknn")
    candidates: Positive = 40  # of each ranker and group, what a softmax policy chooses from

    # the networks
    pmf: MfConfig = MfConfig()
    gru_hidden: Positive = 64
    gru_layers: Positive = 2
    actor_hidden: tuple[Positive, Positive] = (16, 16)
    critic_hidden: tuple[Positive, Positive] = (16, 16)
    initial_std: Annotated[float, Field(gt=0), Search(0.1, 3, log=True)] = 0.05

    # one round of Algorithm 1
    rounds: Annotated[int, Field(ge=0)] = 30  # M
    episodes_per_user: Positive = 1
    users_per_round: Positive = 1024  # drawn anew every round where there are more
    minibatch: Positive = 8192  # trajectories drawn from the replay buffer
    buffer_rounds: Positive = 1  # 1: on-policy
    gae_lambda: Share = 0.0

    # the policy update
    kl_limit: Annotated[float, Field(gt=0), Search(0.005, 0.5, log=True)] = 0.02  # delta
    cg_iterations: Positive = 10
    cg_damping: Annotated[float, Field(ge=0)] = 0.1
    fisher_states: Positive = 256  # sub-sample of states that Fisher products are taken on
    line_search_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.8  # beta
    line_search_attempts: Positive = 10
    critic_iterations: Positive = 10  # of L-BFGS

    # when to look, keep and stop
    check_weights: bool = True  # whether they hold for the refitted rankers: see safety.py
    evaluate_every: Positive = 2
    patience: Positive = 5  # evaluations without a better validation NDCG
    validation_length: Positive = 20
    cost_tolerance: Annotated[float, Field(ge=0)] = (
        0.05  # a round this little above d keeps the limit
    )
    checkpoint_every: Positive = 10

    @classmethod
    def preset(cls, name: str, **changes: object) -> "FcpoConfig":
        """The settings of a preset, some of them changed."""
        return cls.model_validate({**PRESETS[name].model_dump(), **changes})

    @field_validator("warm_start")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - set(RANKERS))
        if unknown:
            raise ValueError(f"there is no ranker {unknown[0]!r} (there are {', '.join(RANKERS)})")
        return names

    @model_validator(mode="after")
    def _fits_together(self) -> "FcpoConfig":
        if self.policy == "softmax" and self.buffer_rounds > 1:
            raise ValueError("a softmax policy learns on-policy (set buffer_rounds to 1)")
        if self.policy == "gaussian" and self.attention != "even":
            raise ValueError("a Gaussian policy counts all slots the same (set attention to even)")
        if self.starts in ("unseen", "seen") and not self.warm_start:
            raise ValueError(f"starts={self.starts} is for a warm start (set starts to first)")
        return self

    @property
    def serves_any_level(self) -> bool:
        """A trained model serves any alpha': the price of the level is found when it serves."""
        return bool(self.warm_start)

    @property
    def limit_in_training(self) -> float:
        """The largest share of sensitive items in training episodes."""
        if self.serves_any_level and self.training_limit is not None:
            return self.training_limit
        return self.alpha_prime


def attention_of(config: FcpoConfig) -> Tensor:
    """(K,) what each slot of a list counts."""
    slots = torch.arange(1, config.list_length + 1)
    return torch.ones(len(slots)) if config.attention == "even" else discount(slots)


PRESETS = {
    "strong": FcpoConfig(),
    "paper": FcpoConfig(
        training_limit=None,
        spread=None,
        history=5,
        starts="first",
        policy="gaussian",
        all_actions=False,
        group_price=False,
        warm_start=(),
        actor_hidden=(64, 64),
        critic_hidden=(64, 64),
        initial_std=1.0,
        rounds=100,
        users_per_round=8192,
        kl_limit=0.05,
        line_search_ratio=0.5,
        evaluate_every=10,
    ),
}
