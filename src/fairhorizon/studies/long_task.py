"""One long run of a study: a method, a seed, all steps."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fairhorizon.evaluation.long_term import LongRun
from fairhorizon.evaluation.run_records import by_activity, choosing_users
from fairhorizon.fcpo.online import LongFcpoServer
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.limits.counts import Exposure
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies import rehearsals
from fairhorizon.studies.contestant import Contestant
from fairhorizon.studies.long_rows import RunProgress
from fairhorizon.studies.step_record import EVERY, StepRecord
from fairhorizon.studies.study import Task

if TYPE_CHECKING:
    from fairhorizon.studies.long_term import LongStudy


@dataclass(frozen=True)
class LongTask:
    """One method, one seed, all steps; on from its checkpoint, where a run or a worker ended."""

    long_study: "LongStudy"
    contestant: Contestant
    seed: int

    def prepare(self) -> None:
        self.long_study.study.dataset()

    def record(self) -> StepRecord:
        key = self.long_study.key(self.contestant.method, self.seed)
        folder = self.long_study.study.folder / "steps"
        return StepRecord(folder, self.contestant.label, self.seed, key)

    def is_finished(self) -> bool:
        return self.record().is_finished(self.long_study.settings.steps)

    def rows(self) -> Iterator[RunProgress]:
        """How far it is at every writing; at the last step with the remarks of all steps."""
        record, settings = self.record(), self.long_study.settings
        record.sweep()
        run, remarks = self._begin()
        if not record.restore(run):
            record.look(run.exposure)
        while record.step < settings.steps:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                record.add(run.step())
            remarks += [str(note.message) for note in notes]
            if record.step == settings.steps:
                break
            if record.step % EVERY == 0:
                record.look(run.exposure)
            waiting = record.step % settings.update_every != 0  # to be learned from
            if record.keep(None if waiting else run.tensors):
                yield record.progress()
        record.finish(run)
        yield record.progress([*remarks, *run.server.remarks])

    def _begin(self) -> tuple[LongRun, list[str]]:
        """The run before its first step, and the remarks on its model."""
        study, dataset = self.long_study.study, self.long_study.study.dataset()
        model, _ = Task(study, (self.contestant.method,), self.seed).trained(dataset)
        run = self._run(model, self.seed, self.long_study.simulation)
        if isinstance(run.server, LongFcpoServer):
            self._rehearse(model, run.server)
        return run, [*model.remarks_]

    def _run(
        self,
        model: Recommender,
        seed: int,
        simulation: SimulationConfig | None,
        *,
        learn: bool = True,
    ) -> LongRun:
        """A run of the model before its first step; the seed is of users and server."""
        long_study, method = self.long_study, self.contestant.method
        study, settings, dataset = long_study.study, long_study.settings, long_study.study.dataset()
        further = long_study.limits.steps(study.data, study.cache_dir, settings)
        main = long_study.limits.main(model.alpha_prime, settings)
        server = model.server(
            [main, *further] if model.abilities.limits else [],
            list_length=settings.list_length,
            round_length=long_study.round_length,
            retrain_on=dataset.split if long_study.retrains(method) else None,
            learn=learn and model.abilities.learns,
            seed=self.seed,
            kinds=long_study.kinds_for(model),
        )
        users = long_study.user_source().users(simulation, server.queue_length, seed)
        fixed = dataset.sensitive if study.data.group_column is not None else None
        grouping = None if fixed is None else lambda _: fixed.copy()
        exposure = Exposure(dataset.split.train.item_counts(), grouping, settings.lag)
        activity = by_activity(torch.from_numpy(dataset.split.train.user_counts()))
        can_leave = simulation is not None and simulation.moods is not None
        choosing = choosing_users(users.n_users) if can_leave else None
        return LongRun(server, users, exposure, settings, further, activity, choosing)

    def _rehearse(self, model: Recommender, server: LongFcpoServer) -> None:
        """Let the server learn from recorded runs; users of a log would be the test itself."""
        long_study, outlook = self.long_study, server.outlook
        if long_study.simulation is None:
            return
        patience = server.config.looking_ahead.rehearsal_patience
        simulation = long_study.simulation.with_patience(patience)
        outlook.kinds = long_study.user_source().kinds(simulation.moods)

        def begin(seed: int, outlook: RetentionModel) -> LongRun:
            run = self._run(model, seed, simulation, learn=False)
            assert isinstance(run.server, LongFcpoServer)
            run.server.outlook = outlook
            return run

        file = long_study.study.folder / "models" / f"outlook-{self.record().name}.safetensors"
        count = server.config.rehearsals
        rehearsals.kept(
            outlook, file, lambda: rehearsals.rehearse(outlook, begin, count, self.seed)
        )
