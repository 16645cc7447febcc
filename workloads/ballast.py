"""Bulk between the payload and what ends it: records that a copying replica has to get through, on its pace.

Keys of their own, each written once, so that no cleaner removes any; batches of one record, so that a small
fetch takes one.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from harness.clients.recorded import Producer, ProducerSpec
from harness.plan.scenario import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.clients import MakeProducer
    from harness.plan.timers import Timers
    from harness.run_folder.history import History

PART = "ballast"
RECORD_BYTES = 16_384


class Ballast:
    """Writes as much to each partition as the timers' copying pace takes longer for than their window lasts."""

    def __init__(
        self, partitions: Sequence[TopicPartition], timers: Timers, seed: int, make: MakeProducer, history: History
    ) -> None:
        """Remember the parts; nothing is written."""
        self._partitions = partitions
        self._records = math.ceil(timers.copy_bytes_per_s * (timers.window_s + timers.settle_s) / RECORD_BYTES)
        self._choice = random.Random(f"{seed}/{PART}")  # noqa: S311
        self._make = make
        self._history = history

    def write(self) -> None:
        """Write it, and wait until all of it is acknowledged."""
        producer = Producer(self._make, ProducerSpec(PART, PART), self._history)
        producer.phase = Phase.OUTAGE
        for n in range(self._records):
            value = self._choice.randbytes(RECORD_BYTES // 2).hex()
            for topic, partition in self._partitions:
                producer.send(topic, partition, f"ballast.{n}", value)
            producer.flush()
