"""A cluster of processes of this machine, for tests that are not runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.cluster.boot import cluster_on, equip
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.kafka_api.security import Security
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.targets import find_target

BOUND_S = 120.0


@contextmanager
def local_cluster(
    target: str,
    folder: Path,
    settings: Mapping[str, str],
    brokers: Sequence[int] = (1, 2, 3),
    security: Security | None = None,
    *,
    jvm_flags: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Make a cluster without starting its brokers; after the block they end. ``folder``: of its logs."""
    equipment = equip(RuntimeRequest(find_target(target), find_java(), lambda *_: None), LOCAL)
    with Workspace(f"test-{new_run_id()}", folder) as workspace:
        spec = ClusterSpec(
            workspace.run_id,
            workspace.path,
            folder,
            settings,
            tuple(brokers),
            security=security,
            jvm_flags=tuple(jvm_flags),
        )
        with cluster_on(equipment, spec, settle_s=BOUND_S) as cluster:
            # Until brokers and topics are known, admins get errors.
            cluster.tolerated = (HarnessError, OSError, ValueError)
            yield cluster
