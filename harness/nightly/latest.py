"""``--latest``: the newest published patch of a line, where this release names an older one."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import requests

from harness.errors import UsageError
from harness.targets import KAFKA, REDPANDA, SIMULATED, at_version, find_target, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.targets import Target

_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)")
_TIMEOUT_S = 30.0
_PAGES = 20
Get: TypeAlias = "Callable[..., requests.Response]"
"""Requests an address with parameters."""


class _Registry(NamedTuple):
    """The registry of a system's versions: its name, its root, the variable that replaces the root, and its reader."""

    name: str
    root: str
    root_variable: str
    read: Callable[[Get, str, Target], list[str]]


def newest_patches() -> Callable[[str], str | None]:
    """Return a function from a target that is a line to its newest patch; None where the target is that already.

    Kafka's are on Maven Central, Redpanda's are the tags of its image on Docker Hub.
    Raises `UsageError` where the registry does not answer.
    """
    get = cache(_get)  # lines of Kafka share the answer of Maven Central

    def newest(name: str) -> str | None:
        target = find_target(name)
        if line_of(name) != name or target.system in SIMULATED:
            return None
        patch = newest_of(target.version, _published(get, target))
        return None if patch is None else at_version(name, patch).name

    return newest


def newest_of(version: str, published: list[str]) -> str | None:
    """Return the newest release of the line of a version; None where the version is the newest."""
    line = version.rpartition(".")[0]
    patches = {int(one.rpartition(".")[2]) for one in published if one.rpartition(".")[0] == line}
    newest = max(patches, default=0)
    return f"{line}.{newest}" if newest > int(version.rpartition(".")[2]) else None


def _published(get: Get, target: Target) -> list[str]:
    """Return all versions of a target's line except release candidates; versions of other lines may be among them."""
    registry = _REGISTRIES[target.system]
    root = os.environ.get(registry.root_variable) or registry.root
    try:
        versions = registry.read(get, f"{root.rstrip('/')}/", target)
    except (requests.RequestException, ET.ParseError, KeyError, TypeError) as error:
        raise UsageError(
            f"--latest: {registry.name} does not list the versions of {target.system}: {error}; "
            f"leave it out, or name another registry in {registry.root_variable}"
        ) from error
    return [release[1] for one in versions if (release := _RELEASE.fullmatch(one))]


def _get(url: str, **parameters: str) -> requests.Response:
    answer = requests.get(url, params=parameters, timeout=_TIMEOUT_S)
    answer.raise_for_status()
    return answer


def _of_maven(get: Get, root: str, target: Target) -> list[str]:
    metadata = get(urljoin(root, f"org/apache/kafka/kafka_{target.scala}/maven-metadata.xml"))
    return [one.text or "" for one in ET.fromstring(metadata.content).iter("version")]  # noqa: S314


def _of_hub(get: Get, root: str, target: Target) -> list[str]:
    """Return the tags of the image that begin as the line does: Docker Hub's API v2 returns them by pages."""
    line = target.version.rpartition(".")[0]
    tags: list[str] = []
    for number in range(1, _PAGES + 1):
        page = get(
            urljoin(root, "v2/namespaces/redpandadata/repositories/redpanda/tags"),
            name=f"v{line}.", page_size="100", page=str(number),
        ).json()  # fmt: skip
        tags += [one["name"] for one in page["results"]]
        if not page["next"]:
            return tags
    raise TypeError(f"more than {_PAGES} pages of tags")


_REGISTRIES = {
    KAFKA: _Registry("Maven Central", "https://repo1.maven.org/maven2", "COMPACTION_HARNESS_MAVEN_ROOT", _of_maven),
    REDPANDA: _Registry("Docker Hub", "https://hub.docker.com", "COMPACTION_HARNESS_DOCKER_HUB_ROOT", _of_hub),
}
