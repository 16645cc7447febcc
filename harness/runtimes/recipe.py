"""Recipes for containers of each system: compose files, their variables, configurations and paths."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from harness.broker_files.segments.redpanda import is_segment
from harness.errors import UsageError
from harness.kafka_api.address import Address
from harness.runtimes.base import ClusterSpec
from harness.runtimes.log_dir import LOG_DIR_FILES, is_live
from harness.targets import REDPANDA, Target, kafka

CLIENT_PORT, CONTROLLER_PORT, REPLICA_PORT, ADMIN_PORT = 9092, 9093, 9094, 9644
ANYWHERE = "0.0.0.0"  # noqa: S104  (inside the container; only clients' ports are published, on loopback)

KAFKA_CONFIG, KAFKA_DATA = PurePath("/mnt/shared/config/server.properties"), "/var/lib/kafka/data"
REDPANDA_CONFIG, REDPANDA_DATA = PurePath("/etc/redpanda/.bootstrap.yaml"), "/var/lib/redpanda/data"


@dataclass(frozen=True)
class Recipe:
    """The parameters for the containers of a target.

    ``config``: the path of the configuration, whose content ``configure`` returns for the run, the broker and its
    address for clients. ``variables``: of the compose files. ``folder``: returns the path of a topic's partition, and
    ``is_log_file`` whether one of its files is part of the log. ``checkpoints``: paths of side files. ``admin_port``:
    of an HTTP API, or None.
    """

    compose_file: str
    config: PurePath
    configure: Callable[[ClusterSpec, int, Address], str]
    variables: Mapping[str, str]
    folder: Callable[[str, int], str]
    is_log_file: Callable[[PurePath, int], bool]
    checkpoints: tuple[PurePath, ...] = ()
    admin_port: int | None = None


def service(broker: int) -> str:
    """Return the name of a broker's service, which is its host name for the other containers."""
    return f"broker-{broker}"


def recipe_for(target: Target) -> Recipe:
    """Return the recipe of a target."""
    if target.system == REDPANDA:
        return Recipe(
            compose_file="redpanda.yaml",
            config=REDPANDA_CONFIG,
            configure=_bootstrap,
            variables={},
            folder=lambda topic, _: f"{REDPANDA_DATA}/kafka/{topic}",
            # The name of a partition's folder includes the revision at which its replica was created.
            is_log_file=lambda path, partition: path.parent.name.startswith(f"{partition}_") and is_segment(path.name),
            admin_port=ADMIN_PORT,
        )
    heap = [flag for flag in kafka.JVM_FLAGS if flag.startswith("-Xm")]
    others = [flag for flag in (*kafka.JVM_FLAGS, *kafka.LOG_FLAGS) if flag not in heap]
    return Recipe(
        compose_file="kafka.yaml",
        config=KAFKA_CONFIG,
        configure=_server_properties,
        variables={
            "HARNESS_CLUSTER_ID": kafka.random_cluster_id(),
            "HARNESS_HEAP_OPTS": " ".join(heap),
            "HARNESS_JVM_OPTS": " ".join(others),
        },
        folder=lambda topic, partition: f"{KAFKA_DATA}/{topic}-{partition}",
        is_log_file=lambda path, _: is_live(path.name),
        checkpoints=tuple(PurePath(KAFKA_DATA, name) for name in LOG_DIR_FILES),
    )


def _server_properties(spec: ClusterSpec, broker: int, advertised: Address) -> str:
    if spec.security is not None and spec.security.scram_user:
        raise UsageError("images format storage without SCRAM users: use PLAIN")

    def inner(name: str, node: int, port: int) -> kafka.Listener:
        return kafka.Listener(name, Address(service(node), port), Address(ANYWHERE, port))

    clients = kafka.Listener(kafka.CLIENT, advertised, Address(ANYWHERE, CLIENT_PORT))
    return kafka.server_properties(
        node_id=broker,
        listeners=[clients, inner(kafka.REPLICA, broker, REPLICA_PORT)],
        controllers={node: inner(kafka.CONTROLLER, node, CONTROLLER_PORT) for node in spec.controllers},
        log_dir=KAFKA_DATA,
        settings=spec.settings,
        security=spec.security,
    )


def _bootstrap(spec: ClusterSpec, _broker: int, _advertised: Address) -> str:
    if spec.security is not None:
        raise UsageError("--command-config: the harness does not configure logins on Redpanda's brokers")
    return "".join(f"{name}: {value}\n" for name, value in spec.settings.items())
