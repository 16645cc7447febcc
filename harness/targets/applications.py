"""The pinned jars of applications that run on top of a cluster.

A lock file for each release (``locks/streams-4.3.1.lock``) lists every jar with its SHA-256 (`harness.targets.pin`). A
line of Kafka uses the release of the same line, at its newest patch on Maven Central, or else the nearest older
release, which the manifest and each observation state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import UsageError
from harness.host.cache import cache_root
from harness.targets import KAFKA, TARGETS, Target, line_of
from harness.targets.jars import JarSet, OnProgress, fetch_locked, materialise
from harness.targets.lock import LOCKS, read_digests


@dataclass(frozen=True)
class Release:
    """The modules of an application, and its release for each line of Kafka.

    ``modules``: ``group:artifact`` names, all of one version. ``exceptions``: its version for lines of Kafka where that
    differs from the version of the line, by the name of the line.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    exceptions: Mapping[str, str]

    def version_for(self, target: Target) -> str:
        """Return the release for a target. Raises `UsageError` for a target without a release."""
        if target.system != KAFKA:
            raise UsageError(f"{self.title} was not tried on {target.name}: give a target of Kafka, such as kafka-4.4")
        line = line_of(target.name)
        return self.exceptions.get(line, TARGETS[line].version)


_STREAMS_EXCEPTIONS: Final = {"kafka-4.4": "4.3.1"}
"""Maven Central has no kafka-streams 4.4.0."""
_CONNECT_EXCEPTIONS: Final = {**_STREAMS_EXCEPTIONS, "kafka-4.2": "4.2.0"}
"""Maven Central has no connect-runtime 4.4.0, and of 4.2 only 4.2.0 with all its dependencies."""

_CONNECT: Final = ("org.apache.kafka:connect-runtime", "org.apache.kafka:connect-file")

RELEASES: Final = {
    "streams": Release("streams", "Kafka Streams", ("org.apache.kafka:kafka-streams",), _STREAMS_EXCEPTIONS),
    "connect": Release("connect", "Kafka Connect", _CONNECT, _CONNECT_EXCEPTIONS),
}


def jars_of(name: str, target: Target, on_progress: OnProgress) -> JarSet:
    """Return the application's jars for a target, and fetch missing ones.

    Raises `UsageError` as `harness.targets.jars.jars_for` does, and for a target without such an application.
    """
    full = f"{name}-{RELEASES[name].version_for(target)}"
    digests = read_digests(LOCKS / f"{full}.lock")
    return materialise(digests, cache_root() / "jars" / full, fetch_locked, on_progress)
