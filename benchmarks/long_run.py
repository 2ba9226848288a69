"""What a long run of FCPO costs, on one thread, as ratios of CPU times measured in one run.

    python benchmarks/long_run.py [--data ml-100k] [--steps 400] [--small]
    python benchmarks/long_run.py --whole [--data ml-1m] [--steps 400]

First a step without update, for all users: lists, answers, counts and new groups, and what is liked
scored anew. It is compared with the bare product of user and item vectors and its argmax, in turns,
and so is the same step with the metrics that go on record. Then the time of a long run, updates
included, at three sizes and three lengths on the synthetic market: what a user and step takes in
the largest case over what it takes in the smallest, and what one more takes from the second to the
third over what it took from the first to the second. The second is about 1 where cost is linear;
the first is below 1 as far as an update costs something however few the users are. --whole makes
one run of preset `fast` and tells its time and the peak memory of the process.

The models are fitted just far enough to have their shapes and to be liked: GRU4Rec for one epoch on
the first 1,000 users, PMF for one, and `paper` for one round.
"""

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.fcpo.config import PRESETS
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.online import OnlineFcpo
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.rankers.gru4rec import Gru4RecConfig
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from shared import parse

START = 50  # steps in which the most is liked
ITEMS = 400  # of the synthetic market
SIZES, LENGTHS = (1000, 2000, 4000), (20, 40, 80)


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def fitted(preset: str, parts: Split) -> Fcpo:
    """The preset with as little training as it can do with."""
    config = PRESETS[preset]
    short = {"rounds": min(1, config.rounds), "adapt": False, "pmf": MfConfig(max_epochs=1)}
    return Fcpo(config.model_copy(update=short)).fit(parts)


def opened(
    model: Fcpo, parts: Split, settings: LongRunSettings
) -> tuple[OnlineFcpo, Scenario, Exposure]:
    """The model before its first step, who it serves, and the groups to begin with."""
    server = model.online([PopularityLimit(settings.alpha_prime, settings.warm_up)])
    users = evaluation_scenario(parts, server.queue_length, model.config.protocol)
    return server, users, Exposure(parts.train.item_counts())


class Steps:
    """A long run without its record and its updates."""

    def __init__(self, server: OnlineFcpo, users: Scenario, exposure: Exposure) -> None:
        self.server, self.exposure = server, exposure
        self.state, self.audience = users.begin(torch.arange(users.n_users))
        self.liked = 0

    def step(self) -> None:
        lists = self.server.serve(self.state, self.exposure)
        outcome = advance(self.state, lists, self.audience, self.exposure.sensitive)
        self.exposure.add(lists)
        self.server.observe(lists, outcome, self.exposure)
        self.exposure.relabel()
        self.state = outcome.state
        self.liked += int(outcome.hits.sum())


def compare_steps(preset: str, parts: Split, steps: int) -> None:
    """A step, and a step with its record, over the bare product and argmax."""
    model = fitted(preset, parts)
    settings = LongRunSettings(steps=steps, update_every=steps + 1)
    alone = Steps(*opened(model, parts, settings))
    recorded = LongRun(*opened(model, parts, settings), settings)
    dim = Gru4RecConfig().dim if model.policy_.ensemble else model.config.pmf.dim
    user_vectors = torch.randn(parts.train.n_users, dim)
    item_vectors = torch.randn(parts.train.n_items, dim)

    def bare() -> None:
        (user_vectors @ item_vectors.T).argmax(1)

    in_turns = (bare, alone.step, recorded.step)
    times = [[cpu_seconds(work) for work in in_turns] for _ in range(steps)]
    del times[0]  # the first step scores everybody

    def ratios(first_steps: int) -> str:
        base, step, whole = map(sum, zip(*times[: first_steps - 1], strict=True))
        return f"{step / base:6.2f}   with its record {whole / base:6.2f}"

    milliseconds = 1e3 * sum(base for base, *_ in times) / len(times)
    print(f"preset {preset}, {dim} dimensions, {alone.liked / steps:.0f} users like what they see")
    print(f"  bare product and argmax        {milliseconds:6.1f} ms of CPU")
    if steps > START:
        print(f"  a step / bare, steps 2 to {START:3d}  {ratios(START)}")
    print(f"  a step / bare, steps 2 to {steps:3d}  {ratios(steps)}")


def run_seconds(model: Fcpo, parts: Split, steps: int) -> float:
    """CPU seconds of a long run with its updates."""
    settings = LongRunSettings(steps=steps)
    run = LongRun(*opened(model, parts, settings), settings)

    def work() -> None:
        while not run.finished:
            run.step()

    return cpu_seconds(work)


def show_growth(repeats: int, sizes: Sequence[int], lengths: Sequence[int]) -> None:
    """By users, then by steps; preset `fast` with its updates."""
    size, length = sizes[0], lengths[1]
    print(f"synthetic market of {ITEMS} items, preset fast, an update every 10 steps")
    markets = {users: split(synthetic(users, ITEMS).interactions) for users in sizes}
    models = {users: fitted("fast", parts) for users, parts in markets.items()}
    for cases in ([(users, length) for users in sizes], [(size, steps) for steps in lengths]):
        runs = [
            [run_seconds(models[users], markets[users], steps) for users, steps in cases]
            for _ in range(repeats)
        ]
        seconds = [median(column) for column in zip(*runs, strict=True)]
        work = [users * steps for users, steps in cases]
        each = [1e6 * spent / n for spent, n in zip(seconds, work, strict=True)]
        for (users, steps), one in zip(cases, each, strict=True):
            print(f"  {users:4d} users, {steps:2d} steps   {one:6.1f} µs of CPU a user and step")
        small, middle, large = zip(seconds, work, strict=True)
        print(f"  largest / smallest      {each[-1] / each[0]:6.2f}", end="")
        print(f"   of one more {slope(middle, large) / slope(small, middle):6.2f}")


def slope(less: tuple[float, int], more: tuple[float, int]) -> float:
    """Seconds that a further user's step takes, from (seconds, work) of two runs."""
    return (more[0] - less[0]) / (more[1] - less[1])


def whole_run(parts: Split, steps: int) -> None:
    model = fitted("fast", parts)
    began = time.perf_counter()
    seconds = run_seconds(model, parts, steps)
    print(f"{steps} steps, an update every {LongRunSettings().update_every}, preset fast")
    print(f"  wall time      {time.perf_counter() - began:8.1f} s")
    print(f"  CPU time       {seconds:8.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--steps", type=int, default=LongRunSettings().steps)
    parser.add_argument("--repeats", type=int, default=3, help="of the runs that show growth")
    parser.add_argument("--sizes", type=int, nargs=3, default=SIZES, help="users, to show growth")
    parser.add_argument("--lengths", type=int, nargs=3, default=LENGTHS, help="steps, likewise")
    parser.add_argument("--whole", action="store_true", help="one long run, and nothing else")
    options = parse(parser, steps=3, repeats=1, sizes=[20, 40, 60], lengths=[2, 3, 4])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = split(load(options.data))
    print(f"{options.data}: {parts.train.n_users} users, {parts.train.n_items} items")
    if options.whole:
        whole_run(parts, options.steps)
    else:
        for preset in ("paper", "fast"):
            compare_steps(preset, parts, options.steps)
        show_growth(options.repeats, options.sizes, options.lengths)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory        {peak:6.2f} GiB")


if __name__ == "__main__":
    main()
