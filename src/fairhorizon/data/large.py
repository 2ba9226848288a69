"""A large log, drawn in time and memory linear in its rows.

Items stand in one line. A shelf is a stretch of the line and a genre a longer one, so that drawing
an item of a shelf by popularity is one lookup in the cumulative popularity along the line. No array
has a cell per user and item.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.example_logs import START, YEAR
from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import ConfigError

Codes = NDArray[np.int64]

BLOCK_ROWS = 500_000  # drawn at once
SHELF = 20  # items of a shelf
GENRE = 25 * SHELF  # items of a genre
LEAST_GENRES = 8  # also of a small catalogue
INTERESTS = 4  # genres of a user, one after the other
VISIT = 5  # rows of a visit, in the mean
RETURNS = 0.35  # of the rows go back one visit, of these again as many one more, and so on
LASTING = 0.25  # of the visits are to any of the user's interests, whatever the time
STRAY = 0.05  # of the visits are to any genre
BLUR = 0.7  # standard deviation, in interests, of how far a user has moved on
LEAST_ROWS = 10  # of a user, or half of the mean if that is less
SPREAD = 1.0  # of the activity of users: standard deviation of its logarithm
TRIES = 6  # at an item the user has not taken, per way of drawing it
ANY = 0  # the last way: any item, whatever its popularity


@dataclass(frozen=True, eq=False)
class Shelves:
    """The line of items, and their popularity."""

    items: Codes  # (n,) the item at each place
    below: NDArray[np.float64]  # (n + 1,) sum of popularity of all places before
    shelf: int  # items of a shelf
    genre: int  # items of a genre, a multiple of the shelf

    @classmethod
    def drawn(cls, n: int, skew: float, rng: np.random.Generator) -> "Shelves":
        """Popularity is (a + shelves / 100)^-skew b^(-skew / 2): shelf of rank a, item b on it."""
        # Small catalogues have smaller shelves and genres, so that there are several of each.
        shelf = max(1, min(SHELF, n // (2 * LEAST_GENRES)))
        genre = shelf * max(1, min(GENRE // SHELF, n // (LEAST_GENRES * shelf)))
        shelves = -(-n // shelf)
        of_shelf = rng.permutation((np.arange(shelves) + 1 + shelves / 100) ** -skew)
        on_shelf = np.tile(np.arange(1.0, shelf + 1) ** (-skew / 2), (shelves, 1))
        popularity = of_shelf[:, None] * rng.permuted(on_shelf, axis=1)
        below = np.append(0.0, np.cumsum(popularity.ravel()[:n]))
        return cls(rng.permutation(n), below, shelf, genre)

    def stretch(self, place: Codes, length: int) -> tuple[Codes, Codes]:
        """The first place of the stretch of `length` that a place is in, and the next stretch's."""
        first = place // length * length
        return first, np.minimum(first + length, len(self.items))

    def popular(self, first: Codes | int, end: Codes | int, draws: NDArray[np.float64]) -> Codes:
        """A place from `first` to before `end`, by popularity, for each uniform draw."""
        low, high = self.below[first], self.below[end]
        # Inversion within a stretch: popularity is summed along the line, so two lookups give the
        # total.
        place = np.searchsorted(self.below, low + draws * (high - low), side="right") - 1
        return np.clip(place, first, np.asarray(end) - 1)


