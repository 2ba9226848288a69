"""Recommendation as a Constrained Markov Decision Process: users, their feedback, and time."""
