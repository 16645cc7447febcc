"""The verbs that every runtime has, whatever its brokers are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.wire import Address


def bootstrap_servers(runtime: Runtime) -> str:
    """Return every broker's address, as client libraries take them."""
    return ",".join(str(runtime.address(broker)) for broker in runtime.brokers)


class Runtime(Protocol):
    """A cluster's brokers as the runner and the nemeses handle them."""

    @property
    def brokers(self) -> Sequence[int]:
        """Node ids, in order."""
        ...

    def start_cluster(self) -> None:
        """Bring up every broker for the first time. Raises `BootError` with the last log lines."""
        ...

    def start_again(self, brokers: Sequence[int]) -> None:
        """Take over a cluster whose brokers have all ended, and start these of them on the data they left."""
        ...

    def start(self, broker: int) -> None:
        """Start a broker that is down, on the data it left."""
        ...

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL; it is down when this returns."""
        ...

    def pause(self, broker: int) -> None:
        """Freeze a broker's process: it answers nothing, and keeps its memory and its connections."""
        ...

    def resume(self, broker: int) -> None:
        """Let a frozen broker go on."""
        ...

    def cut(self, broker: int) -> None:
        """Isolate a broker from everyone, its process running. Raises `HarnessError` where that is impossible."""
        ...

    def heal(self, broker: int) -> None:
        """Connect an isolated broker again."""
        ...

    def is_up(self, broker: int) -> bool:
        """Whether the broker is meant to be running and able to answer: not while it is frozen or cut off."""
        ...

    def address(self, broker: int) -> Address:
        """Where clients reach this broker."""
        ...

    def raise_if_died(self) -> None:
        """Raise `HarnessError` if a broker ended that nobody ended."""
        ...

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the broker's files of one partition, as they are on disk now, running or not."""
        ...

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the checkpoints and ``meta.properties`` of the broker's log directory."""
        ...

    def close(self) -> None:
        """End every broker; their data goes with the run's workspace."""
        ...
