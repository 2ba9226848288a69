"""Sources of data: a given file, a named set in the cache, or the generator."""

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from fairhorizon.data.downloads import NamedSet, fetch
from fairhorizon.data.generated.large import large_log
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.item_tables import COLUMNS, NamedColumns, attributes_of, named_items
from fairhorizon.data.parts import read_folder
from fairhorizon.data.readers import ReaderOptions, read_interactions
from fairhorizon.data.synthetic import SyntheticMarket, baskets, sparse, synthetic, trends
from fairhorizon.errors import ConfigError, DataError

MOVIELENS = "https://files.grouplens.org/datasets/movielens"
NAMED = {
    "ml-100k": NamedSet(
        name="ml-100k",
        file="u.data",
        sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        url=f"{MOVIELENS}/ml-100k.zip",
        member="ml-100k/u.data",
        package="recbole==1.2.1",
        pip_options=("--only-binary", "recbole"),
        package_member="recbole/dataset_example/ml-100k/ml-100k.inter",
        package_header=True,
    ),
    "ml-1m": NamedSet(
        name="ml-1m",
        file="ratings.dat",
        sha256="506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
        url=f"{MOVIELENS}/ml-1m.zip",
        member="ml-1m/ratings.dat",
        package="scikit-rec==0.3.0",
        pip_options=("--no-binary", "scikit-rec"),
        package_member="examples/data/movielens-1m/ratings.dat",
    ),
}
SYNTHETIC = "synthetic"
GENERATORS: dict[str, Callable[..., SyntheticMarket]] = {
    SYNTHETIC: synthetic,
    "synthetic-sparse": sparse,
    "synthetic-baskets": baskets,
    "synthetic-trends": trends,
}
LARGE: dict[str, Callable[..., Interactions]] = {"synthetic-large": large_log}  # no truth beside it


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """The option, else FAIRHORIZON_CACHE, else fairhorizon in XDG_CACHE_HOME, else in ~/.cache."""
    chosen = cache_dir or os.environ.get("FAIRHORIZON_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fairhorizon"


def load(
    source: str | Path, *, cache_dir: str | Path | None = None, **options: Unpack[ReaderOptions]
) -> Interactions:
    """The log of a named set ("ml-100k", "ml-1m", "synthetic:users=200,seed=1") or of a file.

    source: the name of the set, or the path of a file or of a folder of parts. A name comes first:
        a file that is called like a set is "./ml-1m", or any `Path`.
    cache_dir: where named sets are kept, and what was read of parts; None: FAIRHORIZON_CACHE, else
        ~/.cache/fairhorizon.
    options: those of `read_interactions`, such as which column has the user. Named sets need none,
        and the synthetic ones ignore them. `attributes` of a MovieLens set are columns of its table
        of items, `title`, `year` and `genre`, which is downloaded when it is first asked for.
    """
    if isinstance(source, str):
        if source in NAMED:
            cache, wanted = cache_folder(cache_dir), options.pop("attributes", ())
            log = read_interactions(fetch(NAMED[source], cache), **options)
            described = attributes_of(source, cache, log, wanted)
            further = NamedColumns(source, cache, log)
            return replace(log, name=source, attributes=described, further=further)
        if (market := market_of(source)) is not None:
            return replace(market.interactions, name=source)
        if (kind := _kind(source)) in LARGE:
            return replace(LARGE[kind](**_chosen(source, LARGE[kind])), name=source)
        if not Path(source).exists():
            raise DataError(
                f"{source!r} is neither a file nor a named data set",
                remedy=f"the named sets are {', '.join([*NAMED, *GENERATORS, *LARGE])}",
            )
    if Path(source).is_dir():
        return read_folder(source, store=_part_store(cache_dir), **options)
    return read_interactions(source, **options)


def _part_store(cache_dir: str | Path | None) -> Path | None:
    """Where what was read of parts is kept; nowhere if FAIRHORIZON_NO_CACHE is set."""
    return None if os.environ.get("FAIRHORIZON_NO_CACHE") else cache_folder(cache_dir) / "parts"


def item_columns(source: str) -> tuple[str, ...]:
    """The columns that describe the items of a named set; nothing is downloaded."""
    if source in NAMED:
        return COLUMNS
    market = market_of(source)
    return () if market is None else tuple(market.interactions.attributes)


def items_of(source: str, *, cache_dir: str | Path | None = None) -> pl.DataFrame:
    """The table of items of a named set: item, title, year and genre, as text.

    A film of several genres has them in one cell, with bars between them. A limit on `genre=Drama`
    counts it, and so does one on each of its other genres.

    source: the name of the set, ml-100k or ml-1m.
    cache_dir: where named sets are kept, as for `load`.
    """
    if source not in NAMED:
        raise DataError(f"{source!r} brings no table of items", remedy=f"{' and '.join(NAMED)} do")
    return named_items(source, cache_folder(cache_dir))


def is_named(source: str) -> bool:
    """Whether a `source` as in `load` is the name of a set, whatever files there are."""
    return source in NAMED or is_synthetic(source)


def is_synthetic(source: str) -> bool:
    """Whether a `source` as in `load` is drawn by a generator."""
    return _kind(source) in GENERATORS or _kind(source) in LARGE


def market_of(source: str | Path) -> SyntheticMarket | None:
    """The market of a `source` as in `load`; None unless it is a generator with a truth."""
    if isinstance(source, str) and _kind(source) in GENERATORS:
        return synthetic_market(source)
    return None


def synthetic_market(source: str = SYNTHETIC) -> SyntheticMarket:
    """A synthetic market: its log in `interactions`, and the truth it was drawn from.

    source: "synthetic", or the name of another generator, or "synthetic:key=value,..."; the keys
        are the parameters of the generator (see `fairhorizon.data.synthetic`).
    """
    generator = GENERATORS[_kind(source)]
    return generator(**_chosen(source, generator))


def _kind(source: str) -> str:
    return source.partition(":")[0]


def _chosen(source: str, generator: Callable[..., object]) -> dict[str, Any]:
    """The parameters of a generator that a source sets."""
    parameters = inspect.signature(generator).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    chosen: dict[str, Any] = {}
    for setting in filter(None, source.partition(":")[2].split(",")):
        key, _, value = setting.partition("=")
        if key not in defaults:
            raise ConfigError(
                f"{source}: unknown setting {key!r} (there are {', '.join(defaults)})"
            )
        try:
            chosen[key] = type(defaults[key])(value)
        except ValueError:
            raise ConfigError(f"{source}: {key} {value!r} is not a number") from None
    return chosen
