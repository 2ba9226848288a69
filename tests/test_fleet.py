"""The simulation of a fleet: by hand, against queueing theory, and its invariants at random."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.service.budget.leases import lease_size
from fairhorizon.service.budget.rules import UNIT, allowed
from fleet import BEFORE, SIZE_RULES, between_reports, fixed, regrets, scenarios
from fleet_simulation import Crowd, Fleet, Outcome, Recording, Scenario, Truth

pytestmark = pytest.mark.slow

NO_TIME = {"deciding_ms": 0.0, "delay_ms": 0.0, "lock_ms": 0.0, "list_ms": 0.0}
ALONE = Scenario(replicas=1, seconds=10.0, lists_per_second=10.0, slack=5, wanted=1.0, **NO_TIME)


@pytest.mark.parametrize(("size", "each"), [(10, 4), (5, 4), (3, 3), (1, 1)])
def test_one_replica_without_delay_by_hand(size: int, each: int) -> None:
    """Every list of 10 wants 10 of the group; 40 % are 4, if the lease has as many."""
    fleet = Fleet(ALONE, fixed(size))
    found = fleet.run()
    assert found.lists > 50
    assert fleet.account.shown == 10 * found.lists * UNIT
    assert fleet.account.used == each * found.lists * UNIT
    # C is 5: nothing of it is used, but leases may be of it
    assert fleet.account.charged == fleet.account.used + min(size, 5 + 4 * (each < 4)) * UNIT
    assert found.overshoot == 0
    assert found.unused == pytest.approx(1 - each / 4)


def test_waiting_for_the_lock_is_that_of_an_m_d_1_queue() -> None:
    """Pollaczek and Khinchine: s + rho s / (2 (1 - rho)) for a fixed time s of service."""
    times = NO_TIME | {"lock_ms": 2.5}
    busy = Scenario(replicas=2000, seconds=120.0, lists_per_second=240.0, **times)
    found = Fleet(busy, lease_size).run()
    assert found.utilisation == pytest.approx(0.6, rel=0.02)
    assert found.wait_ms == pytest.approx(2.5 + 0.6 * 2.5 / (2 * 0.4), rel=0.05)
    assert found.transactions == pytest.approx(240, rel=0.02)


def test_a_replica_that_waits_for_the_lock_records_several_lists_together() -> None:
    times = NO_TIME | {"lock_ms": 100.0}  # ten transactions a second, a hundred lists
    found = Fleet(replace(ALONE, seconds=60.0, lists_per_second=100.0, **times), lease_size).run()
    assert found.lists > 0.95 * 60 * 100
    assert found.transactions == pytest.approx(10, rel=0.1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    replicas=st.integers(1, 8),
    size=st.sampled_from([*SIZE_RULES.values()]),
    slack=st.integers(1, 40),
    wanted=st.sampled_from([0.3, 0.4, 0.5, 1.0]),
    apart=st.booleans(),
    window=st.sampled_from(["always", "200 showings"]),
    between=st.tuples(st.sampled_from([5.0, 60.0, np.inf]), st.sampled_from([10.0, 60.0, np.inf])),
    cut=st.sampled_from([1.0, 5.0, 9.0, 15.0]),
    delay_ms=st.sampled_from([0.0, 5.0, 500.0, 3000.0]),
)
def test_whatever_happens_the_limit_holds_and_the_account_balances(
    seed: int,
    replicas: int,
    size: object,
    slack: int,
    wanted: float,
    apart: bool,
    window: str,
    between: tuple[float, float],
    cut: float,
    delay_ms: float,
) -> None:
    """Overshoot after any list is checked by the run itself (Truth.count)."""
    scenario = Scenario(
        recording=Recording.APART if apart else Recording.TOGETHER,
        **{"replicas": replicas, "seconds": 60.0, "lists_per_second": 20.0, "leaving": 0.3},
        **{"slack": slack, "wanted": wanted, "unevenness": 1.0, "delay_spread": 1.5},
        **{"window": "always" if apart else window, "delay_ms": delay_ms, "cut": cut},
        **{"between_crashes": between[0], "between_cuts": between[1], "timeout": 4.0},
        crowd=Crowd(20.0, 30.0, times=5.0, part=0.5),
    )
    fleet = Fleet(scenario, size, seed, every=2.0)  # type: ignore[arg-type]
    found, account = fleet.run(), fleet.account
    assert 0 <= found.overshoot <= slack
    assert account.charged == account.used + sum(account.held.values())
    assert account.charged <= allowed(account.share, account.shown, account.slack)
    assert min(account.held.values(), default=0) >= 0


def test_more_than_the_slack_above_the_share_ends_a_run() -> None:
    truth = Truth(400_000, 2 * UNIT)
    truth.count("always", 10, 6, 6)  # 2 above 40 % of 10
    with pytest.raises(AssertionError, match=r"3\.0 showings above the share"):
        truth.count("always", 10, 5, 5)


def test_leases_of_the_dead_are_given_back() -> None:
    crashing = Scenario(replicas=20, seconds=60.0, lists_per_second=40.0, between_crashes=20.0)
    fleet = Fleet(crashing, lease_size)
    fleet.run()
    up = sum(one.is_up for one in fleet.replicas)
    # those who crashed in the last seconds may still be waited for
    assert up <= len(fleet.account.held) <= up + 20 * (crashing.timeout + 1) / 20 * 2


def test_an_equal_part_of_the_slack_leaves_most_of_the_budget_unused_where_many_share_it() -> None:
    many = Scenario(replicas=100, seconds=60.0, lists_per_second=100.0, slack=50)
    before, now = (Fleet(many, rule).run() for rule in (SIZE_RULES[BEFORE], lease_size))
    assert before.unused > 0.7  # one showing for a list that may have four
    assert now.unused < 0.05


def test_the_same_seed_is_the_same_run_and_another_one_is_another() -> None:
    some = Scenario(replicas=10, seconds=20.0, between_crashes=30.0)
    first, again, other = (Fleet(some, lease_size, seed).run() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_traffic_has_the_rates_that_were_asked_for() -> None:
    scenario = Scenario(replicas=50, seconds=400.0, hot=1, hot_times=50.0, swing=0.5)
    rates = scenario.rates(np.random.default_rng(0))
    assert rates.sum() == pytest.approx(150.0)
    assert rates[0] == pytest.approx(50 * rates[1])
    times, who, wanted = map(
        np.array, zip(*scenario.traffic(np.random.default_rng(0)), strict=True)
    )
    assert len(times) == pytest.approx(150 * 400, rel=0.02)
    assert (np.diff(times) >= 0).all()
    assert (who == 0).mean() == pytest.approx(50 / 99, abs=0.01)
    assert wanted.mean() == pytest.approx(4.5, abs=0.03)
    first_half = (times < 200).sum() / len(times)  # of a day: 1/2 + swing / pi
    assert first_half == pytest.approx(0.5 + 0.5 / np.pi, abs=0.01)
    delays = np.array([*islice(scenario.delays(np.random.default_rng(0)), 20_000)])
    assert np.median(delays) == pytest.approx(0.0005, rel=0.03)


def test_time_between_reports_is_where_the_sum_of_both_costs_is_least() -> None:
    some = Scenario(replicas=1000, lock_ms=2.5, seconds=600.0)
    best = between_reports(some)
    assert best == pytest.approx(22.36, abs=0.01)

    def cost(every: float) -> float:
        return 3 * every / 600 + 2.5 / every

    assert cost(best) < min(cost(0.9 * best), cost(1.1 * best))


def test_regret_is_the_distance_to_the_best_size_of_the_grid() -> None:
    def outcome(unused: float, busy: float) -> list[Outcome]:
        return [Outcome(1, 0.0, unused, 1.0, busy, 0.0, 0.0, 1.0)]

    runs = {"1": outcome(0.5, 0.1), "10": outcome(0.02, 0.1)}
    runs |= {"C / n": outcome(0.3, 0.1), "rule": outcome(0.03, 0.1)}
    row = regrets({"even": runs}).splitlines()[-1]
    assert row == "| even | 10 | 12.00 | 13.00 | +1.00 | +28.00 |"


def test_scenarios_that_are_recorded_apart_have_no_windows() -> None:
    (apart,) = [one for one in scenarios(60.0) if one.recording is Recording.APART]
    with pytest.raises(ValueError, match="one window"):
        Fleet(replace(apart, window="100 showings"), lease_size)
