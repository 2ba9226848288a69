"""The list of methods and the settings of one, for a terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from fairhorizon.studies.catalogue import Entry, MethodEntry, SettingEntry

LONGEST_DEFAULT = 19  # columns: a longer default is wrapped


def methods_table(entries: Sequence[Entry]) -> Table:
    """A row per method; the column @ says which take a level."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Method", no_wrap=True)
    table.add_column("Kind", no_wrap=True)
    table.add_column("@", no_wrap=True)
    table.add_column("What it is")
    for entry in entries:
        level = "@" if entry.takes_level else ""
        table.add_row(*map(Text, (entry.name, entry.kind.value, level, entry.summary)))
    return table


def settings_table(method: MethodEntry) -> Table:
    """A row per setting: its name, its default, and what it does."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Setting", no_wrap=True)
    table.add_column("Default", max_width=LONGEST_DEFAULT)
    table.add_column("Meaning")
    for setting in method.settings:
        table.add_row(Text(setting.name), Text(setting.default), _meaning(setting))
    return table


def _meaning(setting: SettingEntry) -> Text:
    """The meaning, and in a line of its own the allowed values and the range of `tune`."""
    text = Text(setting.meaning)
    text.append(f"\nAllowed: {setting.allowed}.", style="dim")
    if setting.searched is not None:
        text.append(f" tune: {setting.searched}.", style="dim")
    return text
