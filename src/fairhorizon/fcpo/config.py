"""The settings of FCPO. The defaults are the preset `fast`; `paper` is the paper's own."""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fairhorizon.rankers.als import AlsConfig
from fairhorizon.rankers.ensemble import MemberSettings
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.ranking import discount
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.vocabulary import Protocol

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class RetentionConfig(Settings):
    """How FCPO learns what a like is worth in a state (value=long)."""

    rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds of CPO after every recorded run, and at every update online; 0: a like is worth the
    same in every state."""
    hidden: tuple[Positive, Positive] = (16, 16)
    """Widths of the two hidden layers of the actor."""
    critic_iterations: Annotated[int, Field(ge=2)] = 60
    """Iterations of L-BFGS that fit a critic to what came, and half as many for what it expects."""
    leap: bool = False
    """Whether the actor is fitted to what critics say of a like before the rounds of CPO, where
    those of other users confirm that it is better."""
    pretraining_runs: Annotated[int, Field(ge=0)] = 4
    """Recorded runs among simulated users that it learns from before its own."""
    presence: Annotated[float, Field(ge=0)] = 0.3
    """What it is worth that a user is still there to be shown something, in likes per step; 0:
    likes alone count."""
    online: bool = True
    """Whether it goes on learning while it serves."""


class FcpoConfig(MemberSettings):
    """Settings of FCPO."""

    # ---- The constraint
    alpha_prime: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of sensitive items in what is shown (alpha'); 1: no limit."""
    popular_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the catalogue, by training count, that is the popular group (G0)."""
    training_limit: Annotated[float | None, Field(gt=0, le=1)] = 0.5
    """Limit in training of a policy with a warm start (it serves any limit); None: alpha_prime."""
    spread: Annotated[float | None, Field(gt=0, le=1)] = 0.99
    """Gini index that served lists aim at, relative to the most even accurate ranker of the warm
    start at the same limit; None: none."""
    spread_cost: Share = 0.005
    """Share of NDCG that `spread` may cost on a later part of the training log; where it costs more
    it goes only part of the way. 1: whatever it costs."""

    # ---- The CMDP
    list_length: Positive = 1
    """Items of a list in training (K)."""
    attention: Literal["even", "log"] = "even"
    """Weight of the k-th place of a list in reward and cost: 1 (even) or 1 / log2(k + 1) (log)."""
    horizon: Positive = 10
    """Steps of a training episode (T)."""
    history: Positive = 50
    """Number of a user's most recent items in the state (N)."""
    gamma_r: Annotated[Share, Search(0.5, 0.99)] = 0.95
    """Discount of the reward per step."""
    gamma_c: Share = 1.0
    """Discount of the cost per step."""
    starts: Annotated[
        Literal["first", "anywhere", "unseen"],
        Choice(("first", "anywhere", "unseen")),
    ] = "unseen"
    """Where training episodes begin in a user's log: after the first items, anywhere, or at the
    later part, which the rankers of the warm start have not seen (unseen)."""
    protocol: Protocol = Protocol.STANDARD
    """Which items training and validation may show; "paper" includes the history."""

    # ---- The policy
    policy: Literal["gaussian", "softmax"] = "softmax"
    """What is sampled: the weights of the score, whose best item is shown (gaussian), or the item
    itself (softmax)."""
    temperature: Annotated[float, Field(gt=0), Search(0.1, 2, log=True)] = 0.5
    """Temperature of the softmax policy in training; smaller is greedier. Serving does not use it:
    no temperature changes the order of the logits, and noise has the temperature `explore`."""
    explore: Annotated[float, Field(ge=0)] = 0.0
    """Temperature of the Gumbel noise that a softmax policy adds to its logits in the long run
    (not elsewhere), before the allocation; 0: none. `propensities` has the chance of every item."""
    serve: Literal["sample", "mean"] = "sample"
    """What a Gaussian policy makes lists by: W sampled anew for every place, or their mean. What it
    learned to keep a limit with is the sample; while it learns in a long run, it samples."""
    control: bool = True
    """Whether the long run keeps limits at every step by prices on the items; if not, a limit is
    kept by learning alone, as in the paper."""
    value: Literal["score", "long"] = "score"
    """What the long run makes as much of as it can: the policy's scores, or the likes that a user
    will give now and, discounted by gamma_r, later (long): for users who can leave."""
    looking_ahead: RetentionConfig = RetentionConfig()
    """How value=long learns what a like is worth."""
    warm_start: tuple[str, ...] = ("ridge", "ease:recent", "itemknn:recent", "popularity")
    """Rankers whose scores the actor weighs instead of item vectors; empty: start from PMF."""
    adapt: bool = True
    """Whether the rankers' settings are chosen by the lists they give on a later part of the log,
    as their weights are; if not, settings are the defaults, and rounds are always run."""
    candidates: Positive = 40
    """Best items of each ranker and group that a softmax policy chooses from."""
    retrieval: Literal["auto", "exact", "faiss"] = "auto"
    """How the best items of a ranker are found: by the scores of all items (exact), by FAISS where
    scores are products of vectors, or by FAISS above 50,000 items where it is installed (auto)."""

    # ---- The networks
    embeddings: Literal["pmf", "als"] = "pmf"
    """What gives the vectors of users and items without a warm start: PMF, as in the paper, or ALS
    on what users took."""
    pmf: MfConfig = MfConfig()
    """Settings of PMF, a matrix factorisation of ratings."""
    als_embeddings: AlsConfig = AlsConfig(dim=32)
    """Settings of ALS."""
    gru_hidden: Positive = 64
    """Width of the GRU that encodes the history, without a warm start."""
    actor_hidden: tuple[Positive, Positive] = (16, 16)
    """Widths of the actor's two hidden layers."""
    critic_hidden: tuple[Positive, Positive] = (16, 16)
    """Widths of the two hidden layers of each critic."""
    initial_std: Annotated[float, Field(gt=0), Search(0.1, 3, log=True)] = 0.05
    """Standard deviation of the actor's weights (W) before training; of a softmax policy, which
    samples none, how much they may differ between states."""

    std_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What every training round multiplies the standard deviation of a Gaussian W by; 1: it changes
    by learning alone."""
    alternatives: Annotated[int, Field(ge=0)] = 0
    """Further W of a Gaussian policy that training draws in every step and whose answers it looks
    up in the log."""

    # ---- One round of Algorithm 1
    rounds: Annotated[int, Field(ge=0)] = 30
    """Largest number of training rounds, each with one policy update (M)."""
    always_train: bool = False
    """Whether rounds are run even where a test on the later part of the training log finds nothing
    for them to learn; for a policy over rankers whose settings were chosen on the log (adapt)."""
    episodes_per_user: Positive = 1
    """Training episodes of a user in a round."""
    users_per_round: Positive = 1024
    """Users with episodes in a round, drawn at random if there are more."""
    minibatch: Positive = 8192
    """Trajectories drawn from the replay buffer for an update."""
    buffer_rounds: Positive = 1
    """Number of most recent rounds that the replay buffer holds; 1: on-policy."""
    gae_lambda: Share = 0.0
    """Lambda of the generalised advantage estimate; 0: one step, 1: the whole return."""

    # ---- The policy update
    kl_limit: Annotated[float, Field(gt=0), Search(0.005, 0.5, log=True)] = 0.02
    """Largest mean KL divergence between the policies before and after an update (delta)."""
    cg_iterations: Positive = 10
    """Iterations of the conjugate gradient method."""
    cg_damping: Annotated[float, Field(ge=0)] = 0.1
    """Multiple of the identity that is added to the Fisher matrix."""
    line_search_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Factor by which the line search shortens a step that it rejects (beta)."""
    line_search_attempts: Positive = 10
    """Number of step lengths that the line search tries before it gives up."""

    # ---- Evaluation and stopping
    evaluate_every: Positive = 2
    """Rounds between two evaluations on the validation items."""
    patience: Positive = 3
    """Evaluations without a better validation NDCG before training stops."""
    cost_tolerance: Annotated[float, Field(ge=0)] = 0.05
    """Excess of a round's cost over the limit d, as a share of d, that still counts as kept."""

    @classmethod
    def preset(cls, name: str, **changes: object) -> "FcpoConfig":
        """The settings of a preset, some of them changed."""
        return cls.model_validate({**PRESETS[name].model_dump(), **changes})

    @model_validator(mode="after")
    def _fits_together(self) -> "FcpoConfig":
        if self.policy == "softmax" and self.buffer_rounds > 1:
            raise ValueError("a softmax policy learns on-policy (set buffer_rounds to 1)")
        if self.alternatives and self.buffer_rounds > 1:
            raise ValueError("alternatives are learned from on-policy (set buffer_rounds to 1)")
        if self.embeddings == "als" and self.buffer_rounds > 1:
            # Its states hold what users had taken when their episode began, in this round.
            raise ValueError("embeddings=als are learned from on-policy (set buffer_rounds to 1)")
        if self.alternatives and self.policy == "softmax":
            raise ValueError("a softmax policy knows all answers of a step (set alternatives to 0)")
        if self.policy == "gaussian" and self.attention != "even":
            raise ValueError("a Gaussian policy counts all slots the same (set attention to even)")
        if self.policy == "gaussian" and self.explore > 0:
            raise ValueError("a Gaussian policy explores by the W it samples (set explore to 0)")
        if self.starts == "unseen" and not self.warm_start:
            raise ValueError("starts=unseen is for a warm start (set starts to first)")
        return self

    @property
    def serves_any_level(self) -> bool:
        """A trained model serves any alpha': the price of the level is found when it serves."""
        return bool(self.warm_start)

    @property
    def refits_rankers(self) -> bool:
        """Rankers are fitted on the earlier part of the log first, and in the end on all of it."""
        return self.starts == "unseen"

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


