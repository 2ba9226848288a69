"""The network of GRU4Rec, by hand."""

import pytest
import torch

from fairhorizon.rankers.gru4rec import Gru4RecConfig, GruNetwork


@pytest.mark.slow
def test_the_state_is_that_of_the_recurrence():
    torch.manual_seed(0)
    network = GruNetwork(5, Gru4RecConfig(dim=3)).eval()
    w_in, w_state = network.gru.weight_ih_l0, network.gru.weight_hh_l0
    b_in, b_state = network.gru.bias_ih_l0, network.gru.bias_hh_l0
    state = torch.zeros(3)
    for item, reached in zip((4, 0, 2), network.states(torch.tensor([[4, 0, 2]]))[0], strict=True):
        gate_in = (w_in @ network.items[item] + b_in).split(3)
        gate_state = (w_state @ state + b_state).split(3)
        reset = torch.sigmoid(gate_in[0] + gate_state[0])
        update = torch.sigmoid(gate_in[1] + gate_state[1])
        new = torch.tanh(gate_in[2] + reset * gate_state[2])
        state = (1 - update) * new + update * state
        torch.testing.assert_close(reached, state)
