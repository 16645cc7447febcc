"""Timed offsets of all replicas of a round: log end offset, high watermark and last stable offset.

``offsets.jsonl`` has a line for each poll of a broker after which a replica had changed:

    time_ms    when the poll began
    broker     int
    replicas   {"<topic>-<partition>": [log end offset, high watermark, last stable offset], …} of changed replicas

The content of the logs is not watched: see `harness.cluster.observe`.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from harness.cluster.cluster import Cluster
from harness.cluster.observe import Poller
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition, partition_named
from harness.kafka_api.fetch import ReplicaEnds, ReplicaReader
from harness.run_folder.history import read_lines
from harness.soak.evidence.replica_log import Replica

PERIOD_S: Final = 0.5


@contextmanager
def sampled_offsets(cluster: Cluster, partitions: Sequence[TopicPartition], path: Path) -> Iterator[Poller]:
    """Poll every broker that can answer throughout the block, and write its changes to ``path``, which is created."""
    ends: dict[int, dict[TopicPartition, ReplicaEnds]] = {broker: {} for broker in cluster.brokers}
    writing, clock = threading.Lock(), cluster.clock

    def poll(broker: int, reader: ReplicaReader) -> None:
        time_ms, last = clock.time_ms(), ends[broker]
        # A replica may have been truncated, or its topic created again; then it does not reach its last end any more.
        answers = reader.ends({tp: last[tp].log_end if tp in last else 0 for tp in partitions})
        ends[broker] = {tp: answer for tp, answer in answers.items() if isinstance(answer, ReplicaEnds)}
        changed = {
            name_of(tp): [answer.log_end, answer.high_watermark, answer.last_stable_offset]
            for tp, answer in ends[broker].items()
            if last.get(tp) != answer
        }
        if changed:
            with writing:
                file.write(json.dumps({"time_ms": time_ms, "broker": broker, "replicas": changed}) + "\n")

    poller = Poller(cluster.runtime, clock, cluster.control.reader, period_s=PERIOD_S, name="offsets")
    with path.open("x", buffering=1) as file, closing(poller):
        poller.start(poll)
        yield poller


def open_again(path: Path) -> Mapping[Replica, set[int]]:
    """Return the offsets of transactions that a replica had open again, by an ``offsets.jsonl``, which may be missing.

    Its last stable offset went back to them, below its high watermark, and no poll saw a log that ends in between.
    """
    offsets: dict[Replica, set[int]] = defaultdict(set)
    passed: dict[Replica, int] = {}
    for line in read_lines(path) if path.exists() else ():
        for name, (log_end, high_watermark, stable) in line["replicas"].items():
            replica = line["broker"], partition_named(name)
            passed[replica] = max(stable, min(passed.get(replica, 0), log_end))
            if stable < min(passed[replica], high_watermark):
                offsets[replica].add(stable)
    return offsets
