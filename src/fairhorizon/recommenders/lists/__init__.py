"""Lists for all users together, under limits, from the scores of rankers or of a policy."""
