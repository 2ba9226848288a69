"""Exposure so far, the present groups of items, and limits on exposure."""
