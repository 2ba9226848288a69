"""Accuracy and fairness of recommendation lists: arrays in, numbers out."""
