"""Container images of a target: the official one where it can be had, or one that was built here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from harness.errors import UsageError
from harness.suggest import quoted
from harness.targets import KAFKA

if TYPE_CHECKING:
    from docker import DockerClient

    from harness.targets import Target

BUILT_HERE = "compaction-harness/kafka"
STORE = "minio/minio:RELEASE.2025-04-22T22-12-26Z"
"""An S3-compatible object store, for targets that keep data in one."""


@dataclass(frozen=True)
class Image:
    """An image that the engine has: by which name it was found, its id, and its digests in registries."""

    reference: str
    id: str
    digests: tuple[str, ...]


def official(target: Target) -> str:
    """Return the name of the image that the makers publish."""
    return f"apache/kafka:{target.version}" if target.system == KAFKA else f"redpandadata/redpanda:v{target.version}"


def built_here(target: Target) -> str:
    """Return the name of the image that ``harness images build`` makes."""
    return f"{BUILT_HERE}:{target.version}"


def find(client: DockerClient, target: Target, wanted: str | None = None) -> Image | None:
    """Return the image that the engine has, the official one first; None where it has none."""
    built = [built_here(target)] if target.system == KAFKA else []
    for reference in [wanted] if wanted else [official(target), *built]:
        try:
            found = client.images.get(reference)
        except ImageNotFound:
            continue
        except APIError as error:
            raise UsageError(
                f"--image {quoted(reference)}: the container engine refuses it: {error.explanation}"
            ) from error
        return Image(reference, str(found.id), tuple(found.attrs["RepoDigests"] or ()))
    return None


def obtain(client: DockerClient, target: Target, wanted: str | None = None) -> Image:
    """Return the image, pulled where the engine has none. Raises `UsageError` that says how else to get one."""
    found = find(client, target, wanted)
    if found is not None:
        return found
    reference = wanted or official(target)
    remedy = (
        f"build one from the brokers' jars with `harness images build {target.name}`"
        if target.system == KAFKA
        else "pull it where a registry can be reached, and bring it here with `docker save` and `docker load`"
    )
    pull(client, reference, f"there is no image of {target.name}", remedy)
    found = find(client, target, reference)
    if found is None:
        raise UsageError(f"the container engine pulled {reference} and does not have it")
    return found


def obtain_store(client: DockerClient) -> str:
    """Return the object store's image, pulled where the engine has none. Raises `UsageError` as `obtain` does."""
    try:
        return str(client.images.get(STORE).id)
    except ImageNotFound:
        pull(
            client, STORE, "there is no image of an object store", "bring it here with `docker save` and `docker load`"
        )
        return str(client.images.get(STORE).id)


def pull(client: DockerClient, reference: str, lack: str, remedy: str) -> None:
    """Pull an image. Raises `UsageError` that says what is lacking, why it cannot be pulled, and what to do."""
    try:
        client.images.pull(reference)
    except (NotFound, APIError, DockerException, RequestException) as error:
        why = error.explanation if isinstance(error, APIError) else error
        raise UsageError(f"{lack}, and {reference} cannot be pulled ({why}); {remedy}") from error
