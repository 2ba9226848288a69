"""A call for one user of a model, and the path inside the service, as ratios to bare scores.

    python benchmarks/one_user.py [--data ml-1m] [--users 300] [--folder FOLDER] [--small]

Under one limit, on the popular items, and under three, two of them on groups drawn at random. Bare
scores are those of the rankers behind the lists, for one user, with nothing made of them. The path
inside the service is what a replica does for a request after it has read the user's history: a
list within what a guard leaves, with values and chances, without a frame. Everything is measured in
turns in one run, as CPU time of one thread, each user once. With --folder the model is kept there,
and read from there the next time: a fit on ML-1M takes minutes.
"""

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import torch

import fairhorizon as fh
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.limits.language import parsed_limits
from fairhorizon.model.serving import RepeatRule, Requests, ServingState
from fairhorizon.recommenders.lists.item_lists import rules_of
from fairhorizon.simulation.feedback import Scenario
from shared import parse

ONE = ("popular<=0.4",)
THREE = ("popular<=0.4", "size=big<=0.4", "size=small>=0.3")
LENGTH = 10


def fitted(data: str, folder: Path | None, rounds: int | None) -> fh.Model:
    if folder is not None and (folder / "run.json").exists():
        return fh.open_model(folder)
    started, log = time.perf_counter(), fh.load(data)
    sizes = np.random.default_rng(5).choice(
        ["big", "middle", "small"], log.n_items, p=[0.5, 0.3, 0.2]
    )
    items = pl.DataFrame({"item": log.item_ids.tolist(), "size": sizes})
    settings = {} if rounds is None else {"rounds": rounds}
    model = fh.fit(log, "fcpo:fast", limits=ONE, items=items, settings=settings)
    print(f"fit on the whole log{time.perf_counter() - started:52.1f} s")
    if folder is not None:
        model.save(folder)
    return model


def under(model: fh.Model, limits: tuple[str, ...]) -> fh.Model:
    """The same model whose lists are made under other limits."""
    other = copy.copy(model)
    other._state = model.state.with_limits(parsed_limits(limits), model._table)
    return other


def asked_by(state: ServingState, user: object) -> Scenario:
    """What is known of one user."""
    person = state.users.find(user)
    assert person is not None
    requests = Requests([person], None, RepeatRule())
    return requests.scenario(state.users, state.n_items, state.queue_length)


def scored(state: ServingState, scenario: Scenario) -> Callable[[], object]:
    """The scores of all rankers for one user."""
    users = scenario.codes_of(torch.arange(1))
    return lambda: [
        ranker.score_small_batch(users, scenario.queue) for ranker in state.unlimited.rankers
    ]


def served(state: ServingState, guard: ExposureGuard, user: object) -> object:
    """A list as a replica of the service makes it."""
    (offer,) = state.unlimited.likely_items(asked_by(state, user), length=LENGTH)
    shown = guard.answer(offer, LENGTH)
    return offer.items(shown), offer.values(shown), offer.probabilities(shown)


def milliseconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return 1000 * (time.thread_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    options = parse(parser, users=10, rounds=1)
    torch.set_num_threads(1)
    base = fitted(options.data, options.folder, getattr(options, "rounds", None))
    ways: dict[str, Callable[[object], object]] = {}
    for name, limits in (("one limit", ONE), ("three limits", THREE)):
        model = under(base, limits)
        guard = ExposureGuard(rules_of(model.state.limits))
        ways[f"a call for one user, {name}"] = lambda user, model=model: model.recommend(
            [user], k=LENGTH
        )
        ways[f"inside the service, {name}"] = lambda user, model=model, guard=guard: served(
            model.state, guard, user
        )
    drawn = np.random.default_rng(0).permutation(len(base.users))[: options.users]
    users = [base.users[number] for number in drawn]
    found: dict[str, list[float]] = {name: [] for name in ("bare scores of one user", *ways)}
    with torch.inference_mode():
        # The first call of each builds what is kept between calls.
        for work in ways.values():
            work(users[0])
        for user in users:
            scores = scored(base.state, asked_by(base.state, user))
            found["bare scores of one user"].append(milliseconds(scores))
            for name, work in ways.items():
                found[name].append(milliseconds(lambda user=user, work=work: work(user)))
    bare = np.quantile(found["bare scores of one user"], (0.5, 0.95))
    print(f"users{len(users):66d}")
    print(f"{'CPU ms of one thread':40}{'median':>8}{'95 %':>8}{'/ bare':>8}{'95 %':>8}")
    for name, times in found.items():
        median, high = np.quantile(times, (0.5, 0.95))
        ratios = f"{median / bare[0]:8.2f}{high / bare[1]:8.2f}"
        print(f"{name:40}{median:8.2f}{high:8.2f}{ratios}")


if __name__ == "__main__":
    main()
