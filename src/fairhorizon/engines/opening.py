"""The engine on Ray, which is an extra: imported when it is asked for, and by nothing else."""

import os

from fairhorizon.engines.engine import TaskEngine
from fairhorizon.errors import ConfigError

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # of what it prints about lost workers, to stdout
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a warning about what it will do one day
}


def ray_engine(address: str | None, jobs: int | None, threads: int) -> TaskEngine:
    """Tasks on the Ray cluster at the address; None: on Ray that is started here."""
    for name, value in QUIET.items():  # Ray reads them when it is imported
        os.environ.setdefault(name, value)
    try:
        from fairhorizon.engines.on_ray import OnRay
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "ray":
            raise
        raise ConfigError("--engine ray needs Ray (pip install 'fairhorizon[ray]')") from None
    return OnRay(address, jobs, threads)
