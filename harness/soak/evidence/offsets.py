"""Timed offsets of all replicas of a round: log end offset, high watermark and last stable offset.

``offsets.jsonl`` has a line for each poll of a broker after which a replica had changed:

    time_ms    when the poll began
    broker     int
    replicas   {"<topic>-<partition>": [log end offset, high watermark, last stable offset], …} of changed replicas

The content of the logs is not watched: see `harness.cluster.observe`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from harness.cluster.observe import Poller
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.kafka_api.replica import ReplicaEnds, ReplicaReader

if TYPE_CHECKING:
    from harness.runtimes.base import Runtime

PERIOD_S: Final = 0.5


class OffsetSampler:
    """Polls every broker that can answer, from `start` to `close`."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Iterable[TopicPartition],
        path: Path,
        clock: Clock,
        reader: Callable[[int], ReplicaReader],
    ) -> None:
        """Open ``path`` for writing; no request is sent yet. ``reader`` opens a broker's reader."""
        self._poller = Poller(runtime, clock, reader, period_s=PERIOD_S, name="offsets")
        self._clock = clock
        self._file: IO[str] = path.open("x", buffering=1)
        self._writing = threading.Lock()
        self._ends: dict[int, dict[TopicPartition, ReplicaEnds]] = {broker: {} for broker in runtime.brokers}
        self._partitions = tuple(partitions)
        self.raise_if_failed = self._poller.raise_if_failed

    def start(self) -> None:
        """Begin to poll."""
        self._poller.start(self._poll)

    def close(self) -> None:
        """End the routines, their connections and the file."""
        self._poller.close()
        self._file.close()

    def _poll(self, broker: int, reader: ReplicaReader) -> None:
        ends, time_ms = self._ends[broker], self._clock.time_ms()
        # A replica may have been truncated, or its topic created again; then it does not reach its last end any more.
        answers = reader.ends({tp: ends[tp].log_end if tp in ends else 0 for tp in self._partitions})
        current = {tp: answer for tp, answer in answers.items() if isinstance(answer, ReplicaEnds)}
        changed = {
            f"{tp[0]}-{tp[1]}": [answer.log_end, answer.high_watermark, answer.last_stable_offset]
            for tp, answer in current.items()
            if ends.get(tp) != answer
        }
        self._ends[broker] = current
        if changed:
            line = json.dumps({"time_ms": time_ms, "broker": broker, "replicas": changed})
            with self._writing:
                self._file.write(f"{line}\n")
