"""The page of the service names every setting with its default."""

import re
import tomllib
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.service.settings import ServiceSettings

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_documented_defaults_are_the_defaults() -> None:
    text = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    written = tomllib.loads(text[1])["service"]
    defaults = ServiceSettings().model_dump(mode="json")
    assert written == {name: value for name, value in defaults.items() if value is not None}
    for name, value in defaults.items():
        assert value is not None or f"# {name} = " in text[1]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("slak = 5", "there is no slak"),
        ("slack = 0", "slack=0: give at least 1"),
        ('counts = "seen"', "counts=seen: give one of served, confirmed"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, fault: str
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f"[service]\n{line}\n")
    assert run(["serve", "--database", str(tmp_path / "x.db"), "--config", str(file)]) == 1
    assert f"{file} [service]: {fault}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x.db").exists()
