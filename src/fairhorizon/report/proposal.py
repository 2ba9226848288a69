"""A proposal as the text of a fairhorizon.toml, with comments."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairhorizon.data.loading import is_named
from fairhorizon.data.log_files import ReaderOptions
from fairhorizon.files import write_text
from fairhorizon.studies.proposal import ConfigProposal

ROLES = {"user": "user", "session": "session", "item": "item", "rating": "rating"}
ROLES |= {"timestamp": "time", "weight": "weight"}
HEAD = """\
# Written by `{command}`.
# docs/config.md explains every key.
# {source}: {rows:,} interactions of {users:,} users with {items:,} items.
#
#   fairhorizon fit --config {file} --out runs/a
#   fairhorizon evaluate runs/a --config {file}
#   fairhorizon recommend runs/a --config {file} --out lists.csv

method = "fcpo"
seed = 0

# Limits on what is shown (docs/limits.md). The popular items, a fifth of the catalogue, have
# {popular:.1f} % of the training log; {reason}
limits = ["""
BINDS = "their limit is halfway between that and a fifth."
DOES_NOT_BIND = "they need no limit, so it is commented out."
FLOOR = """\
    # {column} has {n} values, and those named here have {share:.1f} % of the log. A floor of half
    # of that keeps a ranking from showing them less and less. Remove the # in front to ask for it.
    # {limit},"""
SETTINGS = """
# Settings of the method, as --set has them; `fairhorizon methods fcpo` lists them.
# [settings]
# rounds = 50"""


@dataclass(frozen=True)
class ConfigOrigin:
    """What a config is written from and where to."""

    path: Path  # of the config
    source: str  # of the log, as it was typed
    item_table: Path | None
    reading: ReaderOptions
    command: str

    def seen_from(self, path: Path) -> str:
        """A path relative to the folder of the config if it is below it, else absolute."""
        whole, folder = path.resolve(), self.path.resolve().parent
        return str(whole.relative_to(folder) if whole.is_relative_to(folder) else whole)


def write_config(origin: ConfigOrigin, proposal: ConfigProposal) -> None:
    """A file that works as it is."""
    write_text(origin.path, config_text(origin, proposal))


def config_text(origin: ConfigOrigin, proposal: ConfigProposal) -> str:
    head = HEAD.format(
        command=origin.command,
        source=origin.source,
        file=origin.path.name,
        rows=proposal.rows,
        users=proposal.users,
        items=proposal.items,
        popular=100 * proposal.popular_of_log,
        reason=BINDS if proposal.popular_binds else DOES_NOT_BIND,
    )
    parts = [_limits(proposal), _data(origin), _columns(proposal), _groups(origin, proposal)]
    lines = [head, *(line for part in parts for line in part), SETTINGS]
    return "\n".join(lines) + "\n"


def _limits(proposal: ConfigProposal) -> Iterator[str]:
    popular = f"{_written(str(proposal.popular))},"
    yield f"    {popular}" if proposal.popular_binds else f"    # {popular}"
    for floor in proposal.floors:
        yield FLOOR.format(
            column=_commented(floor.limit.group.column),
            n=floor.n_values,
            share=100 * floor.of_log,
            limit=_written(str(floor.limit)),
        )
    yield "]"


def _data(origin: ConfigOrigin) -> Iterator[str]:
    is_file = not is_named(origin.source) and Path(origin.source).exists()
    source = origin.seen_from(Path(origin.source)) if is_file else origin.source
    yield from ("", "[data]", f"source = {_written(source)}")
    given = origin.reading
    for key in ("header", "separator"):
        if (value := given.get(key)) is not None:
            yield f"{key} = {_written(value)}"
    if (encoding := given.get("encoding", "utf-8")) != "utf-8":
        yield f"encoding = {_written(encoding)}"


def _columns(proposal: ConfigProposal) -> Iterator[str]:
    if not proposal.columns:  # of a named set
        return
    yield from ("", "[columns]")
    for role, key in ROLES.items():
        if role not in proposal.columns:  # not asked for, or it has another role
            continue
        name = proposal.columns[role]
        yield f"# no {key}" if name is None else f"{key} = {_written(name)}"
    if proposal.others:
        yield f"# not used: {', '.join(map(_commented, proposal.others))}"


def _groups(origin: ConfigOrigin, proposal: ConfigProposal) -> Iterator[str]:
    if origin.item_table is None:
        return
    yield from ("", "[groups]", f"item_table = {_written(origin.seen_from(origin.item_table))}")
    if proposal.item_columns:
        yield f"# its columns, for limits: {', '.join(map(_commented, proposal.item_columns))}"


def _written(value: Any) -> str:
    """As TOML, which writes these values as JSON does; but a character 127 is escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _commented(name: str) -> str:
    """Without line breaks, which would end the comment."""
    return " ".join(name.split())
