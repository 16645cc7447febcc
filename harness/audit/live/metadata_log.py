"""The metadata log of a running cluster, fetched from its active controller into a folder as a broker's copy has it.

    __cluster_metadata-0/<20-digit start offset>.log
                         <20-digit end offset>-<10-digit epoch>.checkpoint      the oldest, if the log starts later

Committed records only: up to the high watermark.
"""

import logging
import shutil
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.audit.live.cluster import METADATA
from harness.broker_files.internal_topics.decode import CLUSTER_METADATA
from harness.broker_files.metadata_log.join import JoinedLog, read_metadata_logs
from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.broker_files.segments.records import MAX_INT64
from harness.errors import HarnessError, UsageError
from harness.kafka_api import quorum
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient, Connection
from harness.kafka_api.fetch import choose_version

log = logging.getLogger("harness")
METADATA_FOLDER: Final = f"{CLUSTER_METADATA}-0"
ATTEMPTS: Final = 3
MEANINGS: Final = {
    "ClusterAuthorizationFailedError": "this user does not have ClusterAction on the cluster",
    "InconsistentClusterIdError": "it is a controller of another cluster",
    "UnknownTopicIdError": "it is a listener of a broker, not of a controller",
}
"""Errors in words."""
OF_CONTROLLERS: Final = frozenset(
    {
        "BrokerNotAvailableError",
        "ClusterAuthorizationFailedError",
        "FencedLeaderEpochError",
        "NotLeaderForPartitionError",
        "UnknownLeaderEpochError",
    }
)
"""Errors that a controller of this cluster answers with."""


@dataclass(frozen=True)
class ActiveController:
    """A connection to the leader of the quorum. ``first``: its answer for the start of the log."""

    connection: Connection
    cluster_id: str
    version: int
    first: quorum.MetadataAnswer

    def fetch(self, position: quorum.LogPosition) -> quorum.MetadataAnswer:
        """Return its answer for a position. Raises `HarnessError` for an error, and OSError."""
        answer = _asked(self.connection, self.cluster_id, self.version, position, self.first.epoch)
        if answer.error is not None:
            raise HarnessError(f"the active controller answers {answer.error}")
        return answer


def find_active_controller(client: ClusterClient, controllers: Sequence[Address], cluster_id: str) -> ActiveController:
    """Connect to the active controller: one of these, or the one that they name.

    Raises `UsageError` where no address is a controller of this cluster, else `HarnessError` where none is active or
    the user may not read the log.
    """
    errors: dict[Address, str] = {}
    pending = list(controllers)
    for address in pending:
        try:
            with ExitStack() as on_error:
                connection = on_error.enter_context(client.connection(address, METADATA))
                version = connection.ask(choose_version(versions=quorum.FETCH_VERSIONS))
                epoch = _asked(connection, cluster_id, version, quorum.LOG_START, quorum_epoch=0).epoch
                answer = _asked(connection, cluster_id, version, quorum.LOG_START, quorum_epoch=max(epoch, 0))
                if answer.error is None:
                    on_error.pop_all()
                    return ActiveController(connection, cluster_id, version, answer)
        except (OSError, HarnessError) as error:
            errors[address] = str(error)
            continue
        errors[address] = answer.error
        if answer.address is not None and answer.address not in pending:
            pending.append(Address(answer.address.host, answer.address.port, address.security))
    text = "; ".join(f"{address}: {MEANINGS.get(error, error)}" for address, error in errors.items())
    if OF_CONTROLLERS.isdisjoint(errors.values()):
        raise UsageError(f"--controllers: {text}")
    raise HarnessError(text)


def verify_controllers(client: ClusterClient, controllers: Sequence[Address], cluster_id: str) -> None:
    """Raise `UsageError` where none of these is a controller of this cluster, before anything is read."""
    if controllers:
        try:
            find_active_controller(client, controllers, cluster_id).connection.close()
        except UsageError:
            raise
        except HarnessError as error:
            log.warning("no metadata log: %s", error)


def fetch_metadata_log(
    client: ClusterClient, controllers: Sequence[Address], cluster_id: str, folder: Path, topics: Collection[str]
) -> JoinedLog:
    """Fetch the metadata log into a new folder, and read it; a note says why it is missing.

    It is fetched again where the leader changes meanwhile, or the log's start moves.
    """
    failure = ""
    for _ in range(ATTEMPTS):
        try:
            controller = find_active_controller(client, controllers, cluster_id)
            with closing(controller.connection):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                _store(controller, folder)
            return read_metadata_logs({controller.first.leader: folder}, topics)
        except (OSError, HarnessError) as error:
            failure = str(error)
    return JoinedLog(None, (f"the metadata log could not be fetched from a controller: {failure}",))


def _store(controller: ActiveController, folder: Path) -> None:
    goal, log_start = controller.first.high_watermark, controller.first.log_start
    if goal < 0:
        raise HarnessError("the active controller was just elected, and does not know the high watermark yet")
    if log_start == 0:
        # A request at 0 is answered with the newest snapshot. Record 0 is not metadata: it is an election.
        position = quorum.LogPosition(1, controller.first.epoch)
    else:
        position = _oldest_snapshot(controller)
        _store_snapshot(controller, position, folder / f"{position.offset:020}-{position.epoch:010}.checkpoint")
    with (folder / f"{log_start:020}.log").open("wb") as file:
        while position.offset < goal:
            records = controller.fetch(position).records
            served = until_cut(iter_batches(records, source="Fetch answer of the metadata log", verify_crc=False))
            batches = [batch for batch in served if batch.last_offset < goal]
            if not batches:
                raise HarnessError(f"the active controller serves nothing from offset {position.offset} on")
            file.write(records[: batches[-1].position + batches[-1].size_bytes])
            # The epoch must only not be older than the oldest snapshot's: the log itself is not compared with it.
            position = quorum.LogPosition(batches[-1].last_offset + 1, controller.first.epoch)


def _oldest_snapshot(controller: ActiveController) -> quorum.LogPosition:
    """Return the snapshot at the log's start, whose epoch no answer has.

    Only positions of lower epochs are answered with the newest snapshot (`ReplicatedLog.validateOffsetAndEpoch`).
    """
    low, high = 0, controller.first.epoch
    while low < high:
        middle = (low + high) // 2
        if controller.fetch(quorum.LogPosition(MAX_INT64, middle)).snapshot is None:
            high = middle
        else:
            low = middle + 1
    return quorum.LogPosition(controller.first.log_start, low)


def _store_snapshot(controller: ActiveController, snapshot: quorum.LogPosition, path: Path) -> None:
    size_bytes, stored_bytes = 1, 0
    with path.open("wb") as file:
        while stored_bytes < size_bytes:
            request = quorum.fetch_snapshot(
                snapshot, stored_bytes, quorum_epoch=controller.first.epoch, cluster_id=controller.cluster_id
            )
            data, size_bytes = controller.connection.ask(request)
            if not data:
                raise HarnessError(f"the snapshot at offset {snapshot.offset} ends after {stored_bytes} bytes")
            stored_bytes += file.write(data)


def _asked(
    connection: Connection, cluster_id: str, version: int, position: quorum.LogPosition, quorum_epoch: int
) -> quorum.MetadataAnswer:
    return connection.ask(
        quorum.fetch_metadata(position, quorum_epoch=quorum_epoch, cluster_id=cluster_id, version=version)
    )
