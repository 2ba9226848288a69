"""The mathematics of Constrained Policy Optimization, independent of recommendation."""
