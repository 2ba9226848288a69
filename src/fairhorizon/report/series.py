"""The look of many curves: colour and marker by the method, dashes by its re-ranker."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from fairhorizon.report.figures import COLOURS

# six of Okabe and Ito, then two more that can be seen on white and on black
PALETTE = (*COLOURS, "#8A63D2", "#A0522D")

# matplotlib's name, plotly's name, and the path of an SVG of 10 by 10
# seven, so that with eight colours no two of 56 methods share both
MARKERS = (
    ("o", "circle", "M1 5a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    ("s", "square", "M1.5 1.5h7v7h-7z"),
    ("^", "triangle-up", "M5 1l4.5 8h-9z"),
    ("D", "diamond", "M5 0l5 5-5 5-5-5z"),
    ("v", "triangle-down", "M5 9L.5 1h9z"),
    ("P", "cross", "M3.5 0h3v3.5H10v3H6.5V10h-3V6.5H0v-3h3.5z"),
    ("X", "x", "M2 0l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z"),
)
# lengths of dash and gap in points; solid first
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2))


@dataclass(frozen=True)
class Style:
    """The look of one curve, in every kind of chart."""

    colour: str
    marker: str
    symbol: str
    path: str
    dashes: tuple[int, ...]

    @property
    def plotly_dash(self) -> str:
        return ",".join(f"{length}px" for length in self.dashes) or "solid"

    @property
    def matplotlib_dash(self) -> tuple[int, tuple[int, ...] | None]:
        return 0, self.dashes or None


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A look for each name as `ease+quota`: by `ease` its colour and marker, by `quota` its dashes.

    The same names give the same looks; up to 56 methods with 6 re-rankers no two are alike.
    """
    names = list(names)
    parts = {name: name.partition("+")[::2] for name in names}
    methods = list(dict.fromkeys(method for method, _ in parts.values()))
    rerankers = list(dict.fromkeys(["", *(reranker for _, reranker in parts.values())]))
    if all(parts[name][1] for name in names):  # nothing plain: the first re-ranker may be solid
        rerankers.remove("")
    result = {}
    for name, (method, reranker) in parts.items():
        number = methods.index(method)
        result[name] = Style(
            PALETTE[number % len(PALETTE)],
            *MARKERS[number % len(MARKERS)],
            DASHES[rerankers.index(reranker) % len(DASHES)],
        )
    return result


def legend(charts: str, looks: Mapping[str, Style], *, traces: int = 1) -> str:
    """Buttons that name the curves of a chart, in the order of its traces; a click hides one.

    charts: ids with a space between them; traces: how many, one after the other, a name has.
    """
    entries = "".join(
        f'<button data-chart="{charts}" data-trace="{_numbers(number, traces)}" '
        f'aria-pressed="true">'
        f'<svg width="34" height="12" viewBox="0 0 34 12" aria-hidden="true">'
        f'<path d="M0 6h34" stroke="{look.colour}" stroke-width="2" '
        f'stroke-dasharray="{" ".join(map(str, look.dashes))}"/>'
        f'<path transform="translate(12 1)" d="{look.path}" fill="{look.colour}"/></svg>'
        f"{escape(name)}</button>"
        for number, (name, look) in enumerate(looks.items())
    )
    return f'<div class="legend">{entries}</div>'


def _numbers(position: int, size: int) -> str:
    return " ".join(str(position * size + i) for i in range(size))
