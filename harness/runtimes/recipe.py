"""How the brokers of a system are containers: compose files, what they are given, where their files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from harness.broker_files.segments.redpanda import is_segment
from harness.errors import UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.security import PLAINTEXT
from harness.runtimes.log_dir import LOG_DIR_FILES, is_live
from harness.targets import KAFKA, REDPANDA, images, kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from docker import DockerClient

    from harness.runtimes.base import ClusterSpec
    from harness.targets import Target

CLIENT_PORT, CONTROLLER_PORT, REPLICA_PORT, ADMIN_PORT = 9092, 9093, 9094, 9644
ANYWHERE = "0.0.0.0"  # noqa: S104  (inside the container; only clients' ports are published, on loopback)
STORE = "store"
"""The service beside the brokers that holds objects."""

KAFKA_CONFIG, KAFKA_DATA = PurePath("/mnt/shared/config/server.properties"), "/var/lib/kafka/data"
REDPANDA_CONFIG, REDPANDA_DATA = PurePath("/etc/redpanda/.bootstrap.yaml"), "/var/lib/redpanda/data"


@dataclass(frozen=True)
class Recipe:
    """What containers of a target are made of.

    ``config``: where each is given its configuration, and ``configure`` what that says, by the run, the broker and
    where clients reach it. ``variables``: what the compose files ask for. ``folder``: where a topic's partition is,
    and ``is_wanted`` which files of it are the log; ``checkpoints``: files beside. ``admin_port``: of an HTTP API,
    where brokers have one. ``beside``: services other than brokers, which start before them.
    """

    compose_files: tuple[str, ...]
    config: PurePath
    configure: Callable[[ClusterSpec, int, Address], str]
    variables: Mapping[str, str]
    folder: Callable[[str, int], str]
    is_wanted: Callable[[PurePath, int], bool]
    checkpoints: tuple[PurePath, ...] = ()
    admin_port: int | None = None
    beside: tuple[str, ...] = ()


def service(broker: int) -> str:
    """Return the name of a broker's service, by which the others reach it."""
    return f"broker-{broker}"


def recipe_for(target: Target, client: DockerClient) -> Recipe:
    """Return the recipe of a target. Raises `UsageError` where an image that it takes cannot be had."""
    return {KAFKA: _kafka, REDPANDA: _redpanda}[target.system](target, client)


def _kafka(_target: Target, _client: DockerClient) -> Recipe:
    heap = [flag for flag in kafka.JVM_FLAGS if flag.startswith("-Xm")]
    others = [flag for flag in (*kafka.JVM_FLAGS, *kafka.LOG_FLAGS) if flag not in heap]
    return Recipe(
        compose_files=("kafka.yaml",),
        config=KAFKA_CONFIG,
        configure=_server_properties,
        variables={
            "HARNESS_CLUSTER_ID": kafka.random_cluster_id(),
            "HARNESS_HEAP_OPTS": " ".join(heap),
            "HARNESS_JVM_OPTS": " ".join(others),
        },
        folder=lambda topic, partition: f"{KAFKA_DATA}/{topic}-{partition}",
        is_wanted=lambda path, _: is_live(path.name),
        checkpoints=tuple(PurePath(KAFKA_DATA, name) for name in LOG_DIR_FILES),
    )


def _server_properties(spec: ClusterSpec, broker: int, advertised: Address) -> str:
    security = spec.security
    if security is not None and security.scram_user:
        raise UsageError("SCRAM users are made when storage is formatted, and images do that without: use PLAIN")
    listeners = [
        kafka.Listener(
            kafka.CLIENT, Address(ANYWHERE, CLIENT_PORT), advertised, security.protocol if security else PLAINTEXT
        ),
        kafka.Listener(kafka.REPLICA, Address(ANYWHERE, REPLICA_PORT), Address(service(broker), REPLICA_PORT)),
    ]
    controllers = {
        node: kafka.Listener(
            kafka.CONTROLLER, Address(ANYWHERE, CONTROLLER_PORT), Address(service(node), CONTROLLER_PORT)
        )
        for node in spec.controllers
    }
    properties = kafka.server_properties(
        node_id=broker,
        listeners=listeners,
        controllers=controllers,
        log_dir=KAFKA_DATA,
        settings={**spec.settings, **(security.for_brokers(kafka.CLIENT) if security else {})},
    )
    return kafka.format_properties(properties)


def _redpanda(target: Target, client: DockerClient) -> Recipe:
    return Recipe(
        compose_files=("redpanda.yaml", *(["redpanda-cloud.yaml"] if target.has_store else [])),
        config=REDPANDA_CONFIG,
        configure=_bootstrap,
        variables={"HARNESS_STORE_IMAGE": images.obtain_store(client)} if target.has_store else {},
        folder=lambda topic, _: f"{REDPANDA_DATA}/kafka/{topic}",
        # A partition's folder carries the revision at which its replica was made.
        is_wanted=lambda path, partition: path.parent.name.startswith(f"{partition}_") and is_segment(path.name),
        admin_port=ADMIN_PORT,
        beside=(STORE,) if target.has_store else (),
    )


def _bootstrap(spec: ClusterSpec, _broker: int, _advertised: Address) -> str:
    """Return the cluster's properties, which Redpanda reads when it starts for the first time."""
    if spec.security is not None:
        raise UsageError("--command-config: the harness sets up no logins on Redpanda's brokers")
    return "".join(f"{name}: {value}\n" for name, value in spec.settings.items())
