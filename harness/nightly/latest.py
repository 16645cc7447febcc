"""``--latest``: the newest patch of a line on Maven Central, where it is newer than the one this release names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import requests

from harness.errors import UsageError
from harness.targets import KAFKA, find_target, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT_VARIABLE, ROOT = "COMPACTION_HARNESS_MAVEN_ROOT", "https://repo1.maven.org/maven2"
_METADATA = "org/apache/kafka/kafka_{scala}/maven-metadata.xml"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_TIMEOUT_S = 30.0


def newest_patches() -> Callable[[str], str | None]:
    """Return what names, for a target that is a line of Kafka's, the newest patch; None where it is that already.

    Raises `UsageError` where the repository does not answer.
    """
    known: dict[str, list[str]] = {}

    def newest(name: str) -> str | None:
        target = find_target(name)
        if target.system != KAFKA or line_of(name) != name:
            return None
        if target.scala not in known:
            known[target.scala] = _released(target.scala)
        patch = newest_of(target.version, known[target.scala])
        return None if patch is None else f"{KAFKA}-{patch}"

    return newest


def newest_of(version: str, released: list[str]) -> str | None:
    """Return the newest release of the line of a version; None where there is none after it."""
    line = version.rpartition(".")[0]
    patches = {int(one.rpartition(".")[2]) for one in released if one.rpartition(".")[0] == line}
    newest = max(patches, default=0)
    return f"{line}.{newest}" if newest > int(version.rpartition(".")[2]) else None


def _released(scala: str) -> list[str]:
    """Return all versions that are no candidates."""
    root = os.environ.get(ROOT_VARIABLE) or ROOT
    url = urljoin(f"{root.rstrip('/')}/", _METADATA.format(scala=scala))
    try:
        answer = requests.get(url, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        versions = [one.text or "" for one in ET.fromstring(answer.content).iter("version")]  # noqa: S314
    except (requests.RequestException, ET.ParseError) as error:
        raise UsageError(f"--latest: the repository does not tell Kafka's versions: {error}") from error
    return [version for version in versions if _RELEASE.fullmatch(version)]
