"""What a study found, as typed rows: all that a report reads."""
