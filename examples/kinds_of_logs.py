"""Logs of other kinds: a shop with quantities, check-ins with coordinates, sessions without users.

Each is made up, so that the truth is known: how much the recommended items are wanted can be
measured, not only guessed from what was taken next.

    python examples/kinds_of_logs.py
"""

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.example_logs import checkins, sessions, shop
from fairhorizon.data.frames import from_frame
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.locations import Locations, items_near
from fairhorizon.data.splits import split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.itemknn import RecentItemKnn, RecentItemKnnConfig

LENGTH = 5
MUNICH = (48.14, 11.58)
Truth = NDArray[np.float64]  # (users, items) how much a user wants an item
Allowed = NDArray[np.bool_]  # (users, items)


def best_lists(log: Interactions, allowed: Allowed | None = None) -> NDArray[np.int64]:
    """(n_users, 5) the best items of every user that the user has not had, of those allowed."""
    parts = split(log)
    ranker = RecentItemKnn(RecentItemKnnConfig(half_life=None)).fit(parts)
    known, users = UserItems.from_log(parts.train, parts.validation), torch.arange(log.n_users)
    scores = ranker.scores(users, known.last(ranker.queue_length))
    scores = scores.masked_fill(known.mask(users), -torch.inf)
    if allowed is not None:
        scores = scores.masked_fill(~torch.from_numpy(allowed), -torch.inf)
    return scores.topk(LENGTH).indices.numpy()


def of_log(log: Interactions, truth: Truth) -> Truth:
    """The truth in the order of the log's ids, which are c7 or p12."""
    users, items = ([int(one[1:]) for one in ids] for ids in (log.user_ids, log.item_ids))
    return truth[np.ix_(users, items)]


def wanted(log: Interactions, truth: Truth) -> float:
    """How much users want what they are shown, on average."""
    found = np.take_along_axis(of_log(log, truth), best_lists(log), axis=1)
    return float(found.mean())


def a_shop() -> tuple[float, float]:
    """Quantities tell what is wanted from what was bought by chance."""
    market = shop(seed=0)
    plain, weighted = (
        from_frame(market.frame, user="customer", item="sku", timestamp="ordered", weight=weight)
        for weight in ("rows", "quantity")
    )
    return wanted(plain, market.wanted), wanted(weighted, market.wanted)


def check_ins() -> tuple[int, float, float]:
    """Areas for limits, and for everybody who is in Munich now, only what is near."""
    world = checkins(seed=0)
    log = from_frame(
        world.frame,
        item="venue",
        timestamp="time",
        weight="rows",
        attributes=("latitude", "longitude"),
    )
    areas = set(Locations.from_attributes(log.attributes).areas(world.area_km))
    near = items_near(log, km=25, point=MUNICH)
    allowed = np.array([np.isin(log.item_ids, near[user]) for user in log.user_ids])
    everywhere, nearby = (
        float(np.take_along_axis(allowed, best_lists(log, mask), axis=1).mean())
        for mask in (None, allowed)
    )
    return len(areas), everywhere, nearby


def sessions_without_users() -> tuple[float, float]:
    """A session is a user; the time spent says what it is about."""
    site = sessions(seed=0)
    about = (site.topic_of_session[:, None] == site.topic).astype(float)
    plain, weighted = (
        from_frame(site.frame, user="session", item="article", timestamp="time", weight=weight)
        for weight in (None, "seconds")
    )
    return wanted(plain, about), wanted(weighted, about)


def main() -> None:
    plain, weighted = a_shop()
    print(f"shop: {plain:.1%} of what is shown is wanted; with quantities {weighted:.1%}")
    areas, everywhere, nearby = check_ins()
    print(f"check-ins: {areas} areas; {everywhere:.1%} of what is shown is in Munich; to people")
    print(f"           in Munich, with the venues within 25 km as candidates, {nearby:.1%}")
    plain, weighted = sessions_without_users()
    print(f"sessions: {plain:.1%} of what is shown is on topic; with the seconds {weighted:.1%}")


if __name__ == "__main__":
    main()
