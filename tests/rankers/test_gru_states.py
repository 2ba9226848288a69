"""The fused GRU against torch's own, and its gradients against differences."""

import pytest
import torch
from torch import Tensor, nn

from fairhorizon.rankers.gru4rec import Gru4RecConfig, GruNetwork, GruStates, gru_states


@pytest.mark.parametrize(("b", "length", "dim"), [(3, 5, 4), (1, 1, 2), (2, 9, 1)])
def test_states_and_gradients_are_those_of_torch(b, length, dim):
    torch.manual_seed(0)
    gru = nn.GRU(dim, dim, batch_first=True, dtype=torch.float64)
    inputs = torch.randn(b, length, dim, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(b, length, dim, dtype=torch.float64)
    leaves = (inputs, *gru.parameters())

    def gradients(states: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((states * weights).sum(), leaves)

    ours, theirs = gru_states(gru, inputs), gru(inputs)[0]
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours), gradients(theirs))


def test_gradients_are_the_limits_of_differences():
    torch.manual_seed(1)
    parts = [
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((4, 2, 9), (9, 3), (9,))
    ]
    assert torch.autograd.gradcheck(GruStates.apply, parts)


def test_one_step_by_hand():
    """All weights 0: r = z = sigmoid(0) = 1/2, n = tanh(1 + 1/2 * 2), h = n / 2, then 3/4 n."""
    gates = torch.tensor([0.0, 0.0, 1.0]).expand(2, 1, 3)
    states = GruStates.apply(gates, torch.zeros(3, 1), torch.tensor([0.0, 0.0, 2.0]))
    assert states.flatten().tolist() == pytest.approx([0.9640276 / 2, 0.9640276 * 3 / 4])


def test_a_network_has_the_same_states_in_training_and_after():
    torch.manual_seed(2)
    network = GruNetwork(7, Gru4RecConfig(dim=4, dropout=0.0))
    items = torch.tensor([[3, 1, 4, 1], [5, 6, 2, 0]])
    trained = network.train().states(items)
    torch.testing.assert_close(network.eval().states(items), trained)
