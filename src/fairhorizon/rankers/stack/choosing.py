"""The settings of a ranker that give the best lists on the later part of a log."""

from typing import Any

from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.stack.later_part import LaterPart
from fairhorizon.rankers.stack.questions import QUESTIONS
from fairhorizon.settings import Given, Settings, changed

NOTHING_GIVEN: Given = {}


def chosen_settings(draft: Ranker[Any], part: LaterPart, given: Given = NOTHING_GIVEN) -> Settings:
    """The best answer to each question about a ranker, given those to the questions before.

    The settings stay as they are where there is no difference, and those that are given stay.
    """
    questions = QUESTIONS.get(draft.method, ())
    best: Settings = draft.config
    highest = _ndcg(draft, best, part) if questions else 0.0
    for answers in questions:
        before = best
        for answer in answers:
            open_settings = {name: value for name, value in answer.items() if name not in given}
            config = changed(before, open_settings)
            if config != before and (value := _ndcg(draft, config, part)) > highest:
                best, highest = config, value
    return best


def _ndcg(draft: Ranker[Any], config: Settings, part: LaterPart) -> float:
    ranker = type(draft)(config, seed=draft.seed).fit(part.split)
    return float(part.ndcg(ranker).mean())
