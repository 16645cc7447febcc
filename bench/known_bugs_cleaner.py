"""Known bugs of the log cleaner, each shown by what a consumer is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer
from known_bugs_rig import COMPACTED, booted

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable

    from known_bugs_rig import Bed

KEYS_OF_A_PASS = 39_321
"""The number of keys in the smallest offset map: 1 MiB, 24 bytes a key, 90 % full (SkimpyOffsetMap)."""
FILLER_BOUND_S = 40.0


def uncommitted_supersedes_committed(version: str) -> tuple[bool, str]:
    """KAFKA-13194: the cleaner removes a committed record for one above the high watermark that has its key.

    A follower is frozen while it is in the ISR, so that the high watermark stays. A partition of the leader alone, with
    the same writes, shows that the cleaner has passed.
    """
    with booted(version, (1, 2)) as bed:
        bed.create_topic("replicated", (1, 2))
        bed.create_topic("control", (1,))
        first = bed.producer(acks="all")
        for topic in ("replicated", "control"):
            first.send(bed.record(topic, "k", "committed")).get()
        bed.cluster.wait(lambda: bed.read(1, ("replicated", 0)).high_watermark == 1, "the high watermark")
        bed.cluster.runtime.pause(2)
        # The follower's last Fetch still waits at the leader, and would bring the next record over.
        frozen_s = bed.cluster.clock.now_s()
        bed.cluster.wait(lambda: bed.cluster.clock.now_s() - frozen_s > 1, "the follower's Fetch to be answered")
        later = bed.producer(acks="1", enable_idempotence="false")
        for topic in ("replicated", "control"):
            later.send(bed.record(topic, "k", "not committed")).get()

        def passed() -> bool:
            for topic in ("replicated", "control"):
                later.send(bed.record(topic, "filler", "x")).get()
            return "committed" not in _values(bed, "control")

        bed.cluster.wait(passed, "the cleaner to pass the control partition", FILLER_BOUND_S)
        # Another two segments, so that a cleaner that does clean this partition has had its turn.
        for _ in range(2):
            _wait_longer(bed, passed)
        state = bed.read(1, ("replicated", 0))
        offsets = [r.offset for r in bed.records(1, ("replicated", 0)) if r.key == b"k"]
        bed.cluster.runtime.resume(2)
        seen = state.high_watermark == 1 and 0 not in offsets
        return seen, f"high watermark {state.high_watermark}, key k at offsets {offsets} of the leader"


def _wait_longer(bed: Bed, passed: Callable[[], bool]) -> None:
    """Write on for a second, in which a cleaner passes several times."""
    ends_s = bed.cluster.clock.now_s() + 1
    bed.cluster.wait(lambda: passed() and bed.cluster.clock.now_s() > ends_s, "another pass")


def _values(bed: Bed, topic: str) -> set[str]:
    return {(record.value or b"").decode() for record in bed.records(1, (topic, 0))}


def partial_pass_loses_aborts(version: str) -> tuple[bool, str]:
    """KAFKA-13727: a pass that ends within a segment drops the aborted transactions behind from its index.

    More keys than a pass takes, then an aborted transaction, all in one segment: after the pass a read_committed
    consumer is delivered what was aborted.
    """
    with booted(version) as bed:
        # The first segment is rolled by hand, by another segment.ms.
        bed.create_topic("big", (1,), {**COMPACTED, "segment.ms": "600000", "max.compaction.lag.ms": "9000000000000"})
        many = Producer({"bootstrap.servers": bed.client.bootstrap, "queue.buffering.max.messages": 1_000_000})
        for number in range(KEYS_OF_A_PASS + 5_000):
            many.produce("big", key=f"k{number}", value="v")
        if many.flush(60):
            raise HarnessError("not every record was acknowledged")
        bed.cluster.wait(lambda: bed.cluster.admin.has_coordinator("writer"), "a transaction coordinator")
        aborting = bed.producer(transactional_id="writer")
        aborting.initTransactions()
        aborting.beginTransaction()
        poison = aborting.send(bed.record("big", "poison", "aborted")).get().offset()
        aborting.flush()
        aborting.abortTransaction()
        served = bed.served(("big", 0), KEYS_OF_A_PASS)
        if "poison" in served:
            return False, "the aborted record was served before any cleaning"
        bed.cluster.admin.alter_topics(["big"], {"segment.ms": "100", "max.compaction.lag.ms": "200"})

        plain = bed.producer(acks="1", enable_idempotence="false")

        def passed() -> bool:
            plain.send(bed.record("big", "k0", "newer")).get()
            return all(record.offset != 0 for record in bed.records(1, ("big", 0)))

        bed.cluster.wait(passed, "the cleaner to remove the first value of k0", FILLER_BOUND_S)
        seen = "poison" in bed.served(("big", 0), KEYS_OF_A_PASS)
        return seen, f"the aborted record at offset {poison} is {'' if seen else 'not '}delivered to read_committed"
