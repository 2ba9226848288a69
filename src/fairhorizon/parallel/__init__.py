"""Many tasks, or blocks of users, in workers: processes of this machine or a Ray cluster."""

import os

from fairhorizon.errors import ConfigError
from fairhorizon.parallel.engine import TaskEngine

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prints about lost workers to stdout, where our results go.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    # A warning about what a later version will do.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def ray_engine(address: str | None, jobs: int | None, threads: int) -> TaskEngine:
    """The engine on the Ray cluster at the address; None: on Ray that is started here.

    Ray is an extra that takes seconds to import, so it is imported when it is asked for.
    """
    # Ray reads them when it is imported.
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from fairhorizon.parallel.on_ray import OnRay
    except ModuleNotFoundError as error:
        # Something else is missing, perhaps in Ray itself: that is not for us to explain.
        if str(error.name).partition(".")[0] != "ray":
            raise
        raise ConfigError("--engine ray needs Ray (pip install 'fairhorizon[ray]')") from None
    return OnRay(address, jobs, threads)
