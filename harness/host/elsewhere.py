"""Where a run has more than processes of this host: what says so, and which module takes it apart."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = Path("/var/run/docker.sock")
COMPOSE_FILE = "compose.yaml"
"""In the work directory of a run that has containers, from before the first of them is made."""

NODES_FILE = "nodes.json"
"""In that of a run on other hosts, from before anything is written there."""

MODULES = {COMPOSE_FILE: "harness.host.engine", NODES_FILE: "harness.host.node_runs"}
"""The module with ``end`` and ``remove``; to be imported only where it is needed, as that takes a moment."""


def may_have_engine() -> bool:
    """Whether it is worth asking for a container engine."""
    return SOCKET.exists() or "DOCKER_HOST" in os.environ
