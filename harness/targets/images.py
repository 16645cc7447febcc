"""Container images of a target: the official image, or an image that was built on this host."""

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
    """An image of the engine: its name, its id, and its digests in registries."""

    reference: str
    id: str
    digests: tuple[str, ...]


def official(target: Target) -> str:
    """Return the name of the published image."""
    return f"apache/kafka:{target.version}" if target.system == KAFKA else f"redpandadata/redpanda:v{target.version}"


def built_here(target: Target) -> str:
    """Return the name of the image that ``harness images build`` builds."""
    return f"{BUILT_HERE}:{target.version}"


def find(client: DockerClient, target: Target, reference: str | None = None) -> Image | None:
    """Return the engine's image of a target, by default the official one, else the built one; None without an image."""
    built = [built_here(target)] if target.system == KAFKA else []
    for name in [reference] if reference else [official(target), *built]:
        try:
            image = client.images.get(name)
        except ImageNotFound:
            continue
        except APIError as error:
            raise UsageError(f"--image {quoted(name)}: the container engine refuses it: {error.explanation}") from error
        return Image(name, str(image.id), tuple(image.attrs["RepoDigests"] or ()))
    return None


def obtain(client: DockerClient, target: Target, reference: str | None = None) -> Image:
    """Return the image of a target, pulled if needed. Raises `UsageError` with another way to get an image."""
    image = find(client, target, reference)
    if image is not None:
        return image
    reference = reference or official(target)
    remedy = (
        f"build one from the brokers' jars with `harness images build {target.name}`"
        if target.system == KAFKA
        else "pull it on a host that can reach a registry, and copy it with `docker save` and `docker load`"
    )
    pull(client, reference, f"there is no image of {target.name}", remedy)
    image = find(client, target, reference)
    if image is None:
        raise UsageError(f"the container engine pulled {reference} and does not have it")
    return image


def obtain_store(client: DockerClient) -> str:
    """Return the object store's image, pulled if needed. Raises `UsageError` as `obtain` does."""
    try:
        return str(client.images.get(STORE).id)
    except ImageNotFound:
        pull(client, STORE, "there is no image of an object store", "copy it with `docker save` and `docker load`")
        return str(client.images.get(STORE).id)


def pull(client: DockerClient, reference: str, problem: str, remedy: str) -> None:
    """Pull an image. Raises `UsageError` with the problem, the reason why pulling failed, and the remedy."""
    try:
        client.images.pull(reference)
    except (NotFound, APIError, DockerException, RequestException) as error:
        why = error.explanation if isinstance(error, APIError) else error
        raise UsageError(f"{problem}, and {reference} cannot be pulled ({why}); {remedy}") from error
