"""The progress lines of long runs."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairhorizon.cli.progress import Progress, time_and_tasks

if TYPE_CHECKING:
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.long_results import RunProgress
    from fairhorizon.studies.long_term import LongStudy, NamedMethod
    from fairhorizon.studies.rows import TrainingRow

PAUSE = 20.0  # seconds between two progress lines, if nothing else is printed;
REDRAWN = 0.5  # on a terminal, where the line is redrawn


class News:
    """A line for every training and every run, and in between the number of steps done."""

    def __init__(
        self,
        progress: Progress,
        long_study: "LongStudy",
        chosen: "Sequence[NamedMethod]",
        seeds: Sequence[int],
        engine: "TaskEngine",
    ) -> None:
        self.progress, self.long_study = progress, long_study
        self.chosen, self.seeds, self.engine = chosen, seeds, engine
        self.runs, self.done = len(chosen) * len(seeds), 0
        self.begin = self.last = time.monotonic()

    def of_model(self, row: "TrainingRow") -> None:
        self.say(f"{row.name}  trained in {row.seconds:.0f} s")

    def of_run(self, run: "RunProgress") -> None:
        self.done += 1
        shares = {
            "NDCG": run.ndcg,
            "Gini": run.gini,
            self.long_study.study.data.group_name: run.limited_rate,
            "steps over the limit": run.violation_share,
        }
        text = "  ".join(f"{name} {percent(value)}" for name, value in shares.items())
        self.say(
            f"{self.done}/{self.runs}  {run.method} seed {run.seed}  {text}  "
            f"({time_and_tasks(self.begin, self.engine)})"
        )
        for remark in run.remarks[:1]:
            more = len(run.remarks) - 1
            others = f" (and {more} more like it, from other rounds)" if more else ""
            self.say(f"note: {run.method} seed {run.seed}: {remark}{others}")

    def meanwhile(self) -> None:
        is_terminal = self.progress.console.is_terminal
        if time.monotonic() - self.last < (REDRAWN if is_terminal else PAUSE):
            return
        done = self.long_study.steps_done(self.chosen, self.seeds)
        total = self.runs * self.long_study.settings.steps
        words = f"{done}/{total} steps  ({time_and_tasks(self.begin, self.engine)})"
        self.progress.line(words, done=done, total=total)
        self.last = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line that is not redrawn."""
        self.last = time.monotonic()
        self.progress.say(line)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
