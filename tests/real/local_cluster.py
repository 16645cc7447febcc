"""A cluster of processes of this machine, for tests that are not runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.cluster.boot import cluster_on, equip
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.kafka_api.address import Address
from harness.kafka_api.admin import Admin
from harness.kafka_api.security import Security
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.runtimes.local import LocalRuntime
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
        place = (workspace.run_id, workspace.path, folder)
        spec = ClusterSpec(*place, settings, tuple(brokers), security=security, jvm_flags=tuple(jvm_flags))
        with cluster_on(equipment, spec, settle_s=BOUND_S) as cluster:
            # Until brokers and topics are known, admins get errors.
            cluster.tolerated = (HarnessError, OSError, ValueError)
            yield cluster


def start_brokers(cluster: Cluster) -> tuple[LocalRuntime, Admin, list[Address]]:
    """Start the brokers; return an admin and the addresses of the listener where nobody logs in or needs rights."""
    runtime = cluster.runtime
    assert isinstance(runtime, LocalRuntime)
    inside = {broker: runtime._inner.get(broker, runtime.address(broker)) for broker in runtime.brokers}
    admin = Admin(lambda: [address for broker, address in inside.items() if runtime.is_up(broker)])
    runtime.start_cluster()
    cluster.wait(lambda: admin.brokers() == inside.keys(), "the brokers to register")
    return runtime, admin, list(inside.values())
