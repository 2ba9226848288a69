"""The site builds strictly, has every public name, and loads nothing from elsewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import fairhorizon

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNREAD = re.compile(r"^(?:- |\d+\. |\|)", re.MULTILINE)  # lists and tables


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"docs/_site/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docstrings, reference, sources = map(hook, ("docstrings", "reference", "sources"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """Pages that are written, not those of source files."""
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if path.relative_to(site).parts[0] != "source"
    }


def test_every_document_is_a_page(pages: dict[str, str]) -> None:
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    expected = {path.with_suffix(".html").as_posix() for path in documents}
    assert pages.keys() == expected | {"contributing.html", "changelog.html", "404.html"}


def test_every_public_name_is_in_the_reference(pages: dict[str, str]) -> None:
    found = {
        identifier.rpartition(".")[2]
        for name, page in pages.items()
        if name.startswith("reference/")
        for identifier in re.findall(r'<h2 id="(fairhorizon\.[\w.]+)"', page)
    }
    assert found == set(fairhorizon.__all__)


def test_methods_of_models_are_in_the_reference(pages: dict[str, str]) -> None:
    """Those of the base class, and those that have its docstrings."""
    for name in ("fit", "recommend", "with_level", "online", "save", "load"):
        assert f'id="fairhorizon.fcpo.model.Fcpo.{name}"' in pages["reference/models.html"]


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"?([^\">]+)", page)
        loaded += re.findall(r"<link[^>]* href=\"?([^\">]+)", page)
        assert [link for link in loaded if "//" in link] == [], name


def test_no_list_or_table_is_left_as_text(pages: dict[str, str]) -> None:
    """Markdown of the site asks for an empty line before a list or a table."""
    for name, page in pages.items():
        text = re.sub(r"<pre.*?</pre>|<!--.*?-->", "", page, flags=re.DOTALL)
        paragraphs = re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
        left = [paragraph for paragraph in paragraphs if UNREAD.search(paragraph)]
        assert left == [], name


def test_source_pages_have_the_lines_of_the_file(site: Path) -> None:
    page = (site / "source/examples/fcpo_in_one_file.py.html").read_text(encoding="utf-8")
    assert "in closed form: the step is" in page


def test_the_words_of_the_glossary_are_those_of_contributing(pages: dict[str, str]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("[start:words]")[2].partition("<!--")[0]
    words = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    assert len(words) > 10
    for word in words[1:]:
        assert f"<td>{word}</td>" in pages["glossary.html"]


def test_the_build_is_strict() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.BaseLoader)
    assert config["strict"] == "true"
    assert set(config["validation"]["links"].values()) == {"warn"}


# The hooks


def test_a_name_that_is_missing_or_undocumented_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "__init__.pyi"
    stub.write_text(
        "from .data.splits import split as split\n"
        "from .metrics.accuracy import EMPTY as EMPTY\n"  # has no docstring
        "from .recommenders.ranked.by_user import Round as Round\n"  # one of its methods has none
        "from .ranking import first_best as first_best\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(reference, "STUB", stub)
    pages = ["<!-- names: recommenders, data, metrics -->\n", "<!-- names: data.splits -->\n"]
    assert reference.problems(pages) == [
        "in no page of docs/reference: first_best",
        "in several pages: split",
        "without a docstring: EMPTY, Round.tensors",
    ]


def test_links_to_files_become_links_to_pages() -> None:
    text = (
        "[a](../src/fairhorizon/ranking.py) [b](limits.md#x) [c](../no/file.py) [d](https://e.f/)"
    )
    assert sources.with_page_links(text, "long-run.md", "docs") == (
        "[a](source/src/fairhorizon/ranking.py.md) [b](limits.md#x) [c](../no/file.py) "
        "[d](https://e.f/)"
    )
    assert sources.linked_sources(text, "docs") == {"src/fairhorizon/ranking.py"}
    assert sources.with_page_links("[x](docs/limits.md)", "changelog.md", ".") == "[x](limits.md)"
    deep = sources.with_page_links("[x](../../tests/conftest.py)", "how-to/a.md", "docs/how-to")
    assert deep == "[x](../source/tests/conftest.py.md)"


def test_parameters_of_a_docstring_become_a_section() -> None:
    text = (
        "One line: what it does.\n\nMore words.\n\nlog, other: the logs.\nks: lengths of lists;"
        "\n    the longest last.\n\nReturns: nothing."
    )
    assert docstrings.with_sections(text) == (
        "One line: what it does.\n\nMore words.\n\nArgs:\n    log, other: the logs.\n"
        "    ks: lengths of lists;\n        the longest last.\n\nReturns: nothing."
    )


def test_a_list_in_a_docstring_stands_apart() -> None:
    text = "What.\n\nIt holds that:\n- one is\n  first,\n- two next.\nNo more."
    apart = "What.\n\nIt holds that:\n\n- one is\n  first,\n- two next.\n\nNo more."
    assert docstrings.with_sections(text) == apart


def test_parameters_are_in_the_reference(pages: dict[str, str]) -> None:
    text = re.sub(r"<[^>]+>", "", pages["reference/data.html"])
    assert re.search(r"test_share\s+\(?float.*?the share of each user's items", text, re.DOTALL)
