"""The container engine of this host, through its API.

Containers, networks and volumes of a run have the label `LABEL`, by which they are found and removed.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from harness.errors import HarnessError, UsageError
from harness.host import commands, leftovers

LABEL, OWNER_LABEL = "compaction-harness.run", "compaction-harness.owner"
TIMEOUT_S = 30

REMEDIES = {
    "PermissionError": "this user may not use its socket: add it to the group docker, or run as root",
    "FileNotFoundError": "none is running: start it (systemctl start docker)",
    "ConnectionRefusedError": "it is not running: start it (systemctl start docker)",
}
"""Remedies by the operating system's error, which the client mentions in its message."""

NO_SUBNET = (
    "the engine has no free subnet for the run's network: remove networks that nobody uses (docker network prune),"
    " or give it more (default-address-pools in /etc/docker/daemon.json)"
)
SAYS_NO_SUBNET = ("non-overlapping", "fully subnetted", "Pool overlaps")
"""Parts of the messages of compose and of the engine without a free subnet."""

OWN_MODULES = {"PYTHONPATH": ""}
"""The environment for compose: version 1 is a Python program with a package of the same name as ``compose/``."""

COMPOSE = (("docker", "compose"), ("docker-compose",))
"""Commands of compose: version 2 is a plugin of docker, version 1 a separate program."""


def connect() -> docker.DockerClient:
    """Return a client of the engine, which has answered a ping. Raises `UsageError` with a remedy."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise UsageError(f"DOCKER_HOST is {host}: brokers are published on this host's loopback; use a local engine")
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (DockerException, RequestException) as error:
        message = str(error)
        why = next((remedy for name, remedy in REMEDIES.items() if name in message), message)
        raise UsageError(f"no container engine can be used: {why}") from error
    return client


def labelled(run_id: str) -> dict[str, str | list[str] | bool]:
    """Return the filter for the containers, networks and volumes of a run."""
    return {"label": f"{LABEL}={run_id}"}


def owner() -> str:
    """Return the owner of containers that are created here. Runs of other hosts, users and folders are not visible."""
    return f"{socket.gethostname()}:{leftovers.work_root()}"


def find_compose() -> tuple[str, ...]:
    """Return the command of compose. Raises `UsageError` if it is not installed."""
    for command in COMPOSE:
        with suppress(HarnessError):
            commands.run(*command, "version", variables=OWN_MODULES)
            return command
    raise UsageError(
        "neither `docker compose` nor `docker-compose` works here: apt-get install docker-compose-v2, or docker-compose"
    )


class MissingError(HarnessError):
    """Raised if the engine does not have this container, file, network or volume."""


@contextmanager
def errors_as(description: str) -> Iterator[None]:
    """Turn the client's exceptions into a `HarnessError` whose message begins with ``description``."""
    try:
        yield
    except APIError as error:
        kind = MissingError if isinstance(error, NotFound) else HarnessError
        raise kind(f"{description}: {error.explanation or error}") from error
    except (DockerException, RequestException) as error:
        raise HarnessError(f"{description}: the container engine does not answer ({type(error).__name__})") from error


def remove(_directory: Path, run_id: str) -> int:
    """Remove the run's containers, networks and volumes; return the number of containers.

    Raises `HarnessError` if something cannot be removed, or the engine does not answer.
    """
    client = connect()
    mine = labelled(run_id)
    with errors_as(f"the containers of {run_id} cannot be removed"):
        containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
        removals: list[Callable[[], None]] = [partial(container.remove, force=True, v=True) for container in containers]
        removals += [network.remove for network in client.networks.list(filters=mine)]
        removals += [partial(volume.remove, force=True) for volume in client.volumes.list(filters=mine)]
        for removal in removals:
            with _gone():
                removal()
    return len(containers)


def end(_directory: Path, run_id: str) -> int:
    """End the run's containers without removing them; return their number. Raises `HarnessError`."""
    with errors_as(f"the containers of {run_id} cannot be ended"):
        containers = connect().containers.list(filters=labelled(run_id), ignore_removed=True)
        for container in containers:
            with _gone():
                container.kill()
    return len(containers)


def runs_with_containers() -> set[str]:
    """Return the ids of `owner`'s runs that have a container, a network or a volume; empty if no engine answers."""
    try:
        client = connect()
    except UsageError:
        return set()
    every_run: dict[str, str | list[str] | bool] = {"label": LABEL}
    with errors_as("containers cannot be listed"):
        containers = client.containers.list(all=True, filters=every_run, ignore_removed=True)
        others = [*client.networks.list(filters=every_run), *client.volumes.list(filters=every_run)]
        every = (*(container.labels for container in containers), *(other.attrs["Labels"] for other in others))
        return {labels[LABEL] for labels in every if labels.get(OWNER_LABEL) == owner()}


@contextmanager
def _gone() -> Iterator[None]:
    """Ignore that another process has removed or ended the object."""
    try:
        yield
    except APIError as error:
        has_ended = any(words in str(error.explanation) for words in ("already in progress", "is not running"))
        if not has_ended and not isinstance(error, NotFound):
            raise
