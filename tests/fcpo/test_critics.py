"""Critics on chains whose values are known."""

import torch

from fairhorizon.fcpo.learner import remaining, temporal_difference_targets
from fairhorizon.fcpo.networks import Critic


def critic(states: int) -> Critic:
    torch.manual_seed(0)
    return Critic(states, (16, 16)).double()


def test_a_known_mean_per_step_is_recovered():
    """Three states that a user stays in, earning 0.2, -1 and 3 a step."""
    states, earned = torch.eye(3, dtype=torch.float64), torch.tensor([0.2, -1.0, 3.0]).double()
    index = torch.tensor([[0] * 4, [1] * 4, [2] * 4])
    ahead = remaining(0.9, 4).double()
    targets = earned[:, None] * ahead[:-1]
    fitted = critic(3)
    loss = fitted.fit(states, index, targets, ahead[:-1], iterations=200)
    assert loss < 1e-8
    torch.testing.assert_close(fitted(states).detach(), earned, rtol=0, atol=1e-3)


def test_temporal_differences_find_the_values_of_a_chain():
    """States 0 -> 1 -> 2 -> end, rewards 1, 2, 4, discount 1/2: values 3, 4, 4."""
    states = torch.eye(3, dtype=torch.float64)
    index, rewards = torch.tensor([[0, 1, 2]]), torch.tensor([[1.0, 2.0, 4.0]]).double()
    ahead = remaining(0.5, 3).double()  # 1.75, 1.5, 1, 0
    fitted = critic(3)
    for _ in range(3):  # the end is known, so every sweep carries it one state further back
        with torch.no_grad():
            values = fitted(states)[index] * ahead[:-1]
            values = torch.cat([values, torch.zeros(1, 1)], dim=1)
        targets = temporal_difference_targets(rewards, values, 0.5)
        fitted.fit(states, index, targets, ahead[:-1], iterations=200)
    values = fitted(states).detach() * ahead[:-1]
    torch.testing.assert_close(values, torch.tensor([3.0, 4.0, 4.0]).double(), rtol=0, atol=2e-3)


def test_the_loss_is_the_mean_square_and_does_not_rise():
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    index = torch.randint(10, (6, 5), generator=generator)
    targets = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    ahead = remaining(1.0, 5).double()[:-1]
    fitted = critic(4)

    def mean_square() -> float:
        with torch.no_grad():
            predicted = [
                [fitted(states[None, s])[0] * a for s, a in zip(row, ahead, strict=True)]
                for row in index
            ]
        errors = targets - torch.tensor(predicted, dtype=torch.float64)
        return float(errors.square().mean())

    losses = [mean_square()]
    for _ in range(3):
        losses.append(fitted.fit(states, index, targets, ahead, iterations=5))
        assert abs(losses[-1] - mean_square()) < 1e-12
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]


def test_a_diverged_fit_leaves_the_critic_as_it_was():
    fitted = critic(2)
    before = [parameter.detach().clone() for parameter in fitted.parameters()]
    targets = torch.tensor([[1.0, torch.inf]], dtype=torch.float64)
    loss = fitted.fit(
        torch.eye(2, dtype=torch.float64), torch.tensor([[0, 1]]), targets, torch.ones(2), 5
    )
    assert not loss < float("inf")
    for parameter, old in zip(fitted.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
