"""The style of every method on a page: colour and shape by its model, dashes by its re-ranker."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairhorizon.vocabulary import MethodName

# six of Okabe and Ito for colour-blind readers, then two more; all can be seen on white and black
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#8A63D2", "#A0522D"),
)
GREY = "#808080"  # of what is no method; can be read on white and on black
BROKEN = "#C2185B"  # of a limit that is broken; no method has it

# paths in a square from -1 to 1; seven, so that with eight colours no two of 56 models share both
SHAPES = (
    "M-.8 0a.8 .8 0 1 0 1.6 0a.8 .8 0 1 0 -1.6 0z",
    "M-.7 -.7h1.4v1.4h-1.4z",
    "M0 -.8L.9 .8h-1.8z",
    "M0 -1L1 0L0 1L-1 0z",
    "M0 .8L-.9 -.8h1.8z",
    "M-.3 -1h.6v.7h.7v.6h-.7v.7h-.6v-.7h-.7v-.6h.7z",
    "M-.6 -1L0 -.4L.6 -1L1 -.6L.4 0L1 .6L.6 1L0 .4L-.6 1L-1 .6L-.4 0L-1 -.6z",
)
# lengths of dash and gap in pixels; solid first
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2))


@dataclass(frozen=True)
class Style:
    """How a method is drawn, in every chart of a page."""

    colour: str
    shape: str = SHAPES[0]  # an SVG path in a square from -1 to 1
    dashes: tuple[int, ...] = ()


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name: `ease` and `ease+quota` share colour and shape, not the dashes.

    The same names give the same styles; up to 56 models with 6 re-rankers no two are alike.
    """
    parts = {name: MethodName.split(name) for name in names}
    models = list(dict.fromkeys(part.model for part in parts.values()))
    variants = list(dict.fromkeys((part.reranker, part.level) for part in parts.values()))
    variants.sort(key=lambda variant: variant != (None, None))  # what is plain is solid
    result = {}
    for name, part in parts.items():
        number = models.index(part.model)
        dashes = DASHES[variants.index((part.reranker, part.level)) % len(DASHES)]
        result[name] = Style(PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)], dashes)
    return result
