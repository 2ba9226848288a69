"""How good and how fair lists are, at once and over a long run."""
