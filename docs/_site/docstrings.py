"""Extension of the API reference: how our docstrings are read.

A method without a docstring has that of the base class or interface. A paragraph in which every
line begins with the name of a parameter (or continues the line before, further in) explains
parameters:

    source: the name of the set, or the path of a file.
    user, item: the names of the columns.
"""

import re
from collections.abc import Iterable
from typing import Any

import griffe

INTERFACES = ("recommenders.base.OnlineRecommender", "simulation.feedback.UserModel")
NAMED = re.compile(r"[a-z_]\w*(?:, [a-z_]\w*)*: ")


def explains_parameters(paragraph: str) -> bool:
    lines = [line for line in paragraph.splitlines() if not line.startswith("    ")]
    return bool(lines) and all(NAMED.match(line) for line in lines)


def with_lists_apart(text: str) -> str:
    """With an empty line before and after each list, which Markdown asks for."""
    text = re.sub(r"^((?!- | |\n).+)\n(?=- )", r"\1\n\n", text, flags=re.MULTILINE)
    return re.sub(r"^((?:- | ).+)\n(?=[^\s-])", r"\1\n\n", text, flags=re.MULTILINE)


def with_sections(text: str) -> str:
    """The docstring with a section `Args:` for each paragraph on parameters."""
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if number > 0 and explains_parameters(paragraph):  # the first one says what it does
            lines = [f"    {line}" for line in paragraph.splitlines()]
            paragraphs[number] = "\n".join(["Args:", *lines])
        elif "\n- " in paragraph:
            paragraphs[number] = with_lists_apart(paragraph)
    return "\n\n".join(paragraphs)


def inherit_docstrings(owner: griffe.Class, sources: Iterable[griffe.Class]) -> None:
    """Public members without a docstring get that of the first of the classes that has one."""
    for name, member in owner.members.items():
        if member.is_alias or member.has_docstring or name.startswith("_"):
            continue
        for source in sources:
            found = source.members.get(name)
            if found is not None and found.docstring is not None:
                member.docstring = found.docstring
                break


def implements(owner: griffe.Class, interface: griffe.Class) -> bool:
    """Whether a class has all methods of an interface, which need not be a base class."""
    methods = [name for name, member in interface.members.items() if member.is_function]
    return all(name in owner.members for name in methods)


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are rendered."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and (obj.is_function or obj.is_class):
            obj.docstring.value = with_sections(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        interfaces = [pkg[name] for name in INTERFACES]
        modules = [pkg]
        while modules:
            module = modules.pop()
            modules += [one for one in module.modules.values() if not one.is_alias]
            for owner in module.classes.values():
                if not owner.is_alias:
                    met = [one for one in interfaces if implements(owner, one)]
                    inherit_docstrings(owner, [*owner.mro(), *met])
