"""What is to come after answers: returns by hand, and critics that learn known means."""

import pytest
import torch

from fairhorizon.fcpo.retention.critics import (
    AnswerCourse,
    ContinuationCritics,
    returns_after,
)


def course(*, ended: bool = True) -> AnswerCourse:
    """Two users, three steps: none, like, like; and like, none and gone over it."""
    shown = torch.tensor([[1, 1], [1, 1], [1, 0]]).bool()
    liked = torch.tensor([[0, 1], [1, 0], [1, 0]]).bool()
    stays = torch.tensor([[1, 1], [1, 0], [1, 0]]).bool()
    probabilities = torch.full((3, 2), 0.5) * shown
    return AnswerCourse(
        torch.zeros(3, 2, 1),
        probabilities,
        liked.float(),
        probabilities,
        shown,
        liked,
        stays,
        ended,
    )


def test_what_came_counts_those_who_left_with_nothing() -> None:
    after = returns_after(course(), torch.zeros(3, 2), gamma=0.5, lam=1.0)
    # the first: 1 + 0.5 * 1 after the first answer, then 1, then nothing; the second: then none
    assert after.tolist() == [[1.5, 0.0], [1.0, 0.0], [0.0, 0.0]]


def test_what_came_is_mixed_with_what_was_expected() -> None:
    values = torch.tensor([[9.0, 9.0], [2.0, 4.0], [3.0, 0.0]])
    after = returns_after(course(), values, gamma=0.5, lam=0.25)
    # from the last step backwards: 0.25 * 1 + 0.75 * 3 = 2.5;
    # 0.25 (1 + 0.5 * 2.5) + 0.75 * 2 = 2.0625;  the second: 0.25 * 0 + 0.75 * 4 = 3
    assert after.tolist() == [[2.0625, 3.0], [2.5, 0.0], [0.0, 0.0]]


def test_a_run_that_goes_on_expects_what_it_expected_last() -> None:
    values = torch.tensor([[9.0, 9.0], [2.0, 4.0], [3.0, 0.0]])
    after = returns_after(course(ended=False), values, gamma=0.5, lam=1.0)
    assert after[:, 0].tolist() == [1 + 0.5 * (1 + 0.5 * 3), 1 + 0.5 * 3, 3]


def test_means_after_answers_are_learned() -> None:
    """2 after a like, 0.5 after none where the first number of the state is 1, else 1.5."""
    generator = torch.Generator().manual_seed(1)
    states = torch.zeros(4000, 3)
    states[:, 0] = torch.randint(2, (4000,), generator=generator)
    liked = torch.rand(4000, generator=generator) < 0.4
    means = torch.where(liked, 2.0, 1.5 - states[:, 0])
    noise = torch.randn(4000, generator=generator)
    after = ContinuationCritics(3, seed=0)
    after.fit(states, liked, means + noise)
    found = after(states[states[:, 0].argsort()][[0, -1]])
    expected = torch.tensor([[1.5, 2.0], [0.5, 2.0]])
    assert (found - expected).abs().max() < 0.1


@pytest.mark.parametrize("lam", [1.0, 0.5])
def test_critics_learn_a_chain_with_a_known_value(lam: float) -> None:
    """Everybody likes with chance 1/2; who does not like leaves. So V = 1/2 (1 + gamma V)."""
    generator = torch.Generator().manual_seed(2)
    T, b, gamma = 12, 4000, 0.8
    liked = torch.rand(T, b, generator=generator) < 0.5
    here = torch.cat([torch.ones(1, b, dtype=torch.bool), liked.cumprod(0)[:-1].bool()])
    liked, probabilities = liked & here, torch.full((T, b), 0.5)
    run = AnswerCourse(
        torch.zeros(T, b, 1),
        probabilities,
        liked.float(),
        probabilities * here,
        here,
        liked,
        liked,
        True,
    )
    after = ContinuationCritics(1, (4, 4), seed=0)
    after.learn([run], gamma, lam)
    none, like = after(torch.zeros(1, 1))[0].tolist()
    assert none == pytest.approx(0, abs=0.02)
    assert like == pytest.approx(0.5 / (1 - 0.5 * gamma), abs=0.03)


def test_those_who_left_count_with_nothing_to_come() -> None:
    """After none, half of the users leave; those who stay give 2 likes. So W_0 is 1, not 2."""
    b = 400
    shown, left = torch.ones(2, b, dtype=torch.bool), torch.arange(b) % 4 < 2
    shown[1] = ~left
    liked = torch.zeros(2, b, dtype=torch.bool)
    signal, probabilities = torch.stack([torch.zeros(b), 2.0 * ~left]), torch.zeros(2, b)
    stays = torch.stack([~left, ~left])
    states = torch.tensor([0.0, 1.0])[:, None, None].expand(2, b, 1)
    run = AnswerCourse(states, probabilities, signal, signal, shown, liked, stays, True)
    after = ContinuationCritics(1, (4, 4), seed=0)
    after.learn([run], 1.0, 1.0)
    # the second answers have nothing to come: a state of their own
    assert float(after(torch.zeros(1, 1))[0, 0]) == pytest.approx(1.0, abs=0.02)