def large_log(
    users: int = 2000,
    items: int = 2000,
    interactions: int = 100_000,
    *,
    popularity_skew: float = 1.5,
    text_ids: int = 0,
    seed: int = 0,
) -> Interactions:
    """A log of a year with the given number of rows, all pairs of user and item distinct.

    Users come in visits to a shelf, whose items they take by popularity; a third of the rows goes
    back to a shelf of one of the visits before. The shelf is of a genre that the user is interested
    in: a user has four interests and moves from one to the next. Every item has a first user, who
    takes it whatever its popularity, so that all items have rows if users take enough of them.
    Activity is log-normal above a minimum. A user takes at most half of the items, so that a log of
    few items may have fewer rows. The id of a user or item is its code, or with `text_ids` 1 text
    such as u0000017 and sku-000000000017.
    """
    if min(users, items, interactions) < 1 or not popularity_skew >= 0 or seed < 0:
        raise ConfigError(
            "synthetic-large needs users, items and interactions of at least 1, and popularity_skew"
            " and a seed of at least 0"
        )
    rng = np.random.default_rng(seed)
    shelves = Shelves.drawn(items, popularity_skew, rng)
    sizes = _activity(users, items, interactions, rng)
    firsts = rng.permutation(items)  # places; the one at j is first taken by user j % users
    step = max(1, BLOCK_ROWS * users // interactions)
    blocks = []
    for start in range(0, users, step):
        here = np.arange(start, min(start + step, users))
        user, place, time = _block(here, sizes[here], shelves, firsts, users, rng)
        blocks.append((user, shelves.items[place], time))
    user, item, time = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    order = np.argsort(time, kind="stable")
    return Interactions(
        users=user[order],
        items=item[order],
        user_ids=_texts("u{:07d}", users) if text_ids else np.arange(users),
        item_ids=_texts("sku-{:012d}", items) if text_ids else np.arange(items),
        timestamps=time[order],
        name="synthetic-large",
    )


def _texts(form: str, n: int) -> NDArray[np.object_]:
    return np.array([form.format(code) for code in range(n)], dtype=object)


def _activity(users: int, items: int, rows: int, rng: np.random.Generator) -> Codes:
    """(users,) rows of each user, `rows` in all unless somebody would take over half the items."""
    least = min(LEAST_ROWS, max(1, rows // (2 * users)))
    # Cut at four standard deviations, so that no user has a notable part of a small log.
    above = np.minimum(rng.lognormal(0, SPREAD, users), np.exp(4 * SPREAD))
    left = max(0, rows - least * users)
    # Rounding the running total and not each user keeps the sum exact.
    total = np.floor(np.append(0, np.cumsum(above)) / above.sum() * left)
    total[-1] = left
    sizes: Codes = least + np.diff(total).astype(np.int64)
    return np.minimum(sizes, max(1, items // 2))


def _block(
    here: Codes,
    sizes: Codes,
    shelves: Shelves,
    firsts: Codes,
    users: int,
    rng: np.random.Generator,
) -> tuple[Codes, Codes, Codes]:
    """User, place and time of the rows of some users, by user and time."""
    n_items, n = len(shelves.items), int(sizes.sum())
    row_user = np.repeat(np.arange(len(here)), sizes)
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)  # first row of the user
    opens = rng.random(n) < 1 / VISIT
    opens[start] = True
    visit = np.cumsum(opens) - 1
    visit_user = row_user[opens]
    interests = shelves.popular(0, n_items, rng.random((len(here), INTERESTS)))
    has_first = here < n_items
    interests[has_first, 0] = firsts[here[has_first]]
    shelf_of_visit = _shelves_of_visits(visit_user, interests, shelves, rng)
    # How many visits a row goes back: 0 mostly, never before the user's first.
    back = rng.geometric(1 - RETURNS, n) - 1
    recent = shelf_of_visit[np.maximum(visit[start], visit - back)]
    place = shelves.popular(*shelves.stretch(recent, shelves.shelf), rng.random(n))
    _begin_with(place, here, sizes, firsts, users)
    time = _times(row_user, start, opens, len(here), rng)
    place, surplus = _distinct(row_user, place, recent, shelves, rng)
    kept = np.delete(np.arange(n), surplus)
    return here[row_user[kept]], place[kept], time[kept]


def _shelves_of_visits(
    user: Codes, interests: Codes, shelves: Shelves, rng: np.random.Generator
) -> Codes:
    """A place on the shelf of each visit: users move from their first interest to their last."""
    visits = np.bincount(user, minlength=len(interests))
    number = np.arange(len(user)) - np.repeat(np.cumsum(visits) - visits, visits)
    moved = INTERESTS * (number + rng.random(len(user))) / visits[user]
    current = np.floor(moved + rng.normal(0, BLUR, len(user))).clip(0, INTERESTS - 1)
    lasting = rng.random(len(user)) < LASTING
    current[lasting] = rng.integers(0, INTERESTS, int(lasting.sum()))
    first, end = shelves.stretch(interests[user, current.astype(np.int64)], shelves.genre)
    stray = rng.random(len(user)) < STRAY
    first[stray], end[stray] = 0, len(shelves.items)
    return shelves.popular(first, end, rng.random(len(user)))


def _begin_with(place: Codes, here: Codes, sizes: Codes, firsts: Codes, users: int) -> None:
    """Users begin with the items that they are the first to take, in at most half of their rows."""
    start = np.cumsum(sizes) - sizes
    for turn in range(-(-len(firsts) // users)):
        number = here + turn * users
        taking = (number < len(firsts)) & (2 * turn < sizes)
        place[(start + turn)[taking]] = firsts[number[taking]]


def _distinct(
    user: Codes, place: Codes, recent: Codes, shelves: Shelves, rng: np.random.Generator
) -> tuple[Codes, Codes]:
    """Places, and rows to leave out because nothing free was found for them (hardly ever any).

    Whoever would take an item again takes another by popularity, of its shelf, its genre or all
    items; else any.
    """
    n_items = len(shelves.items)
    again = _repeats(user * n_items + place)
    ways = (shelves.shelf, shelves.genre, n_items, ANY)
    for length in np.repeat(ways, (TRIES, TRIES, TRIES, 5 * TRIES)).tolist():
        if not len(again):
            break
        if length != ANY:
            stretch = shelves.stretch(recent[again], length)
            place[again] = shelves.popular(*stretch, rng.random(len(again)))
        else:
            place[again] = rng.integers(0, n_items, len(again))
        again = _repeats(user * n_items + place)
    return place, again


def _repeats(pairs: Codes) -> Codes:
    """Indices of rows whose pair is in an earlier row."""
    order = np.argsort(pairs, kind="stable")
    same = pairs[order[1:]] == pairs[order[:-1]]
    again: Codes = order[1:][same]
    return again


def _times(
    user: Codes, start: Codes, opens: NDArray[np.bool_], users: int, rng: np.random.Generator
) -> Codes:
    """Seconds, ascending for every user: days or weeks between visits, minutes within one."""
    gaps = rng.exponential(np.where(opens, 1.0, 0.001))
    passed = np.cumsum(gaps)
    # Time since the user's first row: a running sum less what it was there.
    passed -= passed[start] - gaps[start]
    last = np.append(np.flatnonzero(np.diff(user)), len(user) - 1)
    arrival = rng.random(users) * 0.5
    leaving = arrival + (1 - arrival) * (0.5 + 0.5 * rng.random(users))
    share = arrival[user] + (leaving - arrival)[user] * passed / passed[last][user]
    # A second more per row, so that no two rows of a user are at one time.
    place_in_user = np.arange(len(user)) - start
    times: Codes = START + (share * YEAR).astype(np.int64) + place_in_user
    return times
