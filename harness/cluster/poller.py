"""Polls of every live broker, each over a connection of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.host.clock import Clock, Routine
    from harness.kafka_api.replica import ReplicaReader
    from harness.runtimes.base import Runtime


class Poller:
    """One routine and one connection for each broker, from `start` to `close`."""

    def __init__(
        self, runtime: Runtime, clock: Clock, reader: Callable[[int], ReplicaReader], *, period_s: float, name: str
    ) -> None:
        """Send nothing yet. ``reader`` opens a broker's reader, ``period_s`` is the pause between two polls.

        ``name`` begins the names of the routines.
        """
        self._runtime = runtime
        self._clock = clock
        self._reader = reader
        self._period_s = period_s
        self._name = name
        self._readers: dict[int, ReplicaReader] = {}
        self._routines: list[Routine] = []

    def start(self, poll: Callable[[int, ReplicaReader], None]) -> None:
        """Call ``poll`` for every live broker, again and again, in that broker's routine.

        An OSError that it raises ends the connection; the next poll connects again.
        """
        self._routines += [
            self._clock.every(self._period_s, partial(self._poll, poll, broker), f"{self._name} of broker {broker}")
            for broker in self._runtime.brokers
        ]

    def stop(self) -> None:
        """End the routines."""
        for routine in self._routines:
            routine.stop()

    def close(self) -> None:
        """End the routines and their connections."""
        self.stop()
        for reader in self._readers.values():
            reader.close()

    def raise_if_failed(self) -> None:
        """Raise the error that ended a routine."""
        for routine in self._routines:
            routine.raise_if_failed()

    def _poll(self, poll: Callable[[int, ReplicaReader], None], broker: int) -> None:
        if not self._runtime.is_up(broker):
            return
        try:
            if broker not in self._readers:
                self._readers[broker] = self._reader(broker)
            poll(broker, self._readers[broker])
        except OSError:
            # Down, paused or booting.
            reader = self._readers.pop(broker, None)
            if reader is not None:
                reader.close()
