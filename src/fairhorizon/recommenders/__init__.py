"""What makes lists: rankers behind re-rankers, LIRD, FCPO, and the interface they share."""
