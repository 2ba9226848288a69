"""A Ray cluster of two nodes, started once for all tests."""

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from parallel_cluster import CLIENT_PORT, NODE

from fairhorizon.parallel import ray_engine


@pytest.fixture(scope="session")
def on_ray() -> ModuleType:
    """The module on Ray, imported as a command does it."""
    ray_engine(None, None, 1)
    from fairhorizon.parallel import on_ray

    return on_ray


def patiently(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """What finds a node of Ray, asking until it is there: Ray itself gives a node 30 seconds."""

    def found(*arguments: Any) -> Any:
        deadline = time.monotonic() + 300
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    return found


@pytest.fixture(scope="session")
def cluster(on_ray: ModuleType) -> Iterator[Any]:  # noqa: ARG001
    """Two nodes of one CPU each, which this process is connected to."""
    import ray
    from ray._private import services
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp("", "fh-", "/tmp"))
    (folder / "ray").mkdir()
    tasks = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", tasks)
        patched.setenv("RAY_TMPDIR", str(folder))
        patched.setattr(services, "get_node", patiently(services.get_node))
        # else one of many clients finds no server (github.com/ray-project/ray/issues/63202)
        patched.setenv("GRPC_ENABLE_FORK_SUPPORT", "false")
        try:
            head = {"include_dashboard": False, "ray_client_server_port": CLIENT_PORT}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves a log file open
                cluster.add_node(**NODE, **head)
            cluster.add_node(**NODE)
            ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
