"""A diverged cluster: the brokers of a run that found anomalies and was kept."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from sandbox import Sandbox, copy_live_disk, wait_until

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError
from harness.kafka_api import TopicPartition, client_requests, connection
from harness.kafka_api.address import Address

COORDINATOR_S: Final = 120.0


@dataclass(frozen=True)
class Kept:
    """A cluster that is up, by its addresses; its log directories by broker, and the folder of its run."""

    run: Path
    addresses: dict[int, str]
    log_dirs: dict[int, Path]

    @property
    def verdict(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "verdict.json").read_text()))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def without_metadata(self, folder: Path) -> dict[int, Path]:
        """Copy the brokers' log directories, but for metadata and files about to be removed."""
        for broker, log_dir in self.log_dirs.items():
            copy_live_disk(log_dir, folder / str(broker), "__cluster_metadata-0")
        return {broker: folder / str(broker) for broker in self.log_dirs}


@contextmanager
def kept_cluster(sandbox: Sandbox, target: str, anomalies: str, *options: str) -> Iterator[Kept]:
    """Make a run that finds anomalies and whose cluster stays; remove the cluster, and see that nothing is left."""
    ran = sandbox.run(target, "--anomaly", anomalies, "--keep", *options).end()
    run = sandbox.latest(target, anomalies)
    try:
        assert ran.code == EXIT_ANOMALY, ran.output
        addresses = {int(broker): at for broker, at in re.findall(r"kept: broker (\d+) at (\S+)", ran.stderr)}
        assert set(addresses) == {1, 2, 3}, ran.output
        assert f"harness clean {run.name}" in ran.stderr
        log_dirs = {broker: sandbox.work_root / run.name / f"broker-{broker}" / "data" for broker in addresses}
        yield Kept(run, addresses, log_dirs)
    finally:
        cleaned = sandbox.call("clean", run.name)
    assert (cleaned.code, "removed" in cleaned.stdout) == (EXIT_CLEAN, True), cleaned.output
    sandbox.wait_until_nothing_is_left()


def kept_clusters(anomalies: str, *targets: str) -> Any:
    """Return the fixture of a module whose tests share the cluster of one run on each target."""

    @pytest.fixture(scope="module", params=targets, name="kept")
    def cluster(make_sandbox: Callable[[str], Sandbox], request: pytest.FixtureRequest) -> Iterator[Kept]:
        with kept_cluster(make_sandbox("kept"), request.param, anomalies) as kept:
            yield kept

    return cluster


def commit_offset(brokers: Sequence[Address], group: str, partition: TopicPartition, offset: int) -> None:
    """Commit an offset of a group at its coordinator, once that has loaded the group."""

    def is_committed() -> bool:
        for broker in brokers:
            with suppress(HarnessError):
                connection.ask(broker, client_requests.commit_offsets(group, {partition: offset}))
                return True
        return False

    wait_until(is_committed, COORDINATOR_S, f"the offset of group {group}")
