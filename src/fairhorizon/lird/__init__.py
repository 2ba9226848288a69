"""LIRD (Zhao et al. 2017): list-wise recommendation by deep deterministic policy gradients."""
