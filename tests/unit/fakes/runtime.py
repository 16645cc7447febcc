"""Brokers as the harness starts, stops and isolates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.kafka_api.address import Address
from harness.runtimes.power import Cut


def _changing(action: str, *, is_up: bool) -> Callable[[FakeRuntime, int], None]:
    def change(runtime: FakeRuntime, broker: int) -> None:
        runtime.actions.append(f"{action} {broker}")
        (runtime.down.discard if is_up else runtime.down.add)(broker)

    return change


def _nothing(*_: Any, **__: Any) -> None:
    """Brokers are up from the beginning and do not die by themselves, and the runtime has no files."""


def _recording(text: str) -> Callable[..., None]:
    """Return a method that only records an action: a format of its arguments."""
    return lambda runtime, *arguments: runtime.actions.append(text.format(*arguments))


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

    def start_again(self, brokers: Sequence[int]) -> None:
        self.down -= set(brokers)

    start, resume, heal = (_changing(action, is_up=True) for action in ("start", "resume", "heal"))
    stop, kill, pause, cut = (_changing(action, is_up=False) for action in ("stop", "kill", "pause", "cut"))
    fill_disk = _changing("fill the disk of", is_up=False)
    lose, delay = _recording("lose {1} of {0}"), _recording("delay {} by {} ms")
    clear_links, free_disk = _recording("clear links"), _recording("free the disk of {}")
    skew = _recording("skew {} by {} s")
    start_cluster = raise_if_died = copy_partition = copy_checkpoints = close = _nothing

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        self.actions.append(f"block {', '.join(f'{source}>{hearer}' for source, hearer in links)}")

    def unsynced(self, _broker: int) -> list[Cut]:
        cuts = list(self.unsynced_files)
        del self.unsynced_files[:1]
        return cuts

    def cut_power(self, broker: int) -> list[Cut]:
        _changing("cut the power of", is_up=False)(self, broker)
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
