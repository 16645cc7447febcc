"""Brokers as the harness starts, stops and isolates them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.kafka_api.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.runtimes.power import Cut


@dataclass
class FakeRuntime:
    """Implements `Runtime`. ``actions``: changes of brokers. ``down``: the brokers that are not up.

    ``admin_ports``: of the brokers that have an HTTP API. ``unsynced_files``: the files that a power failure cuts,
    of which each call returns one less. ``files``: of a broker, for each time that it is watched.
    """

    brokers: tuple[int, ...] = (1, 2, 3)
    actions: list[str] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    admin_ports: Mapping[int, int] = field(default_factory=dict)
    unsynced_files: list[Cut] = field(default_factory=list)
    files: list[dict[str, int]] = field(default_factory=list)

    @property
    def abilities(self) -> tuple[FakeRuntime]:
        return (self,)

    def start_cluster(self) -> None:
        """Every broker is up from the beginning."""

    def start_again(self, brokers: Sequence[int]) -> None:
        self.down -= set(brokers)

    def start(self, broker: int) -> None:
        self._bring_up("start", broker)

    def stop(self, broker: int) -> None:
        self._take_down("stop", broker)

    def kill(self, broker: int) -> None:
        self._take_down("kill", broker)

    def pause(self, broker: int) -> None:
        self._take_down("pause", broker)

    def resume(self, broker: int) -> None:
        self._bring_up("resume", broker)

    def cut(self, broker: int) -> None:
        self._take_down("cut", broker)

    def heal(self, broker: int) -> None:
        self._bring_up("heal", broker)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        self.actions.append(f"block {', '.join(f'{source}>{hearer}' for source, hearer in links)}")

    def lose(self, broker: int, fraction: float) -> None:
        self.actions.append(f"lose {fraction} of {broker}")

    def delay(self, broker: int, delay_ms: int) -> None:
        self.actions.append(f"delay {broker} by {delay_ms} ms")

    def clear_links(self) -> None:
        self.actions.append("clear links")

    def fill_disk(self, broker: int) -> None:
        self._take_down("fill the disk of", broker)

    def free_disk(self, broker: int) -> None:
        self.actions.append(f"free the disk of {broker}")

    def skew(self, broker: int, offset_s: int) -> None:
        self.actions.append(f"skew {broker} by {offset_s} s")

    def unsynced(self, _broker: int) -> list[Cut]:
        cuts = list(self.unsynced_files)
        del self.unsynced_files[:1]
        return cuts

    def cut_power(self, broker: int) -> list[Cut]:
        self._take_down("cut the power of", broker)
        return self.unsynced_files

    def kill_with_files(self, broker: int, _suffixes: tuple[str, ...]) -> dict[str, int]:
        sizes = self.files.pop(0) if self.files else {}
        if sizes:
            self.kill(broker)
        return sizes

    def is_up(self, broker: int) -> bool:
        return broker not in self.down

    def address(self, broker: int) -> Address:
        return Address("127.0.0.1", 9000 + broker)

    def admin_address(self, broker: int) -> Address:
        return Address("127.0.0.1", self.admin_ports[broker])

    def raise_if_died(self) -> None:
        """No broker dies by itself."""

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Return nothing: the runtime has no files."""

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Return nothing: the runtime has no files."""

    def close(self, *, keep: bool = False) -> None:
        """There is nothing to end, and nothing to ``keep``."""

    def _take_down(self, action: str, broker: int) -> None:
        self.actions.append(f"{action} {broker}")
        self.down.add(broker)

    def _bring_up(self, action: str, broker: int) -> None:
        self.actions.append(f"{action} {broker}")
        self.down.discard(broker)
