"""The command `fairhorizon`."""

from fairhorizon.cli.app import main

__all__ = ["main"]
