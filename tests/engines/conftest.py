"""A Ray cluster of two nodes, started once for all tests."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_cluster import CLIENT_PORT, NODE

from fairhorizon.engines.opening import ray_engine


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each, which this process is connected to."""
    ray_engine(None, None, 1)  # imports Ray as a command does
    import ray
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp("", "fh-", "/tmp"))
    (folder / "ray").mkdir()
    tasks = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", tasks)
        patched.setenv("RAY_TMPDIR", str(folder))
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
