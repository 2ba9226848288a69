"""FCPO, Fairness-Constrained Policy Optimization: the paper's Algorithm 1 and its serving."""
