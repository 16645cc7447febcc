"""The configuration of a Kafka broker. Sources: KIP-500, KIP-853."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import javaproperties  # noqa: F401  (registers the error handler of `_escaped`)

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.kafka_api.address import Address
    from harness.kafka_api.security import Security

BROKER_CLASS = "kafka.Kafka"
STORAGE_CLASS = "kafka.tools.StorageTool"
CLIENT, REPLICA, CONTROLLER = "CLIENT", "REPLICA", "CONTROLLER"

JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx256m", "-Xshare:auto", "-XX:-UsePerfData")
"""On two cores, three brokers start fastest with one collector thread and without an optimising compiler."""

LOG_FLAGS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
)

SMALL_CLUSTER = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    # All but one broker may be down; acks=all waits for the members of the ISR.
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.threads": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    # A follower learns a new high watermark from its next Fetch, which may wait this long (500 ms by default).
    "replica.fetch.wait.max.ms": "100",
}

SET_BY_HARNESS = frozenset(
    {
        "process.roles", "node.id", "broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map",
        "inter.broker.listener.name", "security.inter.broker.protocol", "controller.listener.names",
        "controller.quorum.voters", "controller.quorum.bootstrap.servers", "log.dirs", "log.dir", "metadata.log.dir",
    }
)  # fmt: skip
"""Settings for roles, addresses and folders, which only `server_properties` may set."""


@dataclass(frozen=True)
class Listener:
    """A listener of a node: its address for others, and the address that it binds if that differs."""

    name: str
    advertised: Address
    bound: Address | None = None


def random_cluster_id() -> str:
    """Return a cluster id: 16 bytes in URL-safe base64 without a leading ``-`` (Uuid.randomUuid)."""
    return f"A{base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip('=')}"


def server_properties(
    *,
    node_id: int,
    listeners: Sequence[Listener],
    controllers: Mapping[int, Listener],
    log_dir: str,
    settings: Mapping[str, str],
    security: Security | None = None,
) -> str:
    """Return one KRaft node's properties: a broker, which is also a controller if it is one of the ``controllers``.

    Brokers reach each other by the last of the ``listeners``. ``settings`` take precedence, except over
    `SET_BY_HARNESS`. ``security``: the logins of clients.

    Raises `UsageError` for a ``log_dir`` that a broker would take for other folders, which nobody would remove.
    """
    if not log_dir.isascii() or "," in log_dir:
        raise UsageError(f"brokers cannot have their data in {log_dir}: set TMPDIR to an ASCII path without commas")
    controller = [controllers[node_id]] if node_id in controllers else []
    protocols = {listener.name: "PLAINTEXT" for listener in (*listeners, *controllers.values())}
    if security:
        protocols[CLIENT] = security.protocol
    properties = {
        **SMALL_CLUSTER,
        **settings,
        **(security.for_brokers(CLIENT) if security else {}),
        "process.roles": "broker,controller" if controller else "broker",
        "node.id": str(node_id),
        "listeners": ",".join(f"{at.name}://{at.bound or at.advertised}" for at in (*listeners, *controller)),
        "advertised.listeners": ",".join(f"{at.name}://{at.advertised}" for at in listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": listeners[-1].name,
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(f"{node}@{at.advertised}" for node, at in sorted(controllers.items())),
        "log.dirs": log_dir,
    }
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    """Return a value for a file of properties, which Java reads as Latin-1 with backslashes as escapes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").encode("ascii", "javapropertiesreplace").decode()
