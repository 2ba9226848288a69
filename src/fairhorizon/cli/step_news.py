"""What is said while long runs go on."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairhorizon.cli.progress import Progress

if TYPE_CHECKING:
    from fairhorizon.experiments.long_term import Contestant, LongStudy
    from fairhorizon.experiments.step_record import Row
    from fairhorizon.results.studies import TrainingRow

PAUSE = 20.0  # seconds between two lines that say how far it is, where nothing else is said;
REDRAWN = 0.5  # on a terminal, where it is the same line
BAR = 24  # characters


class News:
    """A line for every training and every run, and in between how far all of them are."""

    def __init__(
        self,
        progress: Progress,
        long_study: "LongStudy",
        chosen: "Sequence[Contestant]",
        seeds: Sequence[int],
    ) -> None:
        self.progress, self.long_study = progress, long_study
        self.chosen, self.seeds = chosen, seeds
        self.runs, self.done = len(chosen) * len(seeds), 0
        self.begin = self.last = time.monotonic()

    def of_model(self, row: "TrainingRow") -> None:
        self.say(f"{row.name}  trained in {row.seconds:.0f} s")

    def of_run(self, row: "Row") -> None:
        self.done += 1
        shares = {
            "NDCG": row["ndcg"],
            "Gini": row["gini"],
            "popular": row["popularity_rate"],
            "steps over the limit": row["violation_share"],
        }
        said = "  ".join(f"{name} {percent(value)}" for name, value in shares.items())
        self.say(
            f"{self.done}/{self.runs}  {row['method']} seed {row['seed']}  {said}  "
            f"({time.monotonic() - self.begin:.0f} s so far)"
        )
        for remark in row["remarks"][:1]:
            more = len(row["remarks"]) - 1
            others = f" (and {more} more of this kind, of other rounds)" if more else ""
            self.say(f"note: {row['method']} seed {row['seed']}: {remark}{others}")

    def meanwhile(self) -> None:
        is_terminal = self.progress.console.is_terminal
        if time.monotonic() - self.last < (REDRAWN if is_terminal else PAUSE):
            return
        done = self.long_study.steps_done(self.chosen, self.seeds)
        total = self.runs * self.long_study.settings.steps
        full = BAR * done // total
        bar = f"{'█' * full}{'·' * (BAR - full)}  " if is_terminal else ""
        self.progress.line(f"{bar}{done}/{total} steps  ({time.monotonic() - self.begin:.0f} s)")
        self.last = time.monotonic()

    def say(self, line: str) -> None:
        """A line that stays."""
        self.last = time.monotonic()
        if self.progress.console.is_terminal:
            self.progress.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
