"""How the costs of an ordinary shop (shop.py) grow with it, in a table and a chart.

    python benchmarks/shop_growth.py [--scales 0.125 0.25 0.5 1] [--out FILE]
        [--small]

Customers, products and rows grow together. Each shop is measured in a process of its own. The
exponent is the slope in the chart, between the two largest shops.
"""

import argparse
import math
import multiprocessing
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from shared import parse
from shop import SIZES, SMALL, Figures, measured, silent

LINES = {
    "fit": "fit",
    "solve": "one solve of EASE",
    "everybody": "lists of everybody",
    "bare": "bare scores",
}
WIDTH, HEIGHT = 770, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 220, 30, 60
STYLE = """
    text { font: 14px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1c1f26; }
    .grid { stroke: #d5dae2; }
    polyline { fill: none; stroke-width: 2.5; }
    .fit { stroke: #00756a; } .solve { stroke: #525b6b; stroke-dasharray: 7 5; }
    .everybody { stroke: #c2410c; } .bare { stroke: #aab3c2; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e8ebf1; } .grid { stroke: #3a404d; }
      .fit { stroke: #3cc4b2; } .solve { stroke: #aab3c2; }
      .everybody { stroke: #fb923c; } .bare { stroke: #566072; }
    }
"""


def of_sizes(sizes: tuple[int, int, int]) -> Figures:
    """Of a shop with so many customers, products and rows."""
    with warnings.catch_warnings():
        silent()
        return measured(*sizes, calls=2, profile=None)


def exponents(shops: Sequence[Figures]) -> dict[str, float]:
    """By line, the slope between the two largest shops; no time counts as less than 1 ms."""
    small, large = shops[-2:]
    growth = math.log(large.rows / small.rows)
    return {
        name: math.log(max(1e-3, getattr(large, name)) / max(1e-3, getattr(small, name))) / growth
        for name in LINES
    }


def chart(shops: Sequence[Figures]) -> str:
    """Seconds of CPU over rows and products, both axes logarithmic, as SVG."""
    seconds = [max(1e-3, getattr(shop, name)) for shop in shops for name in LINES]
    bottom, top = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    first, last = math.log10(shops[0].rows), math.log10(shops[-1].rows)

    def x(rows: float) -> float:
        return LEFT + (math.log10(rows) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        part = (math.log10(max(1e-3, value)) - bottom) / (top - bottom)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    parts = []
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.0f}" y2="{at:.0f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 8}" y="{at + 5:.0f}" text-anchor="end">{10.0**power:g} s</text>'
        )
    for shop in shops:
        labels = (f"{shop.rows:,} rows", f"{shop.products:,} products")
        for number, label in enumerate(labels):
            place = f'x="{x(shop.rows):.0f}" y="{HEIGHT - BOTTOM + 22 + 18 * number}"'
            parts.append(f'<text {place} text-anchor="middle">{label}</text>')
    slopes = exponents(shops)
    for name, label in LINES.items():
        points = " ".join(f"{x(shop.rows):.0f},{y(getattr(shop, name)):.0f}" for shop in shops)
        parts.append(f'<polyline class="{name}" points="{points}"/>')
        place = f'x="{WIDTH - RIGHT + 8}" y="{y(getattr(shops[-1], name)) + 5:.0f}"'
        parts.append(f"<text {place}>{label}, n^{slopes[name]:.1f}</text>")
    body = "\n  ".join(parts)
    label = "Seconds of CPU of a fit, a solve of EASE and lists, over rows and products"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{label}">\n  <style>{STYLE}  </style>\n  '
        f"{body}\n</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scales", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1])
    parser.add_argument("--out", type=Path)
    options = parse(parser)
    unit, scales = (SMALL, (1, 2)) if options.small else (SIZES, sorted(options.scales))
    sizes = [tuple(int(scale * size) for size in unit) for scale in scales]
    if options.small:
        shops = list(map(of_sizes, sizes))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
            shops = list(pool.map(of_sizes, sizes))
    print("rows       products      EASE       fit      bare everybody      GiB    MB")
    for shop in shops:
        seconds = (shop.solve, shop.fit, shop.bare, shop.everybody)
        print(
            f"{shop.rows:<10,} {shop.products:8,} {' '.join(f'{one:7.2f} s' for one in seconds)} "
            f"{shop.fit_gib:8.2f} {shop.file_mb:5.0f}"
        )
    print("exponent   " + ", ".join(f"{name} {one:.2f}" for name, one in exponents(shops).items()))
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary) / "growth.svg"
        out.write_text(chart(shops), encoding="utf-8")


if __name__ == "__main__":
    main()
