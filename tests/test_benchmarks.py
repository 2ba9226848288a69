"""Every benchmark runs, on a small market: README and docs cite what they print."""

import re
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PARTS = {"small", "trainings"}  # what benchmarks share; nothing to run
CASES = {
    "bpr": r"ratio, median of the pairs +\d+\.\d\d$",
    "choose_settings": r"PMF of interactions, episodes start anywhere +validation NDCG@20 [-\d.]+$",
    "constraint": r"alpha' 0\.4 +0 +1 +\d\.\d{3} +1\.00$",
    "ease": r"fit and scores / bare inverse +\d+\.\d\d$",
    "gru4rec": r"fit of gru4rec / fit of ease +\d+\.\d\d$",
