"""Recommendation as a Constrained Markov Decision Process: users, their answers, and time."""
