"""A record of answers beside a log: checked before the fit, learned from after it."""

from dataclasses import dataclass
from typing import Any, Self

from fairhorizon.data.answers import AnswerRecord, load_answers
from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.retention.replay import FittedRetention, check_weighs, learn_from_answers
from fairhorizon.recommenders.base import Recommender

AWAY = 14.0  # days


@dataclass(frozen=True)
class GivenAnswers:
    """A record of answers, and the days at its end in which who left was shown nothing.

    log: that the method is fitted on.
    """

    record: AnswerRecord
    log: Interactions
    away: float = AWAY

    def __str__(self) -> str:
        left = int(self.record.left(self.away).sum())
        return (
            f"{len(self.record):,} answers of {len(self.record.ids):,} users, of whom {left:,} left"
        )

    @classmethod
    def read(cls, source: Any, away: float, draft: Recommender, log: Interactions) -> Self:
        """From a frame or a file; refused here if nothing can be learned from it later.

        draft: the method before its fit.
        """
        check_weighs(draft)
        if not away > 0:
            raise ConfigError(f"away for {away:g} days (give a number above 0)")
        record = load_answers(source, log)
        record.check(away)
        return cls(record, log, away)

    def learned(self, model: Recommender) -> FittedRetention:
        """What a like is worth, with the chances of a model that was fitted on the log."""
        return learn_from_answers(model, self.log, self.record, away=self.away, seed=model.seed)
