"""Compose files, as the compose tool of this machine understands them."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.host import commands, engine

pytestmark = [pytest.mark.needs("compose"), pytest.mark.commit]

VARIABLES = {
    "HARNESS_RUN_ID": "2026-A-Run", "HARNESS_IMAGE": "sha256:brokers", "HARNESS_CLUSTER_ID": "a-cluster",
    **{f"HARNESS_PORT_{broker}": str(18000 + broker) for broker in range(1, 8)},
    **{f"HARNESS_ADMIN_PORT_{broker}": str(28000 + broker) for broker in range(1, 8)},
}  # fmt: skip
BROKERS = {f"broker-{number}" for number in range(1, 8)}


def published(service: dict[str, Any]) -> set[tuple[str, int, int]]:
    """Return (address of this host, its port, the container's) of a service, in either of the tool's spellings."""
    listed = [
        port.removesuffix("/tcp").split(":")
        if isinstance(port, str)
        else (port["host_ip"], port["published"], port["target"])
        for port in service.get("ports", [])
    ]
    return {(address, int(here), int(there)) for address, here, there in listed}


@pytest.mark.parametrize("file", ["kafka.yaml", "redpanda.yaml"])
def test_the_compose_tool_understands_it(tmp_path: Path, file: str) -> None:
    is_redpanda = file == "redpanda.yaml"
    (tmp_path / file).write_text((files("compose") / file).read_text())
    command = (*engine.find_compose(), "--file", str(tmp_path / file), "config")
    result = yaml.safe_load(commands.run(*command, timeout_s=60, variables={**engine.OWN_MODULES, **VARIABLES}))
    assert set(result["services"]) == BROKERS
    for name, service in result["services"].items():
        assert service["labels"] == {engine.LABEL: "2026-A-Run", engine.OWNER_LABEL: ""}, name
        for volume in service["volumes"]:
            is_bind = volume.startswith(("/", ".", "~")) if isinstance(volume, str) else volume["type"] == "bind"
            assert not is_bind, f"{name} sees a folder of this host"
        number = int(name.removeprefix("broker-"))
        admin = {("127.0.0.1", 28000 + number, 9644)} if is_redpanda else set()
        assert published(service) == {("127.0.0.1", 18000 + number, 9092), *admin}
        assert service["image"] == "sha256:brokers"
        if is_redpanda:
            words, own = service["command"], f"internal://{name}:9094,external://127.0.0.1:{18000 + number}"
            assert {f"--node-id={number}", f"--advertise-kafka-addr={own}"} <= set(words)
            assert "--unsafe-bypass-fsync=false" in words, "acknowledged records survive SIGKILL"
            assert ("--seeds=broker-1:33145" in words) is (number > 1)
    for kind in ("networks", "volumes"):
        for name, made in result[kind].items():
            assert made["labels"] == {engine.LABEL: "2026-A-Run", engine.OWNER_LABEL: ""}, f"{kind} {name}"
