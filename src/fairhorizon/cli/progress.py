"""The live line of a training: redrawn on a terminal, plain lines elsewhere."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

STOPPED = 130  # exit code after Ctrl-C, as shells have it

if TYPE_CHECKING:
    from fairhorizon.agents.fcpo.learning.training import RoundReport


def round_line(report: "RoundReport", rounds: int) -> str:
    """Round, reward, cost against limit, KL, case, step and validation of one round."""
    line = (
        f"{report.round:>{len(str(rounds))}}/{rounds}  reward {report.reward:.3f}  "
        f"cost {report.cost:.3f}/{report.limit:.3f}  KL {report.kl:.4f}  "
        f"{report.case} step {report.fraction:.2g}"
    )
    if report.validation is not None:
        line += f"  NDCG {report.validation:.4f}"
    return line


class Progress:
    """Shows epoch after epoch and round after round."""

    def __init__(self, rounds: int = 0, label: str = "") -> None:
        self.rounds, self.label = rounds, label
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, transient=True, auto_refresh=False)

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, report: "RoundReport") -> None:
        self.line(round_line(report, self.rounds))

    def show_epoch(self, epoch: int, ndcg: float) -> None:
        self.line(f"epoch {epoch}  validation NDCG {ndcg:.4f}")

    def show_error(self, epoch: int, rmse: float) -> None:
        self.line(f"epoch {epoch}  validation RMSE {rmse:.4f}")

    def line(self, text: str) -> None:
        line = self.label + text
        if self.console.is_terminal:
            self.live.update(Text(line, overflow="ellipsis", no_wrap=True), refresh=True)
        else:
            print(line, file=self.console.file, flush=True)


class Interrupt:
    """Whether Ctrl-C has been pressed."""

    pressed = False


@contextmanager
def patient_interrupt() -> Iterator[Interrupt]:
    """The first Ctrl-C only asks to stop after the present round; a second one stops at once."""
    asked = Interrupt()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.pressed = True
        # Not print, which may be in the middle of a line of its own when the signal comes.
        os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)
