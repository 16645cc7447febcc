"""The commands, files and readiness of the brokers of a user's own system (`harness.targets.own`)."""

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.host import leftovers
from harness.host.cache import cache_root
from harness.host.ports import free_ports
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import choose_version
from harness.runtimes.base import ClusterSpec
from harness.targets.kafka import random_cluster_id
from harness.targets.own import API_VERSIONS, LOG, SystemFile, filled


@dataclass
class OwnProcesses:
    """``home``: returns the folder of a broker. ``ports``: the additional ports of each broker, by name.

    ``log_starts``: the size of each broker's log when the broker was started.
    """

    system: SystemFile
    spec: ClusterSpec
    java: Path
    home: Callable[[int], Path]
    addresses: Mapping[int, Address]
    cluster_id: str = field(default_factory=random_cluster_id)
    ports: dict[int, dict[str, int]] = field(init=False)
    log_starts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names, taken = self.system.broker.ports, {address.port for address in self.addresses.values()}
        free = free_ports(len(names) * len(self.spec.brokers) + len(taken))
        numbers = iter([port for port in free if port not in taken])
        self.ports = {broker: {name: next(numbers) for name in names} for broker in self.spec.brokers}

    def configure(self, broker: int) -> None:
        """Create the broker's data directory, and write its configuration file."""
        values = self._values(broker)
        values["data_dir"].mkdir(parents=True, exist_ok=True)
        values["config_file"].write_text(filled(self.system.broker.config, values), encoding="utf-8")

    def command(self, broker: int, words: Sequence[str]) -> list[str]:
        """Return a command of the system file for this broker."""
        return [filled(word, self._values(broker)) for word in words]

    def environment(self, broker: int) -> dict[str, str]:
        """Return the additional variables of the broker's environment, and the one that identifies its run."""
        variables = {leftovers.VARIABLE: self.spec.run_id, **self.system.broker.environment}
        return {name: filled(text, self._values(broker)) for name, text in variables.items()}

    def ready(self) -> set[int]:
        """Return the brokers that show that they are up, by ``broker.ready``."""
        rule, ready = self.system.broker.ready, set()
        for broker, address in self.addresses.items():
            with suppress(OSError):
                if rule.startswith(LOG):
                    log = self.spec.log_path(broker).read_bytes()[self.log_starts.get(broker, 0) :]
                    if not re.search(rule.removeprefix(LOG), log.decode(errors="replace"), re.MULTILINE):
                        continue
                elif rule == API_VERSIONS:
                    ask(address, choose_version())
                else:
                    socket.create_connection((address.host, address.port), timeout=1.0).close()
                ready.add(broker)
        return ready

    def _values(self, broker: int) -> dict[str, Any]:
        recipe, settings = self.system.broker, self.spec.settings.items()
        texts = {"bootstrap": "{host}:{port}", **recipe.lists}.items()
        lists = {name: ",".join(filled(text, self._of_one(b)) for b in self.spec.brokers) for name, text in texts}
        lines = [filled(recipe.setting, {"name": name, "value": value}) for name, value in settings]
        return {**self._of_one(broker), **lists, "settings": "\n".join(lines)}

    def _of_one(self, broker: int) -> dict[str, Any]:
        address, home = self.addresses[broker], self.home(broker)
        return {
            "id": broker, "host": address.host, "port": address.port, **self.ports[broker],
            "data_dir": home / "data", "config_file": home / "config", "cluster_id": self.cluster_id,
            "java": self.java, "cache": cache_root(),
        }  # fmt: skip
