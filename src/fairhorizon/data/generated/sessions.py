"""Sessions of visitors nobody knows: each has one topic, and looks longer at what it came for."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.generated.drawing import START, YEAR, drawn

TOPICS = 6
STRAY = 0.25  # of the views are of any article


@dataclass(frozen=True, eq=False)
class SessionLog:
    """A row per view, and what every session was about.

    A session draws its articles from its topic, one view in four from all articles. Articles of the
    topic are read for minutes, the others for seconds.
    """

    frame: pl.DataFrame  # session, article, seconds, time
    topic_of_session: NDArray[np.int64]  # (sessions,)
    topic: NDArray[np.int64]  # (articles,)


def sessions(n: int = 400, articles: int = 90, views: int = 8, *, seed: int = 0) -> SessionLog:
    """So many sessions s0, s1, ... with about so many views each, all different articles."""
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.arange(articles) % TOPICS)  # every topic has some
    about = rng.integers(0, TOPICS, n)
    exposure = rng.permutation(np.arange(1, articles + 1) ** -0.7)
    session = np.repeat(np.arange(n), rng.poisson(views, n).clip(5, articles // (2 * TOPICS)))
    stray = rng.random(len(session)) < STRAY
    own = topic[None, :] == about[session, None]
    weights = exposure * (own | stray[:, None])
    seen = np.zeros((n, articles), dtype=np.bool_)
    article = np.empty(len(session), dtype=np.int64)
    place = np.arange(len(session)) - np.searchsorted(session, session)
    for step in range(int(place.max()) + 1):  # one view of every session that is so long
        rows = np.flatnonzero(place == step)
        free = np.maximum(weights[rows] * ~seen[session[rows]], 1e-12 * ~seen[session[rows]])
        article[rows] = drawn(free, rng)
        seen[session[rows], article[rows]] = True
    liked = topic[article] == about[session]
    seconds = np.where(liked, rng.gamma(4, 45, len(session)), rng.gamma(2, 5, len(session)))
    time = START + rng.integers(0, YEAR, n)[session] + 60 * place
    order = np.argsort(time, kind="stable")
    frame = pl.DataFrame(
        {
            "session": [f"s{code}" for code in session[order]],
            "article": [f"a{code}" for code in article[order]],
            "seconds": seconds[order].round(1),
            "time": time[order],
        }
    )
    return SessionLog(frame, about, topic)