WITH_GRU4REC = ("gru4rec", "ridge", "ease:recent", "itemknn:recent", "popularity")
PAPER = FcpoConfig(
    training_limit=None,
    spread=None,
    history=5,
    starts="first",
    policy="gaussian",
    warm_start=(),
    adapt=False,
    actor_hidden=(64, 64),
    critic_hidden=(64, 64),
    initial_std=1.0,
    rounds=100,
    always_train=True,
    users_per_round=8192,
    kl_limit=0.05,
    patience=5,
    line_search_ratio=0.5,
    evaluate_every=10,
)
# The paper's design, with what its text leaves open chosen on validation items.
TUNED = FcpoConfig.model_validate(
    PAPER.model_dump()
    | {
        "embeddings": "als",
        "starts": "anywhere",
        "initial_std": 0.3,
        "std_decay": 0.97,
        "alternatives": 24,
        "rounds": 40,
        "users_per_round": 1000,
        "kl_limit": 0.4,
        "line_search_ratio": 0.8,
        "patience": 8,
        "evaluate_every": 5,
    }
)
PRESETS = {
    "fast": FcpoConfig(),
    "strong": FcpoConfig(warm_start=WITH_GRU4REC),
    # what the two are before the first CPO round: whatever they gain by CPO is the difference
    "start": FcpoConfig(rounds=0),
    "strong-start": FcpoConfig(warm_start=WITH_GRU4REC, rounds=0),
    # for users who can leave
    "long": FcpoConfig(value="long", gamma_r=0.99),
    "paper": PAPER,
    "tuned": TUNED,
}
"""Settings of FCPO by name: fast (the default), strong, long, paper, tuned, and two without CPO."""

# settings that make a preset what it is, and that are not changed with those of the others
FIXED = {"start": ("rounds",), "strong-start": ("rounds",)}
