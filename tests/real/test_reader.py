"""The read_committed consumer knows its end also where the cleaner has left a gap below the last stable offset.

A cleaner leaves such a gap in one run of hundreds, where it removes an aborted batch that lies right below the first
offset of an open transaction. Here the log is written as it is then.
"""

import json
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local_cluster import BOUND_S, local_cluster

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.clients.reader import LibrdkafkaReading, read_committed
from harness.run_folder.history import History
from harness.runtimes.local import LocalRuntime

BROKER = 1
TOPIC = "gap"
LOG = f"{0:020}.log"
FROZEN_AT = 3


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_a_gap_below_the_last_stable_offset_is_an_end(target: str, tmp_path: Path) -> None:
    with local_cluster(target, tmp_path, {}, (BROKER,)) as cluster:
        admin, runtime = cluster.admin, cluster.runtime
        assert isinstance(runtime, LocalRuntime)
        topic_id = runtime._log_dir(BROKER) / f"{TOPIC}-0" / "partition.metadata"
        runtime.start_cluster()
        cluster.wait_registered()
        admin.create_topics({(TOPIC, 0): (BROKER,)}, {"cleanup.policy": "compact"})
        # Until its id is written, the broker treats the log as a stray log when it starts again, and begins a new one.
        cluster.wait(topic_id.exists, "the topic's log")
        runtime.kill(BROKER)
        topic_id.with_name(LOG).write_bytes(log_with_a_gap())
        runtime.start(BROKER)
        cluster.wait(lambda: admin.partitions([TOPIC])[TOPIC, 0].leader == BROKER, "the broker to lead again")
        with closing(History(tmp_path / "history.jsonl", cluster.clock)) as history:
            place: Any = {"broker": BROKER, "phase": "after", "timeout_s": BOUND_S}
            reading = partial(LibrdkafkaReading, runtime.address(BROKER))
            read_committed(reading, [(TOPIC, 0)], history=history, clock=cluster.clock, **place)
    *_, poll = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert (poll["type"], poll["f"]) == ("ok", "poll")
    assert [(record["offset"], record["key"]) for record in poll["records"]] == [(0, "K")]
    assert poll["position"] == 1


def log_with_a_gap() -> bytes:
    """Return a record at 0, nothing at 1 and 2, and an open transaction at 3."""
    now_ms = time.time_ns() // 1_000_000
    delivered = Record(offset=0, timestamp_ms=now_ms, key=b"K", value=b"delivered")
    unstable = Record(offset=FROZEN_AT, timestamp_ms=now_ms, key=b"U", value=b"undecided")
    producer: Any = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    open_batch = encode_batch(base_offset=FROZEN_AT, records=[unstable], **producer)
    return encode_batch(base_offset=0, records=[delivered]) + open_batch
