"""What the documents say is there, is there; the README's example runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def named_in_the_map() -> list[tuple[str, str]]:
    """Pairs (file, name): each `name` belongs to the nearest `file.py` before it on its line."""
    pairs = []
    for line in MAP.splitlines():
        file = ""
        for word in re.findall(r"`([^`]+)`", line):
            if word.endswith(".py"):
                file = word
                pairs.append((file, ""))
            elif file and re.fullmatch(r"[\w.]+", word):
                pairs.append((file, word))
    return pairs


@pytest.mark.parametrize(("file", "name"), named_in_the_map())
def test_the_paper_map_points_at_what_is_there(file: str, name: str) -> None:
    homes = [path for base in ("src/fairhorizon", "tests") if (path := ROOT / base / file).exists()]
    assert len(homes) == 1, f"{file} is in {len(homes)} places"
    source = homes[0].read_text(encoding="utf-8")
    for part in name.split("."):
        assert re.search(rf"\b{part}\b", source), f"{file} has no {part}"


def test_the_map_has_every_equation_and_every_line() -> None:
    equations, rest = MAP.split("## Algorithm 1")
    assert re.findall(r"^\| (\d+) \|", equations, re.MULTILINE) == [str(n) for n in range(1, 19)]
    lines: set[int] = set()
    for first, last in re.findall(r"^\| (\d+)(?:-(\d+))? \|", rest, re.MULTILINE):
        lines |= set(range(int(first), int(last or first) + 1))
    assert lines == set(range(1, 24))


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    small = "synthetic:users=60,items=80,interactions_per_user=20"
    for long, short in (('"ml-100k"', f'"{small}"'), ("rounds=60", "rounds=2")):
        assert long in example
        example = example.replace(long, short)
    exec(compile(example, "README.md", "exec"), {})
    ndcg, popular = map(float, capsys.readouterr().out.split())
    assert 0 < ndcg < 1
    assert 0 < popular < 1


def test_every_command_of_the_readme_is_known() -> None:
    from fairhorizon.cli.app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    used = set(re.findall(r"^ *fairhorizon (\w+)", README, re.MULTILINE))
    assert used
    assert used <= known
