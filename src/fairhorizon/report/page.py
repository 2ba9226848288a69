"""One self-contained HTML page: tables and interactive charts, nothing loaded from a network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.files import write_atomically
from fairhorizon.report.charts import CONFIG, ON_PAGE, VEGA_LITE, Chart
from fairhorizon.report.tables import (
    N_WORDS,
    Grid,
    as_read,
    group_items,
    group_of,
    metric_columns,
    table_headings,
    table_lines,
    units,
)
from fairhorizon.vocabulary import POPULAR

BETTER = {"more": "more is better", "less": "less is fairer", "zero": "0 is parity"}

# what a result row may name, and what it means
SETTINGS = {
    "standard": "protocol: items of a user's history are never recommended again",
    "paper": "protocol: training items stay recommendable, as in the paper's public code",
    "one-shot": "mode: each user's whole list at once, as a service hands it out",
    "interactive": "mode: step by step, the user's feedback entering the state in between",
}


class Part(Protocol):
    """What a section holds: rendered by a template of its own, as `part`."""

    template: ClassVar[str]


@dataclass(frozen=True)
class Folded:
    """A table that opens by a click on its summary."""

    template: ClassVar[str] = "folded.html.j2"

    summary: str
    grid: Grid
    is_open: bool = False


@dataclass(frozen=True)
class Heading:
    template: ClassVar[str] = "heading.html.j2"

    text: str


@dataclass(frozen=True)
class Definitions:
    """Names, each with its meaning."""

    template: ClassVar[str] = "definitions.html.j2"

    meanings: Mapping[str, str]


@dataclass(frozen=True)
class Commands:
    template: ClassVar[str] = "commands.html.j2"

    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A part of the page under a title, with a note below; all texts are plain."""

    title: str
    parts: Sequence[Part]
    note: str = ""


def results_section(
    rows: Sequence[EvaluationRow], metrics: Sequence[str], ks: Sequence[int]
) -> Section:
    """The result rows as a table, one line per row and K."""
    headings = table_headings(metrics, group=group_of(rows))
    lines = [[as_read(text) for text in line] for line in table_lines(rows, metrics, ks)]
    note = f"{units(metrics)} Compare only lines of the same protocol and the same mode."
    return Section("Results", [Grid(headings, lines, len(headings) - N_WORDS)], note)


def glossary_section(
    metrics: Sequence[str], measured_under: Iterable[str], group: str = POPULAR
) -> Section:
    """The meaning of each number of the table, and of the protocols and modes used."""
    columns = metric_columns(group)
    meanings = {
        columns[name].heading: f"{columns[name].meaning}; {BETTER[columns[name].better]}"
        for name in metrics
    }
    used = set(measured_under)
    meanings |= {name: meaning for name, meaning in SETTINGS.items() if name in used}
    meanings["alpha'"] = f"the limit: the largest share of {group_items(group)} in a list"
    meanings["Seed"] = "the seed of all random numbers of that line"
    return meanings_section(meanings)


def meanings_section(meanings: Mapping[str, str]) -> Section:
    """A glossary: each name with what it means."""
    return Section("What the numbers mean", [Definitions(meanings)])


def commands_section(commands: Sequence[str]) -> Section:
    """The commands that made the page."""
    return Section("Made by", [Commands(commands)])


def write_page(
    path: str | Path, *, title: str, finding: str, intro: str, sections: Sequence[Section]
) -> Path:
    """Write the sections, in order, as one HTML file; an interrupted write changes nothing.

    finding: the sentence that the page opens with, what was found and whether limits were kept.
    """
    path, document = Path(path), rendered(title, finding, intro, sections)
    write_atomically(path, lambda temporary: temporary.write_text(document, encoding="utf-8"))
    return path


def rendered(title: str, finding: str, intro: str, sections: Sequence[Section]) -> str:
    """The page as HTML. The library that draws is included if there is a chart."""
    if len({section.title for section in sections}) < len(sections):
        raise ValueError("two sections of a page have the same title")
    has_chart = any(isinstance(part, Chart) for section in sections for part in section.parts)
    style = files("fairhorizon.report") / "style"
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            finding=finding,
            intro=intro,
            sections=sections,
            style=Markup((style / "page.css").read_text(encoding="utf-8")),
            script=Markup((style / "page.js").read_text(encoding="utf-8")),
            library=Markup(drawing_library()) if has_chart else "",
            config=CONFIG | ON_PAGE,
        )
    )


@cache
def drawing_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script without imports."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE).replace(
        "</script", "<\\/script"
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fairhorizon.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
