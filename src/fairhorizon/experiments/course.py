"""The course of a training: what the policy did in its episodes, round by round."""

from torch import Tensor

from fairhorizon.agents.fcpo.learning.advantages import discounts
from fairhorizon.agents.fcpo.learning.chosen import chosen_round
from fairhorizon.agents.fcpo.learning.session import Session
from fairhorizon.agents.fcpo.learning.training import Training
from fairhorizon.results.studies import Course


def follow(session: Session) -> Course:
    """Train to the end, and report what the policy did in training episodes."""
    training = session.training
    config, before = training.config, None
    if training.can_validate:
        before = training.episodes.validate()
    for _ in session.rounds():
        pass
    reward, cost = _at_last(training)
    costs = [*(report.cost for report in training.reports), cost]
    highest = training.limit * (1 + config.cost_tolerance)
    return Course(
        limit=config.limit_in_training,
        # costs are sums over an episode, discounted as the limit is
        share=tuple(cost / training.limit * config.limit_in_training for cost in costs),
        reward=(*(report.reward for report in training.reports), reward),
        validation=(before, *(report.validation for report in training.reports)),
        rounds_to_limit=next((n for n, cost in enumerate(costs) if cost <= highest), None),
        kept=_kept(training, before),
    )


def _at_last(training: Training) -> tuple[float, float]:
    """Reward and discounted cost of an episode after the last round."""
    fresh = training.episodes.generate(training.generator)
    costs: Tensor = fresh.costs[:, :, 0]
    weights = discounts(training.config.gamma_c, costs.shape[1]).to(costs)
    return float(fresh.rewards.sum(1).mean()), float((costs @ weights).mean())


def _kept(training: Training, before: float | None) -> int:
    """The round whose policy serves: the best on validation, or else the last."""
    config, best = training.config, training.best_validation
    chosen = chosen_round(training.reports, config)
    if chosen is not None:
        return chosen.number
    if not training.best:
        return len(training.reports)
    if before == best:
        return 0
    return next(report.round for report in training.reports if report.validation == best)


def figures(course: Course) -> dict[str, float | None]:
    """A course in numbers that have a mean over seeds."""
    return {
        "share_before": course.share[0],
        "share_after": course.share[-1],
        "reward_before": course.reward[0],
        "reward_after": course.reward[-1],
        "rounds_to_limit": course.rounds_to_limit,
        "kept": course.kept,
        "validation_before": course.validation[0],
        # without an evaluation in that round, nothing is known of it
        "validation": course.validation[course.kept],
    }
