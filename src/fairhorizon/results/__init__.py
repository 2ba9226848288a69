"""The results of a study as typed rows: all that a report reads."""
