"""Base rankers and embeddings, one file a method."""
