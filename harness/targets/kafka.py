"""How a Kafka broker of a target is configured and formatted. Sources: KIP-500, KIP-853."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.kafka_api.address import Address

BROKER_CLASS = "kafka.Kafka"
STORAGE_CLASS = "kafka.tools.StorageTool"
CLIENT, REPLICA, CONTROLLER = "CLIENT", "REPLICA", "CONTROLLER"

JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx256m", "-Xshare:auto", "-XX:-UsePerfData")
"""Three brokers on two cores: one collector thread and no optimising compiler start fastest."""

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
    # All but one broker may be away; acks=all waits for whoever is in the ISR.
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
"""Roles, addresses and folders: `server_properties` decides them, and other names of them contradict it."""


@dataclass(frozen=True)
class Listener:
    """One of a node's sockets: the address that it binds, and the one by which others reach it."""

    name: str
    bound: Address
    advertised: Address
    protocol: str = "PLAINTEXT"


def random_cluster_id() -> str:
    """Return a cluster id as Kafka makes them: 16 bytes, URL-safe base64, no leading ``-`` (Uuid.randomUuid)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def server_properties(
    *,
    node_id: int,
    listeners: Sequence[Listener],
    controllers: Mapping[int, Listener],
    log_dir: str,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return one KRaft node's properties: a broker, and a controller too where ``controllers`` has it.

    Brokers reach each other by the last of the ``listeners``. ``settings`` win over everything but roles and
    addresses.
    """
    own = [controllers[node_id]] if node_id in controllers else []
    everything = [*listeners, *controllers.values()]
    return {
        **SMALL_CLUSTER,
        **settings,
        "process.roles": "broker,controller" if own else "broker",
        "node.id": str(node_id),
        "listeners": ",".join(f"{one.name}://{one.bound}" for one in (*listeners, *own)),
        "advertised.listeners": ",".join(f"{one.name}://{one.advertised}" for one in listeners),
        "listener.security.protocol.map": ",".join(dict.fromkeys(f"{one.name}:{one.protocol}" for one in everything)),
        "inter.broker.listener.name": listeners[-1].name,
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(f"{node}@{at.advertised}" for node, at in sorted(controllers.items())),
        "log.dirs": log_dir,
    }


def format_properties(properties: Mapping[str, str]) -> str:
    """Return a ``.properties`` file's text."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())
