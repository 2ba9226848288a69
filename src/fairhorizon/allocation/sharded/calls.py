"""How shards of users are spoken to: every call goes to all of them, the answers come in order."""

from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface


class UserShards(Interface):
    """Objects with the same methods, in this process or in others; their users follow each other.

    The users of the first shard are the first users, and so on. A shard may be empty.
    """

    def __len__(self) -> int:
        """How many there are."""

    def ask(self, method: str, *arguments: object) -> list[Any]:
        """The answers of all to a call with the same arguments."""

    def tell(self, method: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        """The answers of all to a call in which each has arguments of its own."""


class ShardsHere:
    """Shards in this process."""

    def __init__(self, shards: Sequence[object]) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    def ask(self, method: str, *arguments: object) -> list[Any]:
        return [getattr(shard, method)(*arguments) for shard in self.shards]

    def tell(self, method: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        return [
            getattr(shard, method)(*own) for shard, own in zip(self.shards, arguments, strict=True)
        ]
