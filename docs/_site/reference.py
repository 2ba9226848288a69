"""Hook of the site: the API reference has every public name, each with a docstring.

A page of the reference asks for the names that are defined below a module with a line

    <!-- names: data, vocabulary -->

which becomes the documentation of these names. A name that no page asks for, and a name without a
docstring, end the build.
"""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SOURCE = Path(__file__).parents[2] / "src"
STUB = SOURCE / "fairhorizon" / "__init__.pyi"
ASKED = re.compile(r"^<!-- names: ([\w., ]+) -->$", re.MULTILINE)


def public_names() -> dict[str, str]:
    """The module below fairhorizon that defines each public name, as the stub has it."""
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module or ""
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def names_below(modules: str) -> list[str]:
    """Public names that are defined in these modules or below them, separated by commas.

    In the order of the stub, but a class comes before its settings, and these before constants.
    """
    homes = public_names()
    places = {name: re.sub(r"\.(config|model|server)$", "", home) for name, home in homes.items()}
    known = list(places.values())
    found = []
    for module in (module.strip() for module in modules.split(",")):
        own = [name for name, home in homes.items() if f"{home}.".startswith(f"{module}.")]
        found += sorted(
            own,
            key=lambda name: (known.index(places[name]), name.isupper(), name.endswith("Config")),
        )
    return found


@cache
def package() -> griffe.Module:
    """The source, read as mkdocstrings reads it."""
    extensions = griffe.load_extensions(str(Path(__file__).with_name("docstrings.py")))
    found = griffe.load(
        "fairhorizon", search_paths=[SOURCE], resolve_aliases=True, extensions=extensions
    )
    assert isinstance(found, griffe.Module)
    return found


def undocumented() -> list[str]:
    """Public names without a docstring, and public methods of public classes."""
    found = []
    for name, home in public_names().items():
        named = package()[f"{home}.{name}"]
        members = named.all_members if named.is_class else {}
        methods = {
            f"{name}.{key}": member
            for key, member in members.items()
            if not key.startswith("_") and (member.is_function or "property" in member.labels)
        }
        every = {name: named, **methods}
        found += [key for key, member in every.items() if not member.has_docstring]
    return found


def problems(texts: Iterable[str]) -> list[str]:
    """What is wrong with the reference that these pages make."""
    asked = [
        name for text in texts for modules in ASKED.findall(text) for name in names_below(modules)
    ]
    found = {
        "in no page of docs/reference": sorted(public_names().keys() - set(asked)),
        "in several pages": sorted({name for name in asked if asked.count(name) > 1}),
        "without a docstring": undocumented(),
    }
    return [f"{what}: {', '.join(names)}" for what, names in found.items() if names]


def on_files(files: Files, config: MkDocsConfig) -> None:  # noqa: ARG001
    found = problems(file.content_string for file in files.documentation_pages())
    if found:
        raise PluginError(f"public names {'; '.join(found)}")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    homes = public_names()

    def documented(found: re.Match[str]) -> str:
        lines = [f"::: fairhorizon.{homes[name]}.{name}" for name in names_below(found[1])]
        return "\n\n".join(lines)

    return ASKED.sub(documented, markdown)
