"""What every node of the cluster of tests is like."""

from typing import Any

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
