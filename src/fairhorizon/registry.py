"""Classes by name, each imported when it is first used: a name is checked without torch."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TypeVar, cast

C = TypeVar("C")


class LazyClasses(MutableMapping[str, type[C]]):
    """A dictionary from names to classes.

    places: where each class is, as in `fairhorizon.rankers.ease:Ease`, in the order of the names.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._found: dict[str, str | type[C]] = dict(places)

    def __getitem__(self, name: str) -> type[C]:
        found = self._found[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self._found[name] = cast("type[C]", getattr(import_module(module), attribute))
        return found

    def __setitem__(self, name: str, kind: type[C]) -> None:
        self._found[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    # `Mapping` would look the class up to know whether it is there.
    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
