"""The state s_t = [e_u; GRU(H_t)] over fixed, pretrained embeddings (equation 12)."""

import torch
from torch import Tensor, nn


class StateEncoder(nn.Module):
    """Encodes (user, queue) pairs; the embeddings are given as arrays and never trained."""

    user_vectors: Tensor  # (n_users, d)
    item_vectors: Tensor  # (n_items + 1, d); the last row, zeros, stands for "no item"

    def __init__(
        self, user_vectors: Tensor, item_vectors: Tensor, hidden: int, layers: int
    ) -> None:
        super().__init__()
        dim = item_vectors.shape[1]
        padding = item_vectors.new_zeros(1, dim)
        self.register_buffer("user_vectors", user_vectors.contiguous())
        self.register_buffer("item_vectors", torch.cat([item_vectors, padding]))
        self.gru = nn.GRU(dim, hidden, layers, batch_first=True)
        self.output_size = user_vectors.shape[1] + hidden

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, d + hidden) states of m users with queues (m, N)."""
        inputs = self._first_inputs(queues)
        outputs = self._layer(inputs, 0)
        for layer in range(1, self.gru.num_layers):
            weight, bias = self._weights("ih", layer)
            inputs = list(torch.stack(outputs) @ weight.T + bias)
            outputs = self._layer(inputs, layer)
        return torch.cat([self.user_vectors[users], outputs[-1]], dim=1)

    def _first_inputs(self, queues: Tensor) -> list[Tensor]:
        """N tensors (m, 3 hidden): what each position gives to the gates of the first layer."""
        weight, bias = self._weights("ih", 0)
        if queues.numel() < len(self.item_vectors):
            return list(self.item_vectors[queues.T] @ weight.T + bias)
        # It depends on the item alone: project the catalogue once and look up, instead of
        # projecting every position of every queue.
        table = torch.addmm(bias, self.item_vectors, weight.T)  # (n_items + 1, 3 hidden)
        return list(nn.functional.embedding(queues.T, table))

    def _layer(self, inputs: list[Tensor], layer: int) -> list[Tensor]:
        """One GRU layer over the projected inputs of every position, as in torch.nn.GRU."""
        weight, bias = self._weights("hh", layer)
        state = inputs[0].new_zeros(len(inputs[0]), self.gru.hidden_size)
        outputs = []
        for projected in inputs:
            in_reset, in_update, in_new = projected.chunk(3, dim=1)
            reset, update, new = torch.addmm(bias, state, weight.T).chunk(3, dim=1)
            reset = torch.sigmoid(in_reset + reset)
            update = torch.sigmoid(in_update + update)
            new = torch.tanh(in_new + reset * new)
            state = new + update * (state - new)
            outputs.append(state)
        return outputs

    def _weights(self, kind: str, layer: int) -> tuple[Tensor, Tensor]:
        weight: Tensor = getattr(self.gru, f"weight_{kind}_l{layer}")
        bias: Tensor = getattr(self.gru, f"bias_{kind}_l{layer}")
        return weight, bias
