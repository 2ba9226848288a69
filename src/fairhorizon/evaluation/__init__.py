"""Accuracy and fairness of lists, at once and over a long run."""
