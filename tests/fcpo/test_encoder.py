"""The encoder is torch's GRU on embedded queues, only faster."""

import pytest
import torch

from fairhorizon.fcpo.networks import StateEncoder

N_USERS, N_ITEMS, DIM, HIDDEN, HISTORY = 5, 11, 4, 6, 3


def encoder_with(layers: int) -> StateEncoder:
    torch.manual_seed(layers)
    users = torch.randn(N_USERS, DIM, dtype=torch.float64)
    items = torch.randn(N_ITEMS, DIM, dtype=torch.float64)
    return StateEncoder(users, items, HIDDEN, layers).double()


def states(m: int = 20):
    generator = torch.Generator().manual_seed(9)
    users = torch.randint(N_USERS, (m,), generator=generator)
    queues = torch.randint(N_ITEMS + 1, (m, HISTORY), generator=generator)  # N_ITEMS: no item
    assert (queues == N_ITEMS).any()
    return users, queues


def by_torch(encoder: StateEncoder, users, queues):
    _, last = encoder.gru(encoder.item_vectors[queues])
    return torch.cat([encoder.user_vectors[users], last[-1]], dim=1)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_equals_torch(layers):
    encoder = encoder_with(layers)
    encoded = encoder(*states())
    assert encoded.shape == (20, encoder.output_size)
    assert encoder.output_size == DIM + HIDDEN
    torch.testing.assert_close(encoded, by_torch(encoder, *states()), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_equal_those_of_torch(layers):
    encoder = encoder_with(layers)
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(20, DIM + HIDDEN, generator=generator, dtype=torch.float64)
    parameters = list(encoder.parameters())
    assert len(parameters) == 4 * layers
    ours = torch.autograd.grad((weights * encoder(*states())).sum(), parameters)
    theirs = torch.autograd.grad((weights * by_torch(encoder, *states())).sum(), parameters)
    for left, right in zip(ours, theirs, strict=True):
        assert right.abs().max() > 1e-3
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)


def test_no_item_is_the_zero_vector_and_embeddings_are_not_trained():
    encoder = encoder_with(1)
    assert encoder.item_vectors.shape == (N_ITEMS + 1, DIM)
    assert not encoder.item_vectors[N_ITEMS].any()
    names = {name for name, _ in encoder.named_parameters()}
    assert all(name.startswith("gru.") for name in names)


def test_users_and_order_of_the_queue_matter():
    encoder = encoder_with(2)
    users, queues = torch.tensor([0, 1, 0]), torch.tensor([[1, 2, 3], [1, 2, 3], [3, 2, 1]])
    encoded = encoder(users, queues)
    assert torch.equal(encoded[0, DIM:], encoded[1, DIM:])
    assert torch.equal(encoded[:, :DIM], encoder.user_vectors[users])
    assert (encoded[0, DIM:] - encoded[2, DIM:]).abs().max() > 1e-3
