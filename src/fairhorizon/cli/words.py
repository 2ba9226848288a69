"""The words of the command line; the library's own enums would have to wait for torch."""

from enum import StrEnum


class ProtocolName(StrEnum):
    STANDARD = "standard"
    PAPER = "paper"


class ModeName(StrEnum):
    ONE_SHOT = "one-shot"
    INTERACTIVE = "interactive"


class AsOf(StrEnum):
    TRAINING = "training"
    NOW = "now"
