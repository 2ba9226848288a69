"""The mathematics of Constrained Policy Optimization; knows nothing of recommending."""
