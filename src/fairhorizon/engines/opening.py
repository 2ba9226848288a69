"""The engine on Ray, which is an extra: imported when it is asked for, and by nothing else."""

from fairhorizon.engines.engine import TaskEngine
from fairhorizon.errors import ConfigError


def ray_engine(address: str | None, jobs: int | None, threads: int) -> TaskEngine:
    """Tasks on the Ray cluster at the address; None: on Ray that is started here."""
    try:
        from fairhorizon.engines.on_ray import OnRay
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "ray":
            raise
        raise ConfigError("--engine ray needs Ray (pip install 'fairhorizon[ray]')") from None
    return OnRay(address, jobs, threads)
