"""An audit of a running cluster by a user who may only read and describe, which is the proof that it does no more.

The cluster is the one of `audited`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from audited import BOUND_S, BROKERS, KEPT, SECOND, TOPIC, Audited, everything, wait_for_replication, write_plainly

from harness.audit.live.broker_reports import ReplicaStatuses, replica_statuses, spans_between
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.exposure import Level, exposure
from harness.audit.live.prefilter import prefilter
from harness.audit.live.spool import spool
from harness.broker_files.segments.batches import iter_batches
from harness.errors import HarnessError, UsageError
from harness.host.clock import RealClock
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import list_log_ends
from harness.run_folder.store import RunFolder

COPIED = ("audited-copy", 0)
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def spooled(audited: Audited, folder: RunFolder, **how: Any) -> tuple[AuditedCluster, ReplicaStatuses]:
    cluster = audited.describe()
    looks = replica_statuses(cluster)
    result = spool(cluster, looks, folder, **how)
    assert result.failures == {}
    assert result.readings.keys() == {(broker, tp) for broker in BROKERS for tp in (TOPIC, SECOND)}
    assert all(reading.is_complete for reading in result.readings.values())
    return cluster, looks


def logs(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def test_the_cluster_is_described(audited: Audited) -> None:
    cluster = audited.describe("aud*")
    assert list(cluster.state.topics) == ["audited"]
    assert cluster.state.partitions[TOPIC].replicas == (1, 2, 3)
    assert cluster.settings["audited"]["delete.retention.ms"] == "600000"
    assert cluster.notes == ()
    assert [str(cluster.state.brokers[b]) for b in BROKERS] == [str(a) for a in audited.auditor]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("hidden", "may not describe"), ("audted", "may not describe"), ("nothing*", "no topic matches")],
)
def test_a_topic_that_cannot_be_audited_is_reported_in_one_sentence(audited: Audited, pattern: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        audited.describe(pattern)


def test_a_spool_is_what_is_on_disk(audited: Audited, tmp_path: Path) -> None:
    messages: list[tuple[float, int]] = []
    folder = RunFolder(tmp_path / "audit")
    spooled(audited, folder, on_progress=lambda *done: messages.append(done), piece_bytes=1 << 19)
    for broker in BROKERS:
        for topic, partition in (TOPIC, SECOND):
            copied = tmp_path / f"disk-{broker}-{partition}"
            audited.runtime.copy_partition(broker, topic, partition, copied)
            fetched = folder.fetched_snapshot(broker, "after-rejoin") / f"{topic}-{partition}"
            assert logs(fetched) == logs(copied)
            assert len(list(fetched.glob("*.log"))) > 1
            for path in fetched.glob("*.log"):
                first = next(iter_batches(path.read_bytes(), source=path.name))
                assert path.name == f"{first.base_offset:020}.log"
            state = json.loads((fetched / "state.json").read_text())
            assert (state["read_to"], state["complete"]) == (state["high_watermark"], True)
            assert len(state["aborted"]) == 2
            assert len(state["open"]) == (1 if partition == TOPIC[1] else 0)
    assert messages[-1] == (1.0, sum(path.stat().st_size for path in folder.path.rglob("*.log")))
    assert all(fraction < 1.0 for fraction, _ in messages[:-1])


def test_a_span_of_time_is_read_alone(audited: Audited, tmp_path: Path) -> None:
    cluster = audited.describe()
    looks = replica_statuses(cluster)
    copied = tmp_path / "disk"
    audited.runtime.copy_partition(1, *TOPIC, copied)
    batches = list(iter_batches(logs(copied), source="disk"))
    since = batches[len(batches) // 3].max_timestamp_ms
    until = batches[len(batches) * 2 // 3].max_timestamp_ms
    spans = spans_between(cluster, since, until)
    folder = RunFolder(tmp_path / "audit")
    result = spool(cluster, looks, folder, [(3, TOPIC)], spans=spans)
    assert result.readings.keys() == {(3, TOPIC)}
    served = list(iter_batches(logs(folder.fetched_snapshot(3, "after-rejoin") / "audited-0"), source="served"))
    start, stop = spans[TOPIC].start, spans[TOPIC].stop
    assert stop is not None
    assert 0 < start < stop < batches[-1].base_offset
    wanted = [b.base_offset for b in batches if b.last_offset >= start and b.base_offset < stop]
    assert [b.base_offset for b in served] == wanted


def test_a_transaction_that_goes_on_is_seen_and_not_suspected(audited: Audited) -> None:
    filtered = prefilter(audited.describe())
    assert (filtered.suspicions, filtered.notes) == ((), ())
    held = {look.open for (_, tp), look in filtered.statuses.replicas.items() if tp == TOPIC}
    (same,) = held
    assert same is not None
    (transaction,) = same
    word = filtered.coordinator_answers.by_producer[transaction.producer_id]
    assert (word.transactional_id, word.state, word.producer_epoch) == ("open", "Ongoing", transaction.producer_epoch)
    assert word.partitions == {TOPIC}
    assert word.start_time_ms > 0


def test_nothing_is_changed_by_a_user_who_may_change_nothing(audited: Audited, tmp_path: Path) -> None:
    """The auditor has the rights in `MAY` alone, and everything works."""
    before = everything(audited)
    cluster, _ = spooled(audited, RunFolder(tmp_path / "audit"))
    filtered = prefilter(cluster)
    assert filtered.notes == ()
    result = exposure(cluster)
    assert (result.level, result.notes) == (Level.OK, ())
    assert everything(audited) == before
    with pytest.raises(HarnessError, match="Authorization failed"):
        Admin(lambda: audited.auditor).create_topics({("made", 0): (1,)}, {})


def test_a_copy_that_is_slower_than_the_retention_is_seen(audited: Audited) -> None:
    """Two replicas, some megabytes, and a third that is given them at a crawl."""
    admin, clock = audited.admin, RealClock()
    admin.create_topics({COPIED: (1, 2)}, {**KEPT, "delete.retention.ms": "4000"})
    write_plainly(audited, COPIED)
    admin.alter_topics([COPIED[0]], dict.fromkeys(THROTTLED_REPLICAS, "*"))
    for broker, address in zip(BROKERS, audited.inside, strict=True):
        admin.alter_broker(broker, address, dict.fromkeys(THROTTLES, "200000"))
    admin.reassign({COPIED: (1, 2, 3)})
    clock.wait_until(
        lambda: isinstance(ask(audited.inside[2], list_log_ends([COPIED]))[COPIED], int), BOUND_S, "the third replica"
    )
    result = exposure(audited.describe("audited-copy"))
    ((copy,),) = (topic.replicas for topic in result.topics)
    assert copy.broker == 3
    assert copy.level > Level.OK
    assert copy.left_s is not None
    assert 1 < copy.left_s < 60
    for broker, address in zip(BROKERS, audited.inside, strict=True):
        admin.alter_broker(broker, address, dict.fromkeys(THROTTLES))
    clock.wait_until(lambda: len(admin.partitions(["audited-copy"])[COPIED].isr) == 3, BOUND_S, "the copy to be made")


def test_a_broker_that_is_away_is_named_and_the_others_are_read(audited: Audited, tmp_path: Path) -> None:
    clock = RealClock()
    audited.runtime.kill(3)
    try:
        clock.wait_until(lambda: 3 not in audited.admin.brokers(), BOUND_S, "the broker to be fenced")
        cluster = audited.describe()
        result = spool(cluster, replica_statuses(cluster), RunFolder(tmp_path / "audit"))
        assert result.readings.keys() == {(broker, tp) for broker in (1, 2) for tp in (TOPIC, SECOND)}
        assert result.failures.keys() == {(3, TOPIC), (3, SECOND)}
        exposed = exposure(cluster)
        assert exposed.level == Level.AT_RISK
        assert [(one.broker, one.partition) for topic in exposed.topics for one in topic.replicas] == [(3, 0), (3, 1)]
    finally:
        audited.runtime.start(3)
        wait_for_replication(audited.auditor)
