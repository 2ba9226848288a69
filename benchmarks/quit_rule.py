"""A policy with a horizon against PPO of Stable-Baselines3, among users who quit when bored.

    python benchmarks/quit_rule.py [--data ml-1m] [--limits 0.4,0.2] [--seeds 3] [--more 0]
                                   [--no-ppo] [--out quit-rule] [--small]

Users quit when more than 4 of the last 10 items are of one genre. Rows: `fcpo:long` under the
limit, probabilities of a like and the scores of the stack under the control, without and behind
caps by kind, the stack without a limit, and PPO, which weighs the rankers of `fcpo:long`
(quit_ppo.py): free, with a penalty on popular showings that follows the limit, and under the same
control as the others. PPO learns among the users for practice, as the others do in
pretraining_runs, from as many showings as `fcpo:long` in pretraining_runs and in the run itself;
with --more N, also from N times as many; --no-ppo leaves it out. Its settings are chosen by the
likes of these users, for each of the three ways, in a run with a seed that is not reported. The
ensemble is what PPO begins with; random weights are drawn anew for every user and step.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.data.loading import load
from fairhorizon.datasets import DataSpec
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.evaluation.run_records import practice_users
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.files import write_json
from fairhorizon.limits.counts import Counts, Exposure
from fairhorizon.methods import Method
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.settings import Given
from fairhorizon.simulation.churn import ChurnConfig, QuitRule
from fairhorizon.simulation.feedback import UserModel
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies.long_term import LongStudy, NamedMethod, RunLimits
from fairhorizon.studies.study import Study, Task
from fairhorizon.vocabulary import Retrain
from quit_ppo import PpoSettings, StaysVecEnv, View, WeightsServer, trained
from shared import parse

# The world: users who quit when they are bored, and runs among them.


LONG = Method("fcpo", preset="long")


@dataclass(frozen=True)
class Figures:
    """Of a run, at its end."""

    likes: float  # per user who ever came
    showings: float  # per user: the length of stay, as lists have one item
    popular: float  # share of all showings, as the limit counts
    over: float  # share of the steps after which that share was above the limit
    practice: float = math.nan  # likes of the users who are in no other figure

    @property
    def per_step(self) -> float:
        return self.likes / self.showings

    @classmethod
    def from_step(cls, last: Mapping[str, float]) -> "Figures":
        """From the last row of the record of a run."""
        named = ("likes", "showings", "limited_rate", "violation_share")
        found = [float(last[name]) for name in named]
        return cls(*found, practice=float(last.get("practice likes", math.nan)))


@dataclass(frozen=True)
class World:
    """Users with the quit rule, served one item a step under a limit from the first step on."""

    folder: Path  # of models and runs
    data: str
    limit: float
    steps: int = 60
    rule: QuitRule = field(default_factory=lambda: QuitRule(most=4, of=10))
    item_table: str | None = None  # with the kinds of items; None: the data set has them
    settings: Mapping[str, Given] = field(default_factory=dict)

    @cached_property
    def study(self) -> LongStudy:
        churn = ChurnConfig(quits=self.rule)
        return LongStudy(
            Study(self.folder, DataSpec(source=self.data), ks=(1,), settings=self.settings),
            LongRunSettings(steps=self.steps, alpha_prime=self.limit, warm_up=0),
            SimulationConfig(churn=churn),
            RunLimits(item_table=self.item_table),
            retrain=Retrain.NONE,
        )

    @cached_property
    def kinds(self) -> Tensor:
        """(n_items, kinds) the part that each kind has in an item."""
        assert self.study.simulation is not None
        kinds = self.study.user_source().kinds(self.study.simulation.churn)
        assert kinds is not None
        return kinds

    @cached_property
    def counts(self) -> Counts:
        """Of items in the training log."""
        return self.study.study.dataset().split.train.item_counts().astype(np.int64)

    def known(self, method: str, seed: int) -> Figures:
        """Of a method by its name; runs are kept, and none is made twice."""
        named = NamedMethod.at_limit(Method.parse(method), self.limit)
        self.study.run([named], [seed], resume=True)
        return Figures.from_step(self.study.steps([named], [seed]).row(-1, named=True))

    def policy(self, seed: int) -> Fcpo:
        """The fitted `fcpo:long`."""
        method = LONG.limited_to(self.limit)
        model, _ = Task(self.study.study, (method,), seed).trained(self.study.study.dataset())
        assert isinstance(model, Fcpo)
        return model

    def ensemble(self, seed: int) -> Ensemble:
        """The rankers that `fcpo:long` weighs."""
        ensemble = self.policy(seed).policy_.ensemble
        assert ensemble is not None
        return ensemble

    def users(self, ensemble: Ensemble, seed: int) -> UserModel:
        source = self.study.user_source()
        return source.users(self.study.simulation, ensemble.queue_length, seed)

    def served_by(self, server: OnlineRecommender, users: UserModel) -> Figures:
        """Of a run by a server that the command line does not know."""
        practice = practice_users(users.n_users)  # they count in no figure of the others either
        settings, exposure = self.study.settings, Exposure(self.counts)
        run = LongRun(server, users, exposure, settings, practice=practice)
        row: Mapping[str, float] = {}
        while not run.finished:
            row = run.step()
        return Figures.from_step(row)


# PPO as a rival of `fcpo:long`: its ways to treat the limit, and how its settings are chosen.


CHOOSING = 100  # seed of the runs that settings are chosen by
ANSWERS = 10_000  # seeds of trainings are so far from those of runs
NEAR = 0.01  # a share that is so little above the limit is taken for it when settings are chosen
FREE, PENALTY, CONTROL = "free", "penalty", "under the control"

Candidates = Mapping[str, Sequence[PpoSettings]]
PLAIN = PpoSettings()
CANDIDATES: Candidates = {
    FREE: (
        PLAIN,
        replace(PLAIN, learning_rate=1e-4),
        replace(PLAIN, gamma=0.95),
        replace(PLAIN, entropy=0.01),
    ),
    PENALTY: (
        replace(PLAIN, penalty=0.2),
        replace(PLAIN, penalty=0.4),
        replace(PLAIN, penalty=0.2, ascent=0.05),
    ),
    CONTROL: (),  # those of the free one
}
QUICK_CANDIDATES: Candidates = {way: some[:1] for way, some in CANDIDATES.items()}


@dataclass(frozen=True)
class Rival:
    """PPO in a world, with the rankers of a seed and the answers of a run."""

    world: World
    seed: int
    budget: int  # showings to learn from

    @property
    def rankers(self) -> int:
        """The seed of the rankers."""
        return 0 if self.seed == CHOOSING else self.seed

    def view(self) -> View:
        world = self.world
        return View(world.ensemble(self.rankers), world.kinds, world.limit, world.steps)

    def run(self, way: str, settings: PpoSettings) -> Figures:
        """Of the mean weights, after the training; kept, and not made twice."""
        study, world = self.world.study.study, self.world
        rankers = study.model_file(LONG, self.rankers).name
        own = (way, asdict(settings), self.seed, self.budget)
        key = study.key("PPO", *own, world.limit, world.steps, world.rule.model_dump(), rankers)
        file = world.folder / "ppo" / f"{key}.json"
        try:
            return Figures(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            found = self._made(way, settings)
        write_json(file, asdict(found))
        return found

    def _made(self, way: str, settings: PpoSettings) -> Figures:
        view, control = self.view(), self._control(way)
        users = self.world.users(view.ensemble, self.seed)
        env = StaysVecEnv(
            users,
            self.world.counts,
            view,
            seed=ANSWERS + self.seed,
            control=control,
            served=practice_users(users.n_users).nonzero().squeeze(1),
        )
        policy = trained(env, settings, self.budget, self.seed)
        last = None if control is None else control()
        return self._served(WeightsServer(self.view(), policy, last))

    def fixed(self) -> Figures:
        """Of the weights that PPO begins with."""
        return self._served(WeightsServer(self.view()))

    def random(self) -> Figures:
        generator = torch.Generator().manual_seed(self.seed)
        return self._served(WeightsServer(self.view(), generator=generator))

    def _control(self, way: str) -> Callable[[], OnlineControl] | None:
        if way != CONTROL:
            return None
        study = self.world.study
        return lambda: OnlineControl([study.limits.main(self.world.limit, study.settings)])

    def _served(self, server: WeightsServer) -> Figures:
        return self.world.served_by(server, self.world.users(server.view.ensemble, self.seed))


def chosen(rival: Rival, candidates: Candidates) -> dict[str, PpoSettings]:
    """The best settings of every way: by likes of the users for practice.

    With a penalty first by how near the limit is.
    """
    best: dict[str, PpoSettings] = {}
    for way, some in candidates.items():
        if not some:
            best[way] = best[FREE]
            continue
        found = {}
        for settings in some:
            found[settings] = one = rival.run(way, settings)
            print(
                f"  {way}, {settings}: {one.practice:.2f} likes, popular {100 * one.popular:.1f} %",
                flush=True,
            )
        limit = rival.world.limit if way == PENALTY else 1.0
        over = {own: max(0.0, one.popular - limit - NEAR) for own, one in found.items()}
        best[way] = min(found, key=lambda own: (over[own], -found[own].practice))
        print(f"  {way}: {best[way]} is chosen", flush=True)
    return best


REFERENCES = ("fcpo:long", "stack+likes", "stack+control", "stack")
CAPPED, CAPS = ("stack+likes", "stack+control"), (3, 4)  # so many of a kind in ten
QUICK: Mapping[str, Mapping[str, Any]] = {
    "fcpo": {"rounds": 1, "adapt": False, "looking_ahead": {"pretraining_runs": 1}},
    "likes": {"pretraining_runs": 1},
    "stack": {"adapt": False},
}
KINDS = 6  # of the items of the small market
Row = tuple[str, Figures]


def references(world: World, seed: int) -> Iterator[Row]:
    for method in REFERENCES:
        yield method, world.known(method, seed)
    for cap in CAPS:
        settings = dict(world.settings)
        for name in ("likes", "control"):
            settings[name] = {**settings.get(name, {}), "kind_quota": cap}
        behind = replace(world, settings=settings)
        for method in CAPPED:
            yield f"{method}, {cap} of a kind in 10", behind.known(method, seed)


def budget(world: World, seed: int, long_run: Figures) -> int:
    """Showings that `fcpo:long` learns from, if pretraining runs have as many as the run itself.

    They have fewer: less was learned before them.
    """
    pretraining_runs = world.policy(seed).config.looking_ahead.pretraining_runs
    users = world.study.study.dataset().split.train.n_users
    practice = int(practice_users(users).sum())
    return round((pretraining_runs * practice + users) * long_run.showings)


def rows(world: World, seeds: range, candidates: Candidates | None, more: int) -> Iterator[Row]:
    """Of all seeds, one after the other; settings of PPO are chosen before.

    candidates: settings of PPO; None: the other methods alone.
    """
    settings: dict[str, Any] = {}
    for seed in seeds:
        for name, found in references(world, seed):
            if name == "fcpo:long":
                showings = budget(world, seed, found)
            yield name, found
        if candidates is None:
            continue
        rival = Rival(world, seed, showings)
        if not settings:
            settings = chosen(Rival(world, CHOOSING, showings), candidates)
        yield "the ensemble", rival.fixed()
        yield "random weights", rival.random()
        for way, own in settings.items():
            yield f"PPO, {way}", rival.run(way, own)
            if more:
                larger = replace(rival, budget=more * showings)
                yield f"PPO, {way}, {more} times the showings", larger.run(way, own)


def table(found: Sequence[Row]) -> Iterator[str]:
    """Mean and standard deviation over the seeds."""
    yield "| | likes per user | showings | likes per showing | popular, % | steps over, % |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in dict.fromkeys(name for name, _ in found):
        yield f"| {name} | {cells([one for other, one in found if other == name])} |"


def cells(runs: Sequence[Figures]) -> str:
    columns = [
        spread([one.likes for one in runs], 2),
        spread([one.showings for one in runs], 1),
        spread([one.per_step for one in runs], 3),
        spread([100 * one.popular for one in runs], 1),
        spread([100 * one.over for one in runs], 0),
    ]
    return " | ".join(columns)


def spread(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def small_table(folder: Path, source: str) -> str:
    """A table with kinds of the items of a market that has none."""
    file = folder / "items.csv"
    lines = [f"{item},kind {n % KINDS}" for n, item in enumerate(load(source).item_ids)]
    file.write_text("\n".join(["item,genre", *lines]) + "\n", encoding="utf-8")
    return str(file)


def compare(options: argparse.Namespace, folder: Path) -> None:
    for limit in map(float, options.limits.split(",")):
        world = World(folder, options.data, limit, options.steps)
        if options.small:
            items = small_table(folder, options.data)
            world = replace(world, item_table=items, settings=QUICK)
        print(
            f"\n{options.data}, {options.steps} steps, popular at most {100 * limit:g} %",
            flush=True,
        )
        began, found = time.perf_counter(), []
        candidates = QUICK_CANDIDATES if options.small else CANDIDATES
        if options.no_ppo:
            candidates = None
        for name, one in rows(world, range(options.seeds), candidates, options.more):
            found.append((name, one))
            print(f"  {time.perf_counter() - began:6.0f} s  {name} | {cells([one])}", flush=True)
        print("", *table(found), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--limits", default="0.4,0.2", help="largest shares of popular showings")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--more", type=int, default=0, help="times the showings, in more rows")
    parser.add_argument("--no-ppo", action="store_true", help="the other methods alone")
    parser.add_argument("--out", type=Path, help="keeps models and runs; else they are lost")
    options = parse(parser, limits="0.4", steps=4, seeds=1, out=None)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # notes on the log
    if options.out is not None:
        compare(options, options.out)
        return
    with TemporaryDirectory() as folder:
        compare(options, Path(folder))


if __name__ == "__main__":
    main()
