"""``--latest``: the newest published patch of a line, where this release names an older one."""

import os
import re
from collections.abc import Callable
from functools import cache
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import requests

from harness.errors import UsageError
from harness.targets import KAFKA, REDPANDA, SIMULATED, at_version, find_target, line_of

_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)")
_TIMEOUT_S = 30.0
_PAGES = 20


def newest_patches() -> Callable[[str], str | None]:
    """Return a function from a target that is a line to its newest patch; None where the target is that already.

    Kafka's are on Maven Central, Redpanda's are the tags of its image on Docker Hub.
    Raises `UsageError` where the registry does not answer.
    """
    published = cache(_published)  # lines of Kafka share the answer of Maven Central

    def newest_patch(name: str) -> str | None:
        target = find_target(name)
        if line_of(name) != name or target.system in SIMULATED:
            return None
        series = target.scala if target.system == KAFKA else target.version.rpartition(".")[0]
        line, _, patch = target.version.rpartition(".")
        releases = (release.rpartition(".") for release in published(target.system, str(series)))
        newest = max((int(number) for of_line, _, number in releases if of_line == line), default=0)
        return at_version(name, f"{line}.{newest}").name if newest > int(patch) else None

    return newest_patch


def _published(system: str, series: str) -> list[str]:
    """Return the published versions except release candidates. ``series``: Kafka's Scala version, Redpanda's line."""
    registry, root, variable, read = _REGISTRIES[system]
    root = (os.environ.get(variable) or root).rstrip("/") + "/"
    try:
        versions = read(root, series)
    except (requests.RequestException, ET.ParseError, KeyError, TypeError) as error:
        raise UsageError(
            f"--latest: {registry} does not list the versions of {system}: {error}; "
            f"leave it out, or name another registry in {variable}"
        ) from error
    return [release[1] for version in versions if (release := _RELEASE.fullmatch(version))]


def _get(url: str, **parameters: str) -> requests.Response:
    answer = requests.get(url, params=parameters, timeout=_TIMEOUT_S)
    answer.raise_for_status()
    return answer


def _maven_versions(root: str, scala: str) -> list[str]:
    metadata = _get(urljoin(root, f"org/apache/kafka/kafka_{scala}/maven-metadata.xml"))
    return [version.text or "" for version in ET.fromstring(metadata.content).iter("version")]  # noqa: S314


def _docker_hub_tags(root: str, line: str) -> list[str]:
    """Return the tags of the image that begin as the line does: Docker Hub's API v2 returns them by pages."""
    url = urljoin(root, "v2/namespaces/redpandadata/repositories/redpanda/tags")
    tags: list[str] = []
    for number in range(1, _PAGES + 1):
        page = _get(url, name=f"v{line}.", page_size="100", page=str(number)).json()
        tags += [tag["name"] for tag in page["results"]]
        if not page["next"]:
            return tags
    raise TypeError(f"more than {_PAGES} pages of tags")


_REGISTRIES: dict[str, tuple[str, str, str, Callable[[str, str], list[str]]]] = {
    KAFKA: ("Maven Central", "https://repo1.maven.org/maven2", "COMPACTION_HARNESS_MAVEN_ROOT", _maven_versions),
    REDPANDA: ("Docker Hub", "https://hub.docker.com", "COMPACTION_HARNESS_DOCKER_HUB_ROOT", _docker_hub_tags),
}
"""The registry of each system: its name, its root, the variable that replaces the root, and the reader of versions."""
