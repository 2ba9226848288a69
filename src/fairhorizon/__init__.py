"""FairHorizon: fair recommendation over time."""

__version__ = "0.1.0"
