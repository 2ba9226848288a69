"""Step control: in every step all users together are served within what is left of the limits."""

from fairhorizon.exposure.kept_by_lists import ListLimits
from fairhorizon.rerank.reranker import JointReranker


class StepControl(JointReranker):
    """Step control, as FCPO serves in the long run: limits hold after every step.

    Of all lists of a step within the budgets of the limits, those with the highest sum of
    standardised scores are shown.
    """

    method = "control"
    keeps_limits = True
    kept_in_lists = ListLimits.STEPS
