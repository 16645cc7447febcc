"""Runs with containers, or with processes on other hosts: their files, and the modules that remove them."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = Path("/var/run/docker.sock")
COMPOSE_FILE = "compose.yaml"
"""In the work directory of a run before its first container is created."""

NODES_FILE = "nodes.json"
"""In the work directory of a run before anything is written to other hosts."""

MODULES = {COMPOSE_FILE: "harness.host.engine", NODES_FILE: "harness.host.node_runs"}
"""Modules with ``end`` and ``remove``, imported only if they are needed, as the import takes time."""


def may_have_engine() -> bool:
    """Return whether there may be a container engine."""
    return SOCKET.exists() or "DOCKER_HOST" in os.environ
