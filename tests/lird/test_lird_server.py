"""LIRD in a long run: the lists that it gives with feedback."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fairhorizon.data.splits import with_feedback
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.limits.counts import Exposure
from fairhorizon.lird import Lird, LirdConfig
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol


@pytest.fixture(scope="module", params=[1, 2], ids="K={}".format)
def model(request, market):
    config = LirdConfig(
        list_length=request.param,
        history=3,
        pmf=MfConfig(dim=6, max_epochs=2, target="interaction"),
        gru_hidden=6,
        actor_hidden=8,
        critic_hidden=8,
        rounds=1,
        updates=5,
        batch=16,
        horizon=3,
    )
    return Lird(config, seed=2).fit(market)


def begin(model, market):
    length = model.config.list_length
    server = model.online(list_length=length)
    users = evaluation_scenario(market, server.queue_length, Protocol.STANDARD)
    settings = LongRunSettings(list_length=length)
    return LongRun(server, users, Exposure(market.train.item_counts()), settings)


def test_it_shows_what_it_recommends_with_feedback(model, market):
    """All 80 items of the catalogue: of what was shown, the run knows how often."""
    run = begin(model, market)
    length = model.config.list_length
    scenario = evaluation_scenario(market, 3, Protocol.STANDARD)
    expected = model.recommend(scenario, length=80, feedback=True)
    rewards = []
    for step in range(1, 80 // length + 1):
        rewards.append(run.step()["reward"])
        shown = expected[:, : step * length]
        counts = np.bincount(shown[shown >= 0], minlength=80)
        assert np.array_equal(run.exposure.shown, counts)
    assert sum(rewards) > 1  # so that states have changed
    without = model.recommend(scenario, length=80)
    assert not np.array_equal(without, expected)


def test_stored_it_goes_on_as_if_nothing_had_happened(model, market):
    whole, stopped, resumed = (begin(model, market) for _ in range(3))
    rows = [whole.step() for _ in range(20)]
    resumed.restore(load(save(stopped.tensors())))  # before the first step
    resumed.step()
    for _ in range(7):
        stopped.step()
    resumed.restore(load(save(stopped.tensors())))
    for expected in rows[7:]:
        row = resumed.step()
        assert row | {"seconds": 0} == pytest.approx(
            expected | {"seconds": 0}, rel=0, abs=0, nan_ok=True
        )
    assert resumed.state.queue.equal(whole.state.queue)


def test_the_model_stays_as_it_was(model, market):
    before = {name: tensor.clone() for name, tensor in model.actor_.state_dict().items()}
    run = begin(model, market)
    for _ in range(11):  # with an update
        run.step()
    assert all(tensor.equal(before[name]) for name, tensor in model.actor_.state_dict().items())
    assert not any(tensor.requires_grad for tensor in run.tensors().values())


def test_lists_of_another_length_are_refused(model):
    length = model.config.list_length
    with pytest.raises(ConfigError, match=f"trained for lists of {length} and cannot serve .* 5"):
        model.online(list_length=5)


def test_everything_shown_is_shown_once(model, market):
    run = begin(model, market)
    for _ in range(10):
        run.step()
    history = evaluation_scenario(market, 3, Protocol.STANDARD).excluded.mask(torch.arange(60))
    new = run.state.blocked & ~history
    assert int(new.sum()) == 60 * 10 * model.config.list_length == run.exposure.n_shown


def test_trained_anew_between_rounds_and_resumed(model, market):
    """After a round, the actor is that of a fresh fit on all that was liked."""
    length = model.config.list_length

    def run_of(split):
        server = model.online(list_length=length, round_length=4 * length, retrain_on=split)
        users = evaluation_scenario(market, server.queue_length, Protocol.STANDARD)
        settings = LongRunSettings(list_length=length, update_every=2)
        return LongRun(server, users, Exposure(market.train.item_counts()), settings)

    run = run_of(market)
    for _ in range(4):
        run.step()
    liked = run.recommender.retraining.liked().numpy()
    assert liked.shape[1] > 0
    expected = Lird(model.config, seed=2).fit(with_feedback(market, *liked))
    found = run.recommender.actor.state_dict()
    for name, value in expected.actor_.state_dict().items():
        assert torch.equal(found[name], value), name

    resumed = run_of(market)
    resumed.restore(load(save(run.tensors())))
    rows = [{**one.step(), "seconds": 0} for one in (run, resumed)]
    assert rows[0] == pytest.approx(rows[1], nan_ok=True)
