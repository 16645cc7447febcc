"""What is observed once the evidence of the verdict is complete: an application on top, and the aftermath."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from harness.errors import HarnessError
from harness.play import aftermath, applications

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.clients import ClientSpec, Library
    from harness.cluster.cluster import Cluster
    from harness.play.lifecycle import Job
    from harness.run_folder.manifest import Manifest
    from harness.run_folder.store import RunFolder

log = logging.getLogger("harness")

FollowUp: TypeAlias = "Callable[[RunFolder, Callable[[str], None]], None]"
"""Observes a cluster whose outage is over, into the run folder; the second argument reports progress."""


def observe(  # noqa: PLR0917
    job: Job,
    cluster: Cluster,
    client: ClientSpec,
    library: Library,
    manifest: Manifest,
    progress: Callable[[str], None],
) -> None:
    """Observe what the options ask for, and list the evidence anew."""
    found: dict[str, FollowUp] = {}
    if job.installed is not None:
        found["application"] = partial(applications.follow, job.test, cluster, installed=job.installed, client=client)
    if job.options.aftermath:
        found["aftermath"] = partial(aftermath.follow, job.test, cluster, library.producer)
    for what, follow in found.items():
        attempt(what, follow, manifest, progress)
    if found:
        manifest.list_evidence()


def attempt(what: str, follow: FollowUp, manifest: Manifest, progress: Callable[[str], None]) -> None:
    """Observe one of them. A failure here is logged, and takes nothing from the verdict."""
    try:
        follow(manifest.folder, progress)
    except (HarnessError, OSError) as error:
        log.warning("the %s was not followed to its end: %s", what, error)
        manifest.content[f"{what}_failure"] = str(error)
        manifest.write()
