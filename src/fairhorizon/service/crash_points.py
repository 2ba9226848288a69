"""Places where tests end the process as a power cut would, to see that nothing is lost."""

import os
import signal

VARIABLE = "FAIRHORIZON_CRASH_AT"
AFTER_CHARGE, BEFORE_COMMIT, AFTER_COMMIT = "after-charge", "before-commit", "after-commit"
IN_EPOCH_SWITCH = "in-epoch-switch"
FEEDBACK_AFTER_COMMIT = "feedback-after-commit"


def crash_point(name: str) -> None:
    """Do nothing, unless the environment asks for an end right here."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
