"""Known bugs of the group coordinator: after compaction of ``__consumer_offsets`` it cannot load its partition."""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from known_bugs_rig import COMPACTED, booted, target_of

from harness.errors import WaitTimeoutError
from harness.kafka_api.client_requests import commit_offsets, fetch_offsets
from harness.kafka_api.connection import Connection
from harness.targets.jars import jars_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from known_bugs_rig import Bed

    from harness.broker_files.segments.batches import Record

OFFSETS = ("__consumer_offsets", 0)
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that is restarted registers once the session of the one before has ended.
    "broker.session.timeout.ms": "2000",
}
GROUP = "group"
CLASSIC_GROUP = 2
"""The key version of GroupMetadata in ``__consumer_offsets``."""
LOAD_S = 10.0
FAILURE = "Failed to load metadata from __consumer_offsets-0"


def tombstones_first(version: str) -> tuple[bool, str]:
    """KAFKA-17306: of a group whose member left, compaction leaves tombstones alone, and replaying them fails."""
    protocols = {} if not version.startswith("3.") else {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with booted(version, settings={**SETTINGS, **protocols}) as bed:
        bed.create_topic("input", (1,))
        _join_and_leave(bed, group_protocol="consumer", enable_auto_commit="false")
        _compact(bed, lambda records: not _repeated(records))
        return _reload(bed)


def offsets_before_streams_group(version: str) -> tuple[bool, str]:
    """KAFKA-20254: offsets of the time as a classic group precede the records of a streams group, and replay fails.

    The classic group's tombstone between them is compacted away.
    """
    settings = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic,consumer,streams"}
    streams = jars_of("streams", target_of(version), lambda _done, _total: None).client_classpath
    with booted(version, settings=settings, with_jars=streams) as bed:
        bed.create_topic("input", (1,))
        bed.create_topic("output", (1,))
        bed.producer(acks="all").send(bed.record("input", "k", "v")).get()
        _join_and_leave(bed, enable_auto_commit="false", commits=True)
        application = _streams(bed)
        application.start()
        bed.cluster.wait(lambda: application.state().name() == "RUNNING", "the application to be RUNNING")
        _compact(bed, lambda records: not _repeated(records) and not any(map(_is_classic_group, records)))
        seen, evidence = _reload(bed)
        application.close(bed.jvm.java.time.Duration.ofSeconds(5))
        return seen, evidence


def _join_and_leave(bed: Bed, *, commits: bool = False, **config: str) -> None:
    consumer = bed.consumer(group_id=GROUP, auto_offset_reset="earliest", **config)
    consumer.subscribe(bed.jvm.java.util.List.of("input"))
    short = bed.jvm.java.time.Duration.ofMillis(100)

    def has_assignment() -> bool:
        consumer.poll(short)
        return int(consumer.assignment().size()) > 0

    bed.cluster.wait(has_assignment, "the consumer to get its partition")
    if commits:
        consumer.commitSync()
    consumer.close()


def _streams(bed: Bed) -> Any:
    streams, serde = bed.jvm.org.apache.kafka.streams, bed.jvm.org.apache.kafka.common.serialization.Serdes.String
    builder = streams.StreamsBuilder()
    consumed = getattr(streams.kstream.Consumed, "with")(serde(), serde())
    produced = getattr(streams.kstream.Produced, "with")(serde(), serde())
    builder.stream("input", consumed).to("output", produced)
    config = {
        "application.id": GROUP,
        "group.protocol": "streams",
        "state.dir": str(bed.client.work_dir / "streams"),
        # It commits nothing, so that the offsets of the classic group stay where they are.
        "commit.interval.ms": "600000",
    }
    return streams.KafkaStreams(builder.build(), bed.config(config))


def _compact(bed: Bed, is_enough: Callable[[list[Record]], bool]) -> None:
    """Compact ``__consumer_offsets`` until few enough records of the group remain. Raises `WaitTimeoutError`."""
    bed.cluster.admin.alter_topics([OFFSETS[0]], COMPACTED)
    with closing(Connection(bed.cluster.runtime.address(1))) as connection:

        def fill() -> bool:
            connection.ask(commit_offsets("filler", {("input", 0): 1}))
            return is_enough([one for one in bed.records(1, OFFSETS) if _group_of(one) == GROUP])

        bed.cluster.wait(fill, "__consumer_offsets to be compacted")


def _group_of(record: Record) -> str:
    """Return the group of a record: its key begins with a version and the group's name, with its length."""
    key = record.key or b""
    _, length = struct.unpack_from(">hh", key)
    return bytes(key[4 : 4 + length]).decode()


def _version_of(record: Record) -> int:
    return int(struct.unpack_from(">h", record.key or b"")[0])


def _is_classic_group(record: Record) -> bool:
    return _version_of(record) == CLASSIC_GROUP


def _repeated(records: list[Record]) -> list[bytes]:
    return [key for key, count in Counter(bytes(one.key or b"") for one in records).items() if count > 1]


def _reload(bed: Bed) -> tuple[bool, str]:
    """Restart the broker; return whether it cannot coordinate the group any more, and its answer."""
    left = [
        f"{_version_of(one)}{'' if one.value is not None else ' (tombstone)'}"
        for one in bed.records(1, OFFSETS)
        if _group_of(one) == GROUP
    ]
    bed.restart(1)
    with closing(Connection(bed.cluster.runtime.address(1))) as connection:
        errors: list[str | None] = []

        def answers() -> bool:
            errors.append(connection.ask(fetch_offsets(GROUP, [("input", 0)], require_stable=False)).error)
            return errors[-1] is None

        try:
            bed.cluster.wait(answers, "the coordinator to answer", LOAD_S)
        except WaitTimeoutError:
            lines = [line for line in bed.log_text(1).splitlines() if FAILURE in line]
            said = lines[-1][lines[-1].index(FAILURE) :] if lines else "its log does not say why"
            return bool(lines), f"{errors[-1]} for {LOAD_S:g} s: {said}"
    return False, f"the coordinator answers; what it has loaded of the group, by key version: {', '.join(left)}"
