"""The progress of anything long: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from fairhorizon.recommenders.progress import Listener, RoundReport, StepDetails

if TYPE_CHECKING:
    from fairhorizon.parallel.engine import TaskEngine

STOPPED = 130  # exit code after Ctrl-C, by the convention of shells
CONTINUE = "run the same command with --resume to continue"


def round_line(report: RoundReport) -> str:
    """Round, reward, cost against limit, KL, case, step and validation of one round."""
    line = (
        f"{report.round:>{len(str(report.rounds))}}/{report.rounds}  reward {report.reward:.3f}  "
        f"cost {report.cost:.3f}/{report.limit:.3f}  KL {report.kl:.4f}  "
        f"{report.case} step {report.fraction:.2g}"
    )
    if report.validation is not None:
        line += f"  NDCG {report.validation:.4f}"
    return line


def details_line(details: StepDetails) -> str:
    """The numbers behind a step: see docs/training.md."""
    trust = "-" if details.trust_multiplier is None else f"{details.trust_multiplier:.4g}"
    words = {
        "q": f"{details.q:.4g}",
        "r": _numbers(details.r),
        "s": _numbers(details.s),
        "lambda": trust,
        "nu": _numbers(details.cost_multipliers),
        "line search": f"{details.attempts} tried",
    }
    return "  ".join(f"{name} {number}" for name, number in words.items())


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def time_and_tasks(begin: float, engine: "TaskEngine") -> str:
    """The time since the beginning, and how far the tasks of all nodes are."""
    tasks = f", {engine.progress}" if engine.progress else ""
    return f"{time.monotonic() - begin:.0f} s so far{tasks}"


class Progress(Listener):
    """Shows every epoch and every round."""

    def __init__(
        self, label: str = "", *, verbose: bool = False, console: Console | None = None
    ) -> None:
        self.label, self.verbose = label, verbose
        self.present, self.metric = "", "NDCG"  # stage, and what its epochs report
        self.console = console or Console(stderr=True)
        text = TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        )
        self.bar = RichProgress(
            *(BarColumn(bar_width=12), text),
            console=self.console,
            transient=True,
            expand=True,
        )
        self.task = self.bar.add_task("", total=None)

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def stage(self, text: str, metric: str = "NDCG") -> None:
        self.present, self.metric = text, metric
        self.say(text)

    def epoch(self, number: int, value: float) -> None:
        self.line(f"epoch {number}  validation {self.metric} {value:.4f}")

    def round(self, report: RoundReport) -> None:
        if self.verbose and report.details is not None:
            self.say(f"{round_line(report)}  {details_line(report.details)}")
        else:
            self.line(round_line(report), done=report.round, total=report.rounds)

    def say(self, text: str) -> None:
        """Print a line that is not redrawn."""
        if self.console.is_terminal:
            self.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=self.console.file, flush=True)

    def line(self, text: str, *, done: int | None = None, total: int | None = None) -> None:
        """Redraw the live line, or print it where there is no terminal.

        done, total: how full the bar is; without a total it moves to and fro.
        """
        line = self.label + text
        if self.console.is_terminal:
            self.bar.update(
                self.task, description=line, completed=done, total=total or None, refresh=True
            )
        else:
            print(line, file=self.console.file, flush=True)
