"""One self-contained HTML page: tables and interactive charts, nothing loaded from a network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.files import write_atomically
from fairhorizon.limits.measured import Verdict
from fairhorizon.report.charts import CONFIG, ON_PAGE, VEGA_LITE, Chart
from fairhorizon.report.tables import (
    N_WORDS,
    Cell,
    Grid,
    as_read,
    group_items,
    group_of,
    metric_columns,
    table_headings,
    table_lines,
    units,
)
from fairhorizon.studies.rows import SampleItem, SampleLists
from fairhorizon.vocabulary import POPULAR

MARK = "●"  # behind an item of the group
LIGHTS_NOTE = (
    "Green: kept. Red: not kept. Amber: kept by whole lists, but not where people look first. "
    "Weighed by place: a showing counts 1 / log2(1 + rank)."
)
BETTER = {"more": "more is better", "less": "less is fairer", "zero": "0 is parity"}

# What a result row may name, and what it means.
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
class Lights:
    """Rules with their verdicts, a coloured light before each."""

    template: ClassVar[str] = "lights.html.j2"

    verdicts: Sequence[Verdict]


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


def verdicts_section(verdicts: Sequence[Verdict], title: str = "Were the rules kept?") -> Section:
    """A light per rule, and what each colour means."""
    return Section(title, [Lights(verdicts)], LIGHTS_NOTE)


def sample_section(sample: SampleLists) -> Section:
    """The lists of one user side by side."""
    lines = [
        [Cell(str(place), place), *(Cell(_marked_item(items, place)) for items in sample.lists)]
        for place in range(1, max(map(len, sample.lists)) + 1)
    ]
    note = f"A user whose lists are as those of most. {MARK} {sample.group}."
    table = Grid(["Place", *sample.headings], lines, 0)
    return Section(f"The lists of user {sample.user}", [table], note)


def _marked_item(items: Sequence[SampleItem], place: int) -> str:
    if place > len(items):
        return ""
    item = items[place - 1]
    return f"{item.title} {MARK}" if item.in_group else item.title


def meanings_section(meanings: Mapping[str, str]) -> Section:
    """A glossary: each name with what it means."""
    return Section("What the numbers mean", [Definitions(meanings)])


def commands_section(commands: Sequence[str]) -> Section:
    """The commands that made the page."""
    return Section("Made by", [Commands(commands)])


@dataclass(frozen=True)
class Page:
    """A report as one HTML file, which loads nothing from anywhere.

    finding: the sentence that it opens with: what was found, and whether limits were kept.
    intro: what the page is about.
    sections: what a reader looks for, in this order.
    details: everything else, below and folded; tables alone, as a chart has to be seen to be drawn.
    """

    title: str
    finding: str
    intro: str
    sections: Sequence[Section]
    details: Sequence[Section] = ()

    def html(self) -> str:
        """The whole document. The library that draws is included if there is a chart."""
        every = [*self.sections, *self.details]
        if len({section.title for section in every}) < len(every):
            raise ValueError("two sections of a page have the same title")
        style = files("fairhorizon.report") / "style"
        return (
            _environment()
            .get_template("page.html.j2")
            .render(
                page=self,
                style=Markup((style / "page.css").read_text(encoding="utf-8")),
                script=Markup((style / "page.js").read_text(encoding="utf-8")),
                library=Markup(drawing_library()) if any(map(_has_chart, every)) else "",
                config=CONFIG | ON_PAGE,
            )
        )

    def write(self, path: str | Path) -> Path:
        """Write the page; an interrupted write changes nothing."""
        path, document = Path(path), self.html()
        write_atomically(path, lambda temporary: temporary.write_text(document, encoding="utf-8"))
        return path

    def _repr_html_(self) -> str:
        """For a notebook: in a frame, as the page brings its own style and scripts."""
        frame = "width: 100%; height: 80vh; border: 0"
        return f'<iframe srcdoc="{escape(self.html())}" style="{frame}"></iframe>'


def _has_chart(section: Section) -> bool:
    return any(isinstance(part, Chart) for part in section.parts)


@cache
def drawing_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script without imports."""
    import vl_convert

    # A script element ends at the first "</script", wherever it stands.
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
