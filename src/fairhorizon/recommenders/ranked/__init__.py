"""A ranker as a recommender, alone or behind a re-ranker."""
