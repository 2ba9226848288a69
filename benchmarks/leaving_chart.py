"""Who gets the scarce showings, and who stays because of it: the tabular market in one figure.

    python benchmarks/leaving_chart.py [--out docs/images/leaving.png] [--pretraining-runs 4]
        [--small]

Patience of at most 4 likes, at most 20 % popular showings, seed 100. The policy is trained as in
leaving.py. It never sees patience; the figure does.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vl_convert
from numpy.typing import NDArray

from fairhorizon.report.charts import CONFIG
from fairhorizon.simulation.tabular import Moment, TabularMarket, Values, myopic, play
from leaving import FIRST, GAMMA, Bools, RetentionPlayer
from shared import parse

MOST, SHARE = 4, 0.2
MYOPIC, AHEAD = "likes of the moment", "looking ahead (fcpo)"
COLOURS = {"domain": [MYOPIC, AHEAD], "range": ["#8a94a0", "#1f6feb"]}


@dataclass
class Watched:
    """What became of users by the patience they had."""

    market: TabularMarket
    shown: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, MOST + 1), np.int64))
    here: list[float] = field(default_factory=lambda: [1.0])

    def tell(self, moment: Moment, popular: Bools, liked: Bools, stays: Bools) -> None:  # noqa: ARG002
        np.add.at(self.shown[0], moment.patience, 1)
        np.add.at(self.shown[1], moment.patience[popular], 1)
        self.here.append(float(stays.sum()) / self.market.users)

    def rows(self, who: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Of both panels."""
        given = [
            {"who": who, "patience": m, "share": self.shown[1, m] / max(1, self.shown[0, m])}
            for m in range(1, MOST + 1)
        ]
        stay = [{"who": who, "step": t, "here": share} for t, share in enumerate(self.here)]
        return given, stay


def watched(market: TabularMarket, values: Values, player: RetentionPlayer | None) -> Watched:
    """A run; what the player is told goes to the figure as well."""
    found = Watched(market)

    def tell(moment: Moment, popular: Bools, liked: Bools, stays: Bools) -> None:
        found.tell(moment, popular, liked, stays)
        if player is not None:
            player.tell(moment, popular, liked, stays)

    if player is not None:
        player.begin(FIRST)
    play(market, values, FIRST, tell)
    return found


def figure(given: list[dict[str, Any]], stay: list[dict[str, Any]]) -> dict[str, Any]:
    """In Vega-Lite."""
    colour = {"field": "who", "type": "nominal", "scale": COLOURS, "title": None}
    percent = {"format": ".0%"}
    bars = {
        "title": "Who gets the popular showings",
        "width": 330,
        "height": 230,
        "data": {"values": given},
        "mark": "bar",
        "encoding": {
            "x": {"field": "patience", "type": "ordinal", "title": "likes of patience left"},
            "xOffset": {"field": "who", "sort": COLOURS["domain"]},
            "y": {
                **{"field": "share", "type": "quantitative", "axis": percent},
                "title": "share of their showings that are popular",
            },
            "color": colour | {"legend": {"orient": "bottom"}},
        },
    }
    lines = {
        "title": "Who is still there",
        "width": 330,
        "height": 230,
        "data": {"values": stay},
        "mark": "line",
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "step"},
            "y": {"field": "here", "type": "quantitative", "title": "users", "axis": percent},
            "color": colour,
        },
    }
    return {"config": CONFIG, "background": "white", "hconcat": [bars, lines]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images/leaving.png"))
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pretraining-runs", type=int, default=4)
    options = parse(parser, users=200, steps=5, pretraining_runs=1, out=None)
    torch.set_num_threads(1)
    market = TabularMarket(options.users, options.steps, (MOST,), SHARE)
    player = RetentionPlayer(market, GAMMA)
    player.pretrain(options.pretraining_runs)
    given, stay = [], []
    for who, values, learner in ((MYOPIC, myopic, None), (AHEAD, player.values, player)):
        run = watched(market, values, learner)
        bars, lines = run.rows(who)
        given, stay = given + bars, stay + lines
        shares = " ".join(f"{row['share']:.3f}" for row in bars)
        print(f"{who:22s} popular by patience {shares}   still there {run.here[-1]:.3f}")
    png = vl_convert.vegalite_to_png(figure(given, stay), scale=2)
    if options.out is not None:
        options.out.write_bytes(png)


if __name__ == "__main__":
    main()
