"""A real Ray cluster, on loopback alone; its tests are run by `make ray` and skipped where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def importable() -> None:
    """Ray's workers find the steps of the tests, which nobody installs, and listen on loopback."""
    pytest.importorskip("ray")
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ours = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(ours)


@pytest.fixture(scope="module")
def cluster(importable: None) -> Iterator[Any]:
    """Three nodes with a CPU each, one of which says that it has a GPU."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(**node)
    made.add_node(**node, num_gpus=1)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The folder where steps note what they compute."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder
