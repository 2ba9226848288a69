"""Generated logs: the same for the same seed, and drawn from the truth that is beside them."""

import numpy as np
import polars as pl
import pytest

from fairhorizon.data.example_logs import CHANCE, STRAY, checkins, sessions, shop


@pytest.mark.parametrize("generator", [shop, checkins, sessions])
def test_a_seed_gives_one_log(generator) -> None:  # type: ignore[no-untyped-def]
    assert generator(50, 40, seed=3).frame.equals(generator(50, 40, seed=3).frame)
    assert not generator(50, 40, seed=3).frame.equals(generator(50, 40, seed=4).frame)
    assert generator(50, 40).frame[:, -1].null_count() == 0


def codes(frame: pl.DataFrame, column: str) -> np.ndarray:
    return frame[column].str.slice(1).cast(pl.Int64).to_numpy()


def test_quantities_say_what_is_wanted() -> None:
    log = shop(seed=1)
    frame = log.frame
    assert abs(log.by_chance.mean() - CHANCE) < 0.02
    quantity = frame["quantity"].to_numpy()
    assert (quantity[log.by_chance] == 1).all()
    liked = log.wanted[codes(frame, "customer"), codes(frame, "sku")]
    chosen = ~log.by_chance
    assert liked[chosen].mean() > liked[log.by_chance].mean() + 0.3
    assert abs(quantity[chosen].mean() - 1 - 8 * liked[chosen].mean()) < 0.1
    assert len(frame.unique(["customer", "sku"])) < 0.9 * len(frame)  # bought again
    owner = dict(zip(frame["sku"], frame["seller"], strict=True))
    assert owner == {sku: log.seller[int(sku[1:])] for sku in owner}


def test_check_ins_are_at_home() -> None:
    log = checkins(seed=1)
    at_home = log.city[codes(log.frame, "venue")] == log.home[codes(log.frame, "user")]
    assert abs(at_home.mean() - 0.95) < 0.01
    liked = log.liked[codes(log.frame, "user"), codes(log.frame, "venue")]
    assert liked.mean() > log.liked.mean() + 0.2


def test_sessions_have_a_topic_that_is_read_longer() -> None:
    log = sessions(seed=1)
    frame = log.frame
    assert len(frame.unique(["session", "article"])) == len(frame)
    about = log.topic_of_session[codes(frame, "session")]
    own = log.topic[codes(frame, "article")] == about
    assert abs(own.mean() - (1 - STRAY * 5 / 6)) < 0.03
    seconds = frame["seconds"].to_numpy()
    assert seconds[own].mean() > 10 * seconds[~own].mean()
