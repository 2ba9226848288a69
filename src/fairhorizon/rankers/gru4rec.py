"""GRU4Rec (Hidasi et al. 2016): a recurrent network guesses the next item."""

from torch import Tensor, nn

from fairhorizon.data.splits import Split
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.sequences import (
    SequenceConfig,
    SequenceNetwork,
    WindowDropout,
    next_item_scores,
    train_network,
)
from fairhorizon.vocabulary import OnEpoch


class Gru4RecConfig(SequenceConfig):
    """What all next-item models have; the defaults were chosen for this one."""


class GruNetwork(SequenceNetwork):
    """h_t = GRU(h_{t-1}, v_t) from h_0 = 0."""

    def __init__(self, n_items: int, config: Gru4RecConfig) -> None:
        super().__init__(n_items, config.dim)
        self.gru = nn.GRU(config.dim, config.dim, batch_first=True)
        self.dropout = WindowDropout(config.dropout)

    def states(self, sequences: Tensor) -> Tensor:
        outputs, _ = self.gru(self.dropout(self.embedded(sequences)))
        dropped: Tensor = self.dropout(outputs)
        return dropped


class Gru4Rec(Ranker[Gru4RecConfig]):
    """Trained with the softmax over the catalogue at every step, sampled only if it is large."""

    method = "gru4rec"
    config_class = Gru4RecConfig

    network_: GruNetwork

    @property
    def queue_length(self) -> int:
        return self.config.history

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        self.network_ = train_network(
            lambda: GruNetwork(split.train.n_items, self.config),
            self.config,
            split,
            seed=self.seed,
            on_epoch=on_epoch,
        )

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue says it
        return next_item_scores(self.network_, queue, self.config.history)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        network = GruNetwork(len(tensors["items"]), self.config)
        network.load_state_dict(tensors)
        self.network_ = network.eval()
