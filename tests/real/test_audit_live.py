"""Audits of running clusters by a user who may only read and describe, which is the proof that they do no more."""

import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from audited import KEPT, SECOND, TOPIC, Audited
from sandbox import Going, Ran, Sandbox
from secured import BOUND_S, BROKERS

from harness.audit.live.broker_reports import replica_statuses, spans_between
from harness.audit.live.exposure import Level, exposure
from harness.audit.live.prefilter import prefilter
from harness.audit.live.spool import spool
from harness.broker_files.segments.batches import iter_batches
from harness.errors import EXIT_CLEAN, EXIT_INTERRUPTED, EXIT_UNKNOWN, HarnessError, UsageError
from harness.host.clock import RealClock
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import list_log_ends
from harness.run_folder.store import RunFolder
from harness.schedules.timers import FAST

BUSY, COPIED = ("audited-busy", 0), ("audited-copy", 0)
KEYS = 30
PAUSE_S = 0.005
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
OPTION_OF = {".json": "output", ".xml": "junit", ".html": "html"}


def logs(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.mark.parametrize("name", ["hidden", "audted"])
def test_a_topic_that_cannot_be_audited_is_reported_in_one_sentence(audited: Audited, name: str) -> None:
    with pytest.raises(UsageError, match="may not describe"):
        audited.describe(name)


def test_a_spool_is_what_is_on_disk(audited: Audited, tmp_path: Path) -> None:
    messages: list[tuple[float, int]] = []
    folder = RunFolder(tmp_path / "audit")
    cluster = audited.describe("aud*")
    assert list(cluster.state.topics) == ["audited"]
    assert cluster.settings["audited"]["delete.retention.ms"] == "600000"
    noted: Any = {"on_progress": lambda *done: messages.append(done), "piece_bytes": 1 << 19}
    result = spool(cluster, replica_statuses(cluster), folder, **noted)
    assert result.failures == {}
    assert result.readings.keys() == {(broker, tp) for broker in BROKERS for tp in (TOPIC, SECOND)}
    assert all(reading.is_complete for reading in result.readings.values())
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
    audited.runtime.copy_partition(1, *TOPIC, tmp_path / "disk")
    batches = list(iter_batches(logs(tmp_path / "disk"), source="disk"))
    since, until = (batches[len(batches) * third // 3].max_timestamp_ms for third in (1, 2))
    spans, _ = spans_between(cluster, since, until)
    folder = RunFolder(tmp_path / "audit")
    result = spool(cluster, replica_statuses(cluster), folder, [(3, TOPIC)], spans=spans)
    assert result.readings.keys() == {(3, TOPIC)}
    served = list(iter_batches(logs(folder.fetched_snapshot(3, "after-rejoin") / "audited-0"), source="served"))
    start, stop = spans[TOPIC].start, spans[TOPIC].stop
    assert stop is not None
    assert 0 < start < stop < batches[-1].base_offset
    in_span = [b.base_offset for b in batches if b.last_offset >= start and b.base_offset < stop]
    assert [b.base_offset for b in served] == in_span


def test_a_transaction_that_goes_on_is_seen_and_not_suspected(audited: Audited) -> None:
    filtered = prefilter(audited.describe())
    assert (filtered.suspicions, filtered.notes) == ((), ())
    (same,) = {look.open for (_, tp), look in filtered.statuses.replicas.items() if tp == TOPIC}
    assert same is not None
    (transaction,) = same
    word = filtered.coordinator_answers.by_producer[transaction.producer_id]
    assert (word.transactional_id, word.state, word.producer_epoch) == ("open", "Ongoing", transaction.producer_epoch)
    assert word.partitions == {TOPIC}
    assert word.start_time_ms > 0


def test_a_copy_that_is_slower_than_the_retention_is_seen(audited: Audited) -> None:
    """Two replicas, some megabytes, and a third that is given them at a crawl."""
    admin, clock = audited.admin, RealClock()
    admin.create_topics({COPIED: (1, 2)}, {**KEPT, "delete.retention.ms": "4000"})
    audited.write_plainly(COPIED)
    admin.alter_topics([COPIED[0]], dict.fromkeys(THROTTLED_REPLICAS, "*"))
    for broker, address in zip(BROKERS, audited.inside, strict=True):
        admin.alter_broker(broker, address, dict.fromkeys(THROTTLES, "200000"))
    admin.reassign({COPIED: (1, 2, 3)})
    third = audited.inside[2]
    clock.wait_until(lambda: isinstance(ask(third, list_log_ends([COPIED]))[COPIED], int), BOUND_S, "a third replica")
    result = exposure(audited.describe("audited-copy"))
    ((copy,),) = (topic.replicas for topic in result.topics)
    assert copy.broker == 3
    assert copy.level > Level.OK
    assert copy.left_s is not None
    assert 1 < copy.left_s < 60
    for broker, address in zip(BROKERS, audited.inside, strict=True):
        admin.alter_broker(broker, address, dict.fromkeys(THROTTLES))
    clock.wait_until(lambda: len(admin.partitions(["audited-copy"])[COPIED].isr) == 3, BOUND_S, "the copy to be made")


# The commands


def start(sandbox: Sandbox, audited: Audited, command: str, *more: str) -> Going:
    return sandbox.start("audit", command, *audited.secured.server, *more)


def audit(sandbox: Sandbox, audited: Audited, command: str, *more: str) -> Ran:
    return start(sandbox, audited, command, "--format", "json", *more).end()


def interrupted(going: Going, stage: str) -> Ran:
    going.wait_for_stage(stage)
    going.process.send_signal(signal.SIGINT)
    return going.end(EXIT_INTERRUPTED)


@contextmanager
def writing(audited: Audited) -> Iterator[None]:
    """Write transactions of both ends, tombstones among them, and plain records, until the block ends."""
    is_over = threading.Event()

    def write(seed: int, *, in_transactions: bool) -> None:
        chance = random.Random(seed)  # noqa: S311
        producer = audited.producer(**({"transactional.id": f"busy-{seed}"} if in_transactions else {}))
        if in_transactions:
            producer.init_transactions(BOUND_S)
        while not is_over.wait(PAUSE_S):
            if in_transactions:
                producer.begin_transaction()
            for _ in range(20 if in_transactions else 1):
                value, key = chance.choice((None, b"v")), f"{seed}-{chance.randrange(KEYS)}"
                producer.produce(BUSY[0], value, key, BUSY[1])
            if in_transactions:
                producer.flush(BOUND_S)
                chance.choice((producer.commit_transaction, producer.abort_transaction))(BOUND_S)
            else:
                producer.poll(0)
        producer.flush(BOUND_S)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, seed, in_transactions=seed < 3) for seed in (1, 2, 3)]
        try:
            yield
        finally:
            is_over.set()
        for writer in writers:
            writer.result()


def test_an_audit_changes_nothing_and_needs_only_to_read_and_describe(sandbox: Sandbox, audited: Audited) -> None:
    with pytest.raises(HarnessError, match="Authorization failed"):
        Admin(lambda: audited.auditor).create_topics({("made", 0): (1,)}, {})
    before = audited.everything()
    ran = audit(sandbox, audited, "live", "--topic", "audited", "--rate-limit-mb", "50")
    assert ran.code == EXIT_CLEAN, ran.output
    assert (ran.verdict["notes"], ran.verdict["doubts"]) == ([], [])
    assert ran.verdict["target"]["brokers"] == [1, 2, 3]
    verdicts = {(one["topic"], one["partition"]): one["verdict"] for one in ran.verdict["scenarios"]}
    assert verdicts == {TOPIC: "clean", SECOND: "clean"}
    quick = audit(sandbox, audited, "live", "--topic", "audited", "--quick")
    assert (quick.code, quick.verdict["findings"]) == (EXIT_UNKNOWN, []), quick.output
    exposed = audit(sandbox, audited, "exposure", "--topic", "audited")
    assert (exposed.code, exposed.verdict["level"], exposed.verdict["notes"]) == (EXIT_CLEAN, "ok", []), exposed.output
    keyed = audit(sandbox, audited, "key", "--topic", "audited", "--key", "v", "--all-partitions")
    assert keyed.code == EXIT_CLEAN, keyed.output
    replicas = keyed.verdict["partitions"][0]["replicas"]
    assert [[record["outcome"] for record in replica["records"]] for replica in replicas] == [["open"]] * 3
    assert all("(transactional id open)" in replica["served"] for replica in replicas), keyed.output
    assert audited.everything() == before
    sandbox.wait_until_nothing_is_left()


def test_what_was_written_in_a_span_of_time_is_never_clean(sandbox: Sandbox, audited: Audited) -> None:
    kept = sandbox.root / "kept"
    span = ("--since", "2020-01-01", "--until", "2100-01-01T00:00Z", "--save", str(kept))
    ran = audit(sandbox, audited, "live", "--topic", "audited", *span)
    assert ran.code == EXIT_UNKNOWN, ran.output
    assert "between --since and --until" in ran.verdict["reason"]
    assert len(list(kept.glob("reading-1/fetched/*/after-rejoin/*/state.json"))) == 6
    sandbox.wait_until_nothing_is_left()


def test_producers_and_cleaners_at_work_are_no_finding(sandbox: Sandbox, audited: Audited) -> None:
    audited.admin.create_topics({BUSY: (1, 2, 3)}, dict(FAST.topic))
    with writing(audited):
        for code, more in ((EXIT_CLEAN, ()), (EXIT_UNKNOWN, ("--quick",))):
            ran = audit(sandbox, audited, "live", "--topic", BUSY[0], *more)
            assert (ran.code, ran.verdict["findings"]) == (code, []), ran.output
        keyed = [audit(sandbox, audited, "key", "--topic", BUSY[0], "--key", f"1-{number}") for number in range(10)]
        assert {ran.code for ran in keyed} <= {EXIT_CLEAN, EXIT_UNKNOWN}, [ran.output for ran in keyed]
    assert audit(sandbox, audited, "key", "--topic", BUSY[0], "--key", "1-0").code == EXIT_CLEAN
    ended = audit(sandbox, audited, "live", "--topic", BUSY[0])
    assert (ended.code, ended.verdict["findings"]) == (EXIT_CLEAN, []), ended.output


def test_ten_times_the_spools_limit_is_read_in_waves_an_interrupt_keeps(sandbox: Sandbox, audited: Audited) -> None:
    many = [("audited-many", number) for number in range(12)]
    audited.admin.create_topics(dict.fromkeys(many, (1, 2, 3)), KEPT)
    for partition in many:
        audited.write_plainly(partition, 150)
    options = ("--topic", "audited-many", "--spool-limit", "1MB", "--format", "json")
    ran = start(sandbox, audited, "live", *options).end(EXIT_CLEAN)
    assert len(ran.verdict["scenarios"]) == 12, ran.output
    assert "read 3 replicas, wave 12 of 12" in ran.stderr
    ended = interrupted(start(sandbox, audited, "live", *options), "read 3 replicas, wave 3 of 12")
    counts = Counter((one["verdict"], *one.get("causes", ())) for one in ended.verdict["scenarios"])
    assert counts.keys() == {("clean",), ("unknown", "interrupted", "not-comparable")}
    assert 2 <= counts["clean",] < 12
    sandbox.wait_until_nothing_is_left()


def test_one_partition_of_ten_times_the_spools_limit_is_read_by_its_keys(sandbox: Sandbox, audited: Audited) -> None:
    audited.admin.create_topics({("audited-large", 0): (1, 2, 3)}, KEPT)
    audited.write_plainly(("audited-large", 0), 1700)
    ran = start(sandbox, audited, "live", "--topic", "audited-large", "--spool-limit", "1MB").end(EXIT_CLEAN)
    assert "read 3 replicas, keys 16 of 16" in ran.stderr, ran.output


def test_an_audit_interrupted_at_once_reports_brokers_and_leaves_nothing(sandbox: Sandbox, audited: Audited) -> None:
    files = {name: sandbox.root / name for name in ("audit.json", "audit.xml", "audit.html")}
    options = [word for name, path in files.items() for word in (f"--{OPTION_OF[path.suffix]}", str(path))]
    limited = ("--topic", "audited", "--rate-limit-mb", "0.01")
    ran = interrupted(start(sandbox, audited, "live", *limited, *options), "read 6 replicas")
    assert "harness: interrupted; no data was stored" in ran.stderr
    assert "UNKNOWN      interrupted, not-comparable: audited-0, audited-1" in ran.stdout
    assert f"(exit code {EXIT_INTERRUPTED})" in ran.stdout
    stored = json.loads(files["audit.json"].read_text())
    assert [scenario["verdict"] for scenario in stored["scenarios"]] == ["unknown", "unknown"]
    assert all("audited-1" in files[name].read_text() for name in ("audit.xml", "audit.html"))
    sandbox.wait_until_nothing_is_left()


def test_a_broker_that_is_away_makes_its_partitions_unknown(sandbox: Sandbox, audited: Audited) -> None:
    audited.runtime.kill(3)
    try:
        RealClock().wait_until(lambda: 3 not in audited.admin.brokers(), BOUND_S, "the broker to be fenced")
        ran = audit(sandbox, audited, "live", "--topic", "audited")
        assert ran.code == EXIT_UNKNOWN, ran.output
        assert all("the replica of broker 3 was not read" in one["reason"] for one in ran.verdict["scenarios"])
        exposed = audit(sandbox, audited, "exposure", "--topic", "audited")
        assert (exposed.code, exposed.verdict["level"]) == (EXIT_UNKNOWN, "at risk"), exposed.output
        absent = exposure(audited.describe())
        assert [(one.broker, one.partition) for topic in absent.topics for one in topic.replicas] == [(3, 0), (3, 1)]
    finally:
        audited.runtime.start(3)
        audited.wait_for_replication()
