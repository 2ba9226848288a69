"""A call for one user of a production model: milliseconds, and the ratio to bare scores.

    python benchmarks/one_user.py [--data ml-1m] [--users 200] [--limit LIMIT ...]
        [--folder FOLDER] [--small]

Bare scores are those of the rankers behind the lists, for one user, with nothing made of them. Both
are measured in turns in one run, after a call for another user. With --folder the model is kept
there, and read from there the next time: a fit on ML-1M takes minutes.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch

import fairhorizon as fh
from fairhorizon.model.serving import RepeatRule, Requests
from shared import parse

LIMITS = ("popular<=0.4",)  # unless others are given


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def fitted(data: str, limits: Sequence[str], folder: Path | None, rounds: int | None) -> fh.Model:
    if folder is not None and (folder / "run.json").exists():
        return fh.open_model(folder)
    started = time.perf_counter()
    settings = {} if rounds is None else {"rounds": rounds}
    model = fh.fit(data, "fcpo:fast", limits=limits, settings=settings)
    print(f"fit on the whole log{time.perf_counter() - started:36.1f} s")
    if folder is not None:
        model.save(folder)
    return model


def bare_scores(model: fh.Model, user: object) -> Callable[[], object]:
    """The scores of all rankers for one user."""
    state = model._state
    person = state.users.find(user)
    assert person is not None
    length = state.serving.queue_length
    scenario = Requests([person], None, RepeatRule()).scenario(state.users, state.n_items, length)
    users = scenario.codes_of(torch.arange(1))
    return lambda: [
        ranker.score_small_batch(users, scenario.queue) for ranker in state.unlimited.rankers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--limit", action="append")
    parser.add_argument("--folder", type=Path)
    options = parse(parser, users=10, rounds=1)
    torch.set_num_threads(1)
    rounds = getattr(options, "rounds", None)
    model = fitted(options.data, options.limit or LIMITS, options.folder, rounds)
    drawn = np.random.default_rng(0).permutation(len(model.users))[: options.users]
    users = [model.users[number] for number in drawn]
    model.recommend(users[:1]), bare_scores(model, users[0])()
    calls, bare = [], []
    for user in users:
        calls.append(milliseconds(lambda user=user: model.recommend([user])))
        scores = bare_scores(model, user)
        bare.append(milliseconds(scores))
    print(f"users{len(users):51d}")
    print(f"a call for one user, median{median(calls):29.2f} ms")
    print(f"a call for one user, 95 of 100 are below{np.quantile(calls, 0.95):16.2f} ms")
    print(f"bare scores of one user, median{median(bare):25.2f} ms")
    print(f"call / bare scores, of the medians{median(calls) / median(bare):22.2f}")


if __name__ == "__main__":
    main()
