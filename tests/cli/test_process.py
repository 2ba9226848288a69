"""The command as a process of its own: signals, pipes and what it imports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairhorizon.cli.app import run

COMMAND = (sys.executable, "-m", "fairhorizon")
MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
SMALL = [
    f"--set={setting}"
    for setting in (
        *("horizon=5", "pmf.dim=8", "gru_hidden=8", "rounds=12"),
        *("actor_hidden=[8,8]", "critic_hidden=[8,8]"),
    )
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def signal_at(process: "subprocess.Popen[str]", line: str, number: signal.Signals) -> str:
    """Send the signal once the line is on stderr; the rest of stderr."""
    assert process.stderr is not None
    for shown in process.stderr:
        if shown.startswith(line):
            process.send_signal(number)
            break
    try:
        return process.communicate(timeout=60)[1]
    finally:
        process.kill()  # should it go on


def test_help_does_not_wait_for_torch() -> None:
    program = (
        "import sys; from fairhorizon.cli.app import run; assert run(['fit', '--help']) == 0; "
        "assert not {'torch', 'numpy', 'polars', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    assert done.returncode == 0


WRONG = {  # commands and their exit codes
    "recommend nosuch --out lists.csv": 1,
    "evaluate nosuch": 1,
    "serve --run nosuch": 1,
    "fit fcpo --data nosuch.csv --out run": 1,
    "longterm --data nosuch.csv": 1,
    "compare --data nosuch": 1,
    "audit nosuch.csv --data synthetic": 1,
    "fit ease --data synthetic --item-table nosuch.csv --out run": 1,
    "fit nosuch --data synthetic --out run": 2,
    "fit ease+nosuch@0.4 --data synthetic --out run": 2,
    "fit ease --data synthetic --out run --limit nosuch": 2,
    "fit ease --data synthetic --out run --nosuch": 2,
    "tune nosuch --data synthetic": 2,
    "levels --data synthetic --methods ease,nosuch": 2,
    "compare --data synthetic --methods ease,fcpo@0.4,nosuch": 2,
    "efficiency --data synthetic --ranker nosuch": 2,
    "methods nosuch": 2,
}


def test_wrong_arguments_are_refused_without_torch(tmp_path: Path) -> None:
    # One after the other in one process, which has not imported torch after the last.
    program = (
        "import sys; from fairhorizon.cli.app import run; "
        f"codes = {{words: run(words.split()) for words in {list(WRONG)}}}; "
        f"assert codes == {WRONG}, codes; assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == len(WRONG)
    assert all("nosuch" in line for line in said)
    assert list(tmp_path.iterdir()) == []


def test_the_shell_completes_commands_and_options() -> None:
    for typed, expected in (("fi", ["fit"]), ("methods --js", ["--json"])):
        words = f"fairhorizon {typed}"
        asked = {"_FAIRHORIZON_COMPLETE": "complete_bash", "COMP_WORDS": words}
        program = (
            "import sys; from fairhorizon.cli.app import run; code = run([]); "
            "assert not {'torch', 'numpy'} & set(sys.modules); sys.exit(code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **asked, "COMP_CWORD": str(words.count(" "))},
        )
        assert done.stdout.split() == expected


@pytest.mark.slow
def test_ctrl_c_in_the_pretraining_leaves_nothing(tmp_path: Path) -> None:
    long = ("--set=pmf.max_epochs=100000", "--set=pmf.patience=100000")
    process = start("fit", "fcpo:paper", MARKET, *SMALL, *long, "--out", tmp_path / "new" / "run")
    rest = signal_at(process, "epoch 2 ", signal.SIGINT)
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "stopped"
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_in_the_rounds_leaves_a_run_and_kill_a_checkpoint(tmp_path: Path) -> None:
    fit = ["fit", "fcpo:paper", MARKET, *SMALL, "--set=pmf.max_epochs=3", "--out"]
    whole, stopped, killed = (tmp_path / name for name in ("whole", "stopped", "killed"))

    process = start(*fit, stopped, "--set=rounds=100000")
    rest = signal_at(process, "     3/100000", signal.SIGINT)
    assert process.returncode == 130
    assert rest.splitlines()[-2:] == ["run the same command with --resume to continue", "stopped"]
    files = ["checkpoint.safetensors", "model.safetensors", "run.json"]
    assert sorted(path.name for path in stopped.iterdir()) == files
    assert run(["evaluate", str(stopped)]) == 0

    process = start(*fit, killed, "--set=rounds=100000")
    # the first checkpoint is that of round 10
    signal_at(process, "    11/100000", signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert "checkpoint.safetensors" in {path.name for path in killed.iterdir()}

    assert run([*fit, str(whole)]) == 0
    expected = (whole / "model.safetensors").read_bytes()
    for folder in (stopped, killed):
        assert run([*fit, str(folder), "--resume"]) == 0
        assert (folder / "model.safetensors").read_bytes() == expected


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    program = tmp_path / "work.py"
    program.write_text(
        "import time\n"
        "from fairhorizon.parallel.engine import Processes\n"
        "class Sleep:\n"
        "    def prepare(self): print('begun', flush=True)\n"
        "    def rows(self): time.sleep(600); yield {}\n"
        "if __name__ == '__main__': list(Processes(2).each([Sleep(), Sleep()]))\n"
    )
    command = [sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "begun\n"]
        process.kill()
        process.communicate(timeout=60)  # the pipe is open as long as anybody could write to it


def test_a_file_goes_to_standard_output_and_notes_do_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(["data", "example", "shop", "--out", "-"]) == 0
    shown = capfd.readouterr()
    header, *rows = shown.out.splitlines()
    assert header == "customer,sku,quantity,ordered,seller"
    assert shown.err == f"-: {len(rows):,} rows of {header.replace(',', ', ')}\n"
    assert run(["methods", "ease", "--json", "-"]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["name"] == "ease"
    assert "Example: fairhorizon fit" in shown.err
    assert run(["methods", "ease"]) == 0  # what is printed is where it was
    assert "Example: fairhorizon fit" in capfd.readouterr().out


@pytest.mark.parametrize("command", ["data split synthetic --out -", "fit ease --data synthetic"])
def test_a_folder_is_no_standard_output(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), *([] if "--out" in command else ["--out", "-"])]) == 1
    assert "standard output" in capsys.readouterr().err
    assert not Path("-").exists()


def test_a_terminal_is_sent_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    """A terminal of its own stands for /dev/tty."""
    ours, terminal = os.openpty()
    name = os.ttyname(terminal)
    try:
        assert run(["methods", "popularity", "--json", name]) == 0
        assert os.read(ours, 10).startswith(b"{")
        assert Path(name).is_char_device()
    finally:
        os.close(ours)
        os.close(terminal)
    assert "Example:" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["data", "info", MARKET[7:]], ["data", "example", "shop", "--out", "-"]],
)
def test_a_reader_that_leaves_early_is_no_traceback(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
