"""GRU4Rec (Hidasi et al. 2016): a recurrent network predicts the next item."""

from torch import Tensor, nn

from fairhorizon.rankers.fused_gru import gru_states
from fairhorizon.rankers.next_item import NextItemRanker
from fairhorizon.rankers.schedule import FALLING
from fairhorizon.rankers.sequences import (
    SequenceConfig,
    SequenceNetwork,
    WindowDropout,
)


class Gru4RecConfig(SequenceConfig):
    """The settings of all next-item models, with defaults for GRU4Rec."""


class GruNetwork(SequenceNetwork):
    """h_t = GRU(h_{t-1}, v_t) from h_0 = 0."""

    def __init__(self, n_items: int, config: Gru4RecConfig) -> None:
        super().__init__(n_items, config.dim)
        self.gru = nn.GRU(config.dim, config.dim, batch_first=True)
        self.dropout = WindowDropout(config.dropout)

    def states(self, sequences: Tensor) -> Tensor:
        inputs = self.dropout(self.embedded(sequences))
        outputs = gru_states(self.gru, inputs) if self.training else self.gru(inputs)[0]
        dropped: Tensor = self.dropout(outputs)
        return dropped


class Gru4Rec(NextItemRanker[Gru4RecConfig]):
    """GRU4Rec (Hidasi et al. 2016): a recurrent network predicts the next item.

    Trained with the softmax at every step, over the catalogue or a sample of it.
    """

    method = "gru4rec"
    config_class = Gru4RecConfig
    recipe = FALLING

    def network(self, n_items: int) -> GruNetwork:
        return GruNetwork(n_items, self.config)
