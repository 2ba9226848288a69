"""A weighted sum of rankers that finds out by itself what suits a log."""
