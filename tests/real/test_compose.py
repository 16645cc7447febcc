"""Compose files, as the compose tool of this machine understands them."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.host import commands, engine

pytestmark = [pytest.mark.needs("compose"), pytest.mark.commit]

ADMIN = {f"HARNESS_ADMIN_PORT_{broker}": str(28000 + broker) for broker in range(1, 8)}
VARIABLES = {
    "HARNESS_RUN_ID": "2026-A-Run",
    "HARNESS_IMAGE": "sha256:brokers",
    "HARNESS_CLUSTER_ID": "a-cluster",
    **{f"HARNESS_PORT_{broker}": str(18000 + broker) for broker in range(1, 8)},
    **ADMIN,
}
BROKERS = {f"broker-{number}" for number in range(1, 8)}


def understood(path: Path, name: str) -> dict[str, Any]:
    """Return what the tool makes of this file."""
    (path / name).write_text((files("compose") / name).read_text())
    words = (*engine.find_compose(), "--file", str(path / name), "config")
    result = commands.run(*words, timeout_s=60, variables={**engine.OWN_MODULES, **VARIABLES})
    understood: dict[str, Any] = yaml.safe_load(result)
    return understood


def published(service: dict[str, Any]) -> set[tuple[str, int, int]]:
    """Return (address of this host, its port, the container's) of a service, in either of the tool's spellings."""
    ports = set()
    for port in service.get("ports", []):
        if isinstance(port, str):
            address, here, there = port.removesuffix("/tcp").split(":")
            ports.add((address, int(here), int(there)))
        else:
            ports.add((port["host_ip"], int(port["published"]), int(port["target"])))
    return ports


@pytest.mark.parametrize(("file", "admin"), [("kafka.yaml", False), ("redpanda.yaml", True)])
def test_the_compose_tool_understands_it(tmp_path: Path, file: str, *, admin: bool) -> None:
    result = understood(tmp_path, file)
    assert set(result["services"]) == BROKERS
    for name, service in result["services"].items():
        assert service["labels"] == {engine.LABEL: "2026-A-Run"}, name
        for volume in service["volumes"]:
            is_bind = volume.startswith(("/", ".", "~")) if isinstance(volume, str) else volume["type"] == "bind"
            assert not is_bind, f"{name} sees a folder of this host"
        number = int(name.removeprefix("broker-"))
        wanted = {("127.0.0.1", 18000 + number, 9092), *({("127.0.0.1", 28000 + number, 9644)} if admin else ())}
        assert published(service) == wanted
        assert service["image"] == "sha256:brokers"
    for kind in ("networks", "volumes"):
        for name, made in result[kind].items():
            assert made["labels"] == {engine.LABEL: "2026-A-Run"}, f"{kind} {name}"


def test_every_redpanda_broker_but_the_first_seeks_that(tmp_path: Path) -> None:
    services = understood(tmp_path, "redpanda.yaml")["services"]
    for number in range(1, 8):
        words = services[f"broker-{number}"]["command"]
        assert f"--node-id={number}" in words
        assert f"--advertise-kafka-addr=internal://broker-{number}:9094,external://127.0.0.1:{18000 + number}" in words
        assert "--unsafe-bypass-fsync=false" in words, "acknowledged records survive SIGKILL"
        assert ("--seeds=broker-1:33145" in words) is (number > 1)
