"""The mathematics of Constrained Policy Optimization; knows nothing of recommending."""

from fairhorizon.optim.conjugate_gradient import conjugate_gradient
from fairhorizon.optim.dual import Case, Direction, solve_dual
from fairhorizon.optim.dual_several import Combination, solve_several
from fairhorizon.optim.fisher import fisher_product
from fairhorizon.optim.line_search import LineSearch, backtrack

__all__ = [
    "Case",
    "Combination",
    "Direction",
    "LineSearch",
    "backtrack",
    "conjugate_gradient",
    "fisher_product",
    "solve_dual",
    "solve_several",
]
