"""What makes lists: the interface of all methods, and rankers behind re-rankers."""
