"""The words of the command line; the library's own enums would have to wait for torch."""

from enum import StrEnum

STOPPED = 130  # exit code after Ctrl-C, as shells have it


class ProtocolName(StrEnum):
    STANDARD = "standard"
    PAPER = "paper"


class ModeName(StrEnum):
    ONE_SHOT = "one-shot"
    INTERACTIVE = "interactive"


class AsOf(StrEnum):
    TRAINING = "training"
    NOW = "now"


class Cut(StrEnum):
    PER_USER = "per-user"
    TIME = "time"


class Preset(StrEnum):
    STRONG = "strong"
    PAPER = "paper"


class UsersName(StrEnum):
    LOGGED = "logged"
    SIMULATED = "simulated"


class RetrainName(StrEnum):
    RERANKERS = "rerankers"
    ALL = "all"
    NONE = "none"
