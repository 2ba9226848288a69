"""Logs of interactions: reading, named sets, splits and a synthetic market."""
