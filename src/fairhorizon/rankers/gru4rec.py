"""GRU4Rec (Hidasi et al. 2016): a recurrent network predicts the next item.

Its states have gradients by hand: short windows of small states cost mostly the calls of
operations, not their arithmetic. torch's own GRU records about ten of them per position and goes
back through each; here a position takes six forwards and three backwards, and whatever does not
depend on the recurrence is computed for all positions at once.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fairhorizon.rankers.next_item import (
    FALLING,
    NextItemRanker,
    SequenceConfig,
    SequenceNetwork,
    WindowDropout,
)


class GruStates(torch.autograd.Function):
    """All h_t of h_t = (1 - z) n + z h_{t-1}, from h_0 = 0; time is the first dimension.

    r, z = sigmoid(input gates + U h_{t-1} + b), n = tanh(input gate + r (U h_{t-1} + b)), where
    `recurrent` is U for r, z, n on top of each other, as in torch.nn.GRU.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
        """gates: (N, b, 3 dim) from the inputs; result: (N, b, dim)."""
        (length, b, _), dim = gates.shape, recurrent.shape[1]
        states = gates.new_zeros(length + 1, b, dim)
        reset_update = gates.new_empty(length, b, 2 * dim)
        new, from_state = gates.new_empty(2, length, b, dim).unbind()
        r, z = reset_update.split(dim, 2)
        # Contiguous blocks per gate: each operation of the loop then works on one stretch of
        # memory.
        rz_gates, n_gates = (part.contiguous() for part in gates.split([2 * dim, dim], 2))
        rz_bias, n_bias = bias.split([2 * dim, dim])
        rz_gates += rz_bias
        u_rz, u_n = (u.T.contiguous() for u in recurrent.split([2 * dim, dim]))
        each = zip(rz_gates, n_gates, reset_update, r, z, new, from_state, states[1:], strict=True)
        # Only what needs h_{t-1} is in the loop; `out=` writes to tensors that backward needs
        # anyway.
        h = states[0]
        for rz_gate, n_gate, rz_t, r_t, z_t, n_t, own_t, h_t in each:
            torch.addmm(rz_gate, h, u_rz, out=rz_t).sigmoid_()
            torch.addmm(n_bias, h, u_n, out=own_t)
            torch.addcmul(n_gate, r_t, own_t, out=n_t).tanh_()
            # (1 - z) n + z h
            h = torch.lerp(n_t, h, z_t, out=h_t)
        ctx.save_for_backward(states, reset_update, new, from_state, recurrent)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *by_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, reset_update, new, from_state, recurrent = ctx.saved_tensors
        length, b, dim = new.shape
        before, (r, z) = states[:-1], reset_update.split(dim, 2)
        # dh/dn = 1 - z and tanh' = 1 - n^2; sigmoid' = r (1 - r).
        by_new = (1 - z) * (1 - new * new)  # of h_t by the input gate of n, before tanh
        factors = new.new_empty(length, b, 3, dim)  # of h_t by U h_{t-1} + b of r, z, n
        torch.mul(by_new * from_state, r * (1 - r), out=factors[:, :, 0])
        torch.mul(before - new, z * (1 - z), out=factors[:, :, 1])
        torch.mul(by_new, r, out=factors[:, :, 2])
        by_state = by_states[0].contiguous().clone()  # the loss by h_t, through later states too
        by_gates = torch.empty_like(factors)
        each = zip(by_state, z, factors, by_gates, by_gates.view(length, b, 3 * dim), strict=True)
        # From the last position to the first: h_t also acts through all later states.
        steps = list(each)[::-1]
        for (by_h, z_t, factor, by_gate, flat), (earlier, *_) in pairwise(steps):
            torch.mul(by_h[:, None], factor, out=by_gate)
            # dL/dh_{t-1} += dL/dh_t z (the direct path) + the gates' gradients times U.
            earlier.addcmul_(by_h, z_t).addmm_(flat, recurrent)
        # The first position has no earlier one to pass anything to, so `pairwise` leaves it out.
        torch.mul(by_state[0, :, None], factors[0], out=by_gates[0])
        flat = by_gates.view(length * b, 3 * dim)
        by_recurrent, by_bias = flat.T @ before.reshape(length * b, dim), flat.sum(0)
        # By the input gate of n, which r does not multiply; before this it held the part of U h +
        # b.
        torch.mul(by_state, by_new, out=by_gates[:, :, 2])
        return by_gates.view(length, b, 3 * dim), by_recurrent, by_bias


def gru_states(gru: nn.GRU, inputs: Tensor) -> Tensor:
    """What gru(inputs)[0] is for one layer with the batch first, (b, N, dim) each."""
    of_input, recurrent, input_bias, bias = gru.all_weights[0]
    gates = nn.functional.linear(inputs.transpose(0, 1), of_input, input_bias)
    states: Tensor = GruStates.apply(gates, recurrent, bias)  # type: ignore[no-untyped-call]
    return states.transpose(0, 1)


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
        # torch's own kernel is as fast where no gradient is needed.
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
