"""PPO as a rival of `fcpo:long`: its ways to treat the limit, and how its settings are chosen."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.files import write_json
from quit_env import StaysVecEnv
from quit_ppo import PpoSettings, WeightsServer, trained
from quit_view import View
from quit_world import LONG, Figures, World

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
        return View(world.panel(self.rankers), world.kinds, world.limit, world.steps)

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
        users = self.world.users(view.panel, self.seed)
        env = StaysVecEnv(users, self.world.counts, view, seed=ANSWERS + self.seed, control=control)
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
        return self.world.served_by(server, self.world.users(server.view.panel, self.seed))


def chosen(rival: Rival, candidates: Candidates) -> dict[str, PpoSettings]:
    """The best settings of every way: by likes, with a penalty first by how near the limit is."""
    best: dict[str, PpoSettings] = {}
    for way, some in candidates.items():
        if not some:
            best[way] = best[FREE]
            continue
        found = {}
        for settings in some:
            found[settings] = one = rival.run(way, settings)
            print(
                f"  {way}, {settings}: {one.likes:.2f} likes, popular {100 * one.popular:.1f} %",
                flush=True,
            )
        limit = rival.world.limit if way == PENALTY else 1.0
        over = {own: max(0.0, one.popular - limit - NEAR) for own, one in found.items()}
        best[way] = min(found, key=lambda own: (over[own], -found[own].likes))
        print(f"  {way}: {best[way]} is chosen", flush=True)
    return best
