"""Bulk between the payload and its end: records that a throttled replica has to copy first.

Each record has a key that is written once, so that no cleaner removes any; batches have one record, so that a small
fetch returns one.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from harness.clients.recorded import RecordingProducer
from harness.schedules.scenario import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clients import MakeProducer
    from harness.kafka_api.messages import TopicPartition
    from harness.run_folder.history import History
    from harness.schedules.timers import Timers

PART = "ballast"
RECORD_BYTES = 16_384


def write_ballast(
    partitions: Sequence[TopicPartition], timers: Timers, seed: int, make: MakeProducer, history: History
) -> None:
    """Write as much to each partition as the timers' copying pace takes longer for than their window lasts.

    All of it is acknowledged when this returns.
    """
    records = math.ceil(timers.copy_bytes_per_s * (timers.window_s + timers.settle_s) / RECORD_BYTES)
    choice = random.Random(f"{seed}/{PART}")  # noqa: S311
    producer = RecordingProducer(make, history, PART, PART, phase=Phase.OUTAGE)
    for n in range(records):
        value = choice.randbytes(RECORD_BYTES // 2).hex()
        for topic, partition in partitions:
            producer.send(topic, partition, f"ballast.{n}", value)
        producer.flush()
