"""One self-contained HTML page: tables and interactive charts, nothing loaded from a network."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.io import to_html
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from fairhorizon.files import write_atomically
from fairhorizon.metrics.fairness import lorenz_curve
from fairhorizon.report.figures import COLOURS, GREY, exposure_label
from fairhorizon.report.look import SCRIPT, STYLE
from fairhorizon.report.tables import (
    N_WORDS,
    group_items,
    group_of,
    metric_columns,
    table_headings,
    table_lines,
    units,
)
from fairhorizon.results.evaluation import EvaluationRow, TrainingHistory
from fairhorizon.vocabulary import POPULAR

MAX_POINTS = 500  # of a Lorenz curve: what a screen can show

BETTER = {"more": "more is better", "less": "less is fairer", "zero": "0 is parity"}

# what a result row may name, and what it means
SETTINGS = {
    "standard": "protocol: items of a user's history are never recommended again",
    "paper": "protocol: training items stay recommendable, as in the paper's public code",
    "one-shot": "mode: each user's whole list at once, as a service hands it out",
    "interactive": "mode: step by step, the user's feedback entering the state in between",
}


@dataclass(frozen=True)
class Section:
    """A part of the page: `html` is ready markup, title and note are plain text."""

    title: str
    html: str
    note: str = ""


def results_section(
    rows: Sequence[EvaluationRow], metrics: Sequence[str], ks: Sequence[int]
) -> Section:
    """The result rows as a table, one line per row and K."""
    headings = table_headings(metrics, group=group_of(rows))
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "\n".join(
        f"<tr{' class=first' if number % len(ks) == 0 else ''}>"
        + "".join(
            f"<td{' class=number' if position >= N_WORDS else ''}>{escape(cell)}</td>"
            for position, cell in enumerate(line)
        )
        + "</tr>"
        for number, line in enumerate(table_lines(rows, metrics, ks))
    )
    table = f"<table class=plain><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    note = f"{units(metrics)} Compare only lines of the same protocol and the same mode."
    return Section("Results", f'<div class="scroll">{table}</div>', note)


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
    entries = "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(meaning)}</dd></div>"
        for name, meaning in meanings.items()
    )
    return Section("What the numbers mean", f"<dl>{entries}</dl>")


def commands_section(commands: Sequence[str]) -> Section:
    """The commands that made the page."""
    return Section("Made by", f"<pre><code>{escape(chr(10).join(commands))}</code></pre>")


def training_section(histories: Mapping[str, TrainingHistory]) -> Section:
    """Interactive reward and cost over the rounds, each cost with its limit."""
    chart = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, x_title="Training round"
    )
    for colour, (label, history) in zip(cycle(COLOURS), histories.items(), strict=False):
        name, rounds = verbatim(label), list(history.rounds)
        for row, values in enumerate((history.reward, history.cost), 1):
            chart.add_scatter(
                x=rounds,
                y=list(values),
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                mode="lines",
                line={"color": colour, "width": 2},
                hovertemplate="%{y:.2f}",
                row=row,
                col=1,
            )
        if math.isfinite(history.limit):
            chart.add_scatter(
                x=[*rounds[:1], *rounds[-1:]],
                y=[history.limit] * 2,
                name=f"limit of {name}",
                legendgroup=name,
                showlegend=False,
                mode="lines",
                line={"color": colour, "width": 1.5, "dash": "dash"},
                row=2,
                col=1,
            )
    chart.update_yaxes(rangemode="tozero")
    chart.update_yaxes(title_text="Reward", row=1)
    chart.update_yaxes(title_text="Cost", row=2)
    note = "Both per trajectory. Dashed: the limit on cost that training has to keep."
    return chart_section("Training", chart, note, height=560)


def exposure_section(
    counts_by_label: Mapping[str, NDArray[Any]],
    members: NDArray[np.bool_],
    group: str = POPULAR,
) -> Section:
    """Interactive Lorenz curves of exposure."""
    chart = go.Figure()
    chart.add_scatter(
        x=[0, 1],
        y=[0, 1],
        name="all items alike",
        mode="lines",
        line={"color": GREY, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    for colour, (label, counts) in zip(cycle(COLOURS), counts_by_label.items(), strict=False):
        catalogue, exposure = lorenz_curve(counts)
        kept = thinned(counts.size + 1, MAX_POINTS + 1)
        chart.add_scatter(
            x=catalogue[kept].tolist(),
            y=exposure[kept].tolist(),
            name=verbatim(exposure_label(label, counts, members, group)),
            mode="lines",
            line={"color": colour, "width": 2},
            hovertemplate="%{y:.1%}",
        )
    shares = {"tickformat": ".0%", "dtick": 0.2, "range": [0, 1]}
    chart.update_xaxes(title_text="Share of the catalogue, least shown items first", **shares)
    chart.update_yaxes(title_text="Share of all exposure", **shares)
    note = (
        "The nearer a curve is to the dashed line, the more evenly items are shown; the Gini index "
        "is twice the area between the two."
    )
    return chart_section("Distribution of exposure", chart, note, height=480)


def thinned(size: int, most: int) -> NDArray[np.int64]:
    """Which of `size` points to draw: at most `most`, evenly spread, the first and last too."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def panels(parts: Sequence[Section]) -> str:
    """Small charts side by side, or one below the other on a phone, each under its heading."""
    entries = "\n".join(
        f'<div><h3>{escape(part.title)}</h3><p class="note">{escape(part.note)}</p>'
        f"{part.html}</div>"
        for part in parts
    )
    return f'<div class="panels{" single" if len(parts) == 1 else ""}">{entries}</div>'


def chart_section(
    title: str, chart: go.Figure, note: str = "", *, height: int = 440, **layout: Any
) -> Section:
    """Any plotly figure as a section in the look of the page; `layout` in place of its own."""
    chart.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 24, "t": 12, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        hoverlabel={"bgcolor": "white", "font": {"color": "#1c2024"}, "namelength": -1},
    )
    chart.update_layout(**layout)
    chart.update_xaxes(gridcolor=GREY, zeroline=False)
    chart.update_yaxes(gridcolor=GREY, zeroline=False)
    html = to_html(
        chart,
        config={"responsive": True, "displayModeBar": False},
        include_plotlyjs=False,
        full_html=False,
        div_id=chart_id(title),
    )
    return Section(title, html, note)


def chart_id(title: str) -> str:
    """The id of the chart under a title: the same page, byte for byte, every time."""
    return f"chart-{crc32(title.encode()):08x}"


def write_page(path: str | Path, *, title: str, intro: str, sections: Sequence[Section]) -> Path:
    """Write the sections, in order, as one HTML file; an interrupted write changes nothing."""
    if len({section.title for section in sections}) < len(sections):
        raise ValueError("two sections of a page have the same title")
    path, document = Path(path), _document(title, intro, sections)
    write_atomically(path, lambda temporary: temporary.write_text(document, encoding="utf-8"))
    return path


def verbatim(text: str) -> str:
    """Plotly reads names as markup; shown as written, angle brackets have to be escaped."""
    return escape(text, quote=False)


def _document(title: str, intro: str, sections: Sequence[Section]) -> str:
    body = "\n".join(
        f"<section><h2>{escape(section.title)}</h2>\n{section.html}\n"
        + (f'<p class="note">{escape(section.note)}</p>' if section.note else "")
        + "</section>"
        for section in sections
    )
    # the policy makes the browser itself refuse any load from a network
    policy = (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<script>{get_plotlyjs()}</script>
<script>{SCRIPT}</script>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1><p>{escape(intro)}</p></header>
{body}
</main>
</body>
</html>
"""
