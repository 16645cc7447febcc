"""Replicas read whole: in pieces, past gaps and cuts, from brokers that come and go; and never faster than allowed."""

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.brokers import NOT_LEADER, TP, FakeBroker, Held, audited, audited_cluster
from fakes.clock import JumpingClock
from sample_logs import small_batch as batch

from harness.audit.live.broker_reports import ReplicaStatus, Span, replica_statuses, spans_between
from harness.audit.live.reading import BatchEntry, RateLimit, complete_entries
from harness.audit.live.spool import SpoolDiskError, SpoolLimitError, SpoolResult, bound_of, spool
from harness.broker_files.segments.batches import CorruptLogError, Record, iter_batches, iter_entries, iter_records
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.key_share import ALL_KEYS
from harness.kafka_api import address, fetch, transactions
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.run_folder.store import RunFolder

BATCHES = tuple(map(batch, range(10)))
TOTAL_BYTES = sum(map(len, BATCHES))
WHOLE = Held(10, 10, batches=BATCHES)


def read(tmp_path: Path, brokers: dict[int, FakeBroker], **how: Any) -> SpoolResult:
    cluster = audited(brokers, clock=how.pop("clock", None))
    return spool(cluster, replica_statuses(cluster), RunFolder(tmp_path), **how)


def folder_of(tmp_path: Path, broker: int = 1) -> Path:
    return tmp_path / "fetched" / str(broker) / "after-rejoin" / "t-0"


def stored(tmp_path: Path, broker: int = 1) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder_of(tmp_path, broker).glob("*.log"))}


def records(tmp_path: Path, broker: int = 1) -> bytes:
    return b"".join(stored(tmp_path, broker).values())


def state(tmp_path: Path, broker: int = 1) -> dict[str, Any]:
    return dict(json.loads((folder_of(tmp_path, broker) / "state.json").read_text()))


def read_after(tmp_path: Path, change: Held, **options: Any) -> SpoolResult:
    """Read a replica that has changed since its status."""
    broker = FakeBroker({TP: [WHOLE]})
    cluster = audited({1: broker})
    statuses = replica_statuses(cluster)
    broker.now[TP], broker.states[TP] = change, [change]
    return spool(cluster, statuses, RunFolder(tmp_path), **options)


def test_a_replica_is_read_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    broker = FakeBroker({TP: [WHOLE]}, answer_bytes=2 * len(BATCHES[0]))
    result = read(tmp_path, {1: broker}, piece_bytes=5 * len(BATCHES[0]))
    assert result.failures == {}
    pieces = stored(tmp_path)
    assert list(pieces) == [f"{0:020}.log", f"{4:020}.log", f"{8:020}.log"]
    assert b"".join(pieces.values()) == b"".join(BATCHES)
    assert state(tmp_path) == {
        "log_start": 0, "high_watermark": 10, "last_stable_offset": 10, "aborted": [], "open": [], "bound": 10,
        "read_from": 0, "read_to": 10, "listed_to": 10, "complete": True,
    }  # fmt: skip


def test_shares_of_keys_have_each_record_below_the_bound_once_and_all_that_is_beyond_it(tmp_path: Path) -> None:
    keys = [Record(offset, 1000, str(offset).encode(), b"v") for offset in range(30)]
    batches = [encode_batch(base_offset=n, records=keys[n : n + 2], codec="lz4") for n in range(0, 30, 2)]
    early, later = (Held(end, end, batches=tuple(batches[: end // 2]), log_end=end) for end in (20, 30))
    parts: list[list[int]] = []
    for share in ALL_KEYS.halves():
        read(tmp_path / str(share.number), {1: FakeBroker({TP: [early, later]})}, share=share)
        entries = list(iter_batches(records(tmp_path / str(share.number)), source=""))
        assert [entry.base_offset for entry in entries if entry.is_empty] == []
        parts.append([record.offset for entry in entries for record in iter_records(entry, source="")])
    assert sorted(parts[0] + parts[1]) == sorted([*range(20), *2 * [*range(20, 30)]])
    assert all(10 < len(part) < 30 for part in parts)


def test_a_share_of_keys_keeps_headers_and_damage() -> None:
    def data(offset: int, **fields: Any) -> bytes:
        return batch(offset, last_offset=offset + 1, **fields)

    log = [data(0), data(2), data(4, is_transactional=True), data(6, leader_epoch=1), data(8, leader_epoch=1)]
    share = next(
        share for share in ALL_KEYS.halves() if b"K" not in share.batches_of(memoryview(data(0)), 9, source="")
    )
    kept = [
        entry.base_offset
        for entry in iter_batches(share.batches_of(memoryview(b"".join(log)), 99, source=""), source="")
    ]
    assert kept == [0, 4, 6, 8]
    damaged = b"".join([*log[:2], data(4)[:-1] + b"?", data(6)])
    assert bytes(share.batches_of(memoryview(damaged), 99, source="")).endswith(damaged[2 * len(log[0]) :])


def test_more_data_than_the_limit_is_not_stored(tmp_path: Path) -> None:
    for sizes in ({TP: TOTAL_BYTES}, {}):
        with pytest.raises(SpoolLimitError, match="and --spool-limit is 0 MiB"):
            read(tmp_path, {1: FakeBroker({TP: [WHOLE]}, sizes=sizes)}, most_bytes=TOTAL_BYTES - 1)
        assert stored(tmp_path) == {}
    assert read(tmp_path, {1: FakeBroker({TP: [WHOLE]})}, most_bytes=TOTAL_BYTES).failures == {}


def test_what_is_undecided_is_read_too_and_aborted_transactions_are_those_below_it(tmp_path: Path) -> None:
    status = replace(WHOLE, last_stable_offset=6, open=(transactions.OpenTransaction(7, 0, 6),), aborted=((5, 2),))
    read(tmp_path, {1: FakeBroker({TP: [status]})})
    assert records(tmp_path) == b"".join(BATCHES)
    expected = {"aborted": [[5, 2]], "open": [[7, 0, 6]], "listed_to": 6, "complete": True}
    assert {name: state(tmp_path)[name] for name in expected} == expected


def test_what_is_appended_meanwhile_is_read_and_lies_beyond_the_bound(tmp_path: Path) -> None:
    result = read(tmp_path, {1: FakeBroker({TP: [Held(4, 4, batches=BATCHES[:4]), WHOLE]})})
    assert records(tmp_path) == b"".join(BATCHES)
    assert (result.readings[1, TP].bound, result.readings[1, TP].is_complete) == (4, True)


def test_each_replica_is_read_on_to_what_any_other_had_when_all_had_been_read_to_the_bound(tmp_path: Path) -> None:
    early, later = Held(4, 4, batches=BATCHES[:4]), Held(8, 8, batches=BATCHES[:8])
    brokers = {1: FakeBroker({TP: [early, later]}), 2: FakeBroker({TP: [early, early, WHOLE]})}
    result = read(tmp_path, brokers)
    assert (result.readings[1, TP].read_to, result.readings[1, TP].is_complete) == (8, True)
    assert (result.readings[2, TP].bound, result.readings[2, TP].is_complete) == (4, False)


def test_without_any_second_report_no_replica_is_known_to_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.audit.live.spool.highest_watermarks", lambda *_: {})
    assert not read(tmp_path, {1: FakeBroker({TP: [WHOLE]})}).readings[1, TP].is_complete


def test_a_replica_that_lags_sets_the_bound() -> None:
    ends = [ReplicaStatus(0, 9, 9, 10, ()), ReplicaStatus(0, 6, 6, 7, ()), ReplicaStatus(0, 8, 8, None, None)]
    assert bound_of(ends) == 7
    assert bound_of([ReplicaStatus(0, 5, 5, 10, ()), ReplicaStatus(0, 9, 9, 10, ())]) == 9
    assert bound_of([ReplicaStatus(0, 5, 5, None, None), ReplicaStatus(0, 9, 9, 10, ())]) == 5


def test_a_transaction_that_was_undecided_when_it_was_read_is_among_the_aborted_ones_later(tmp_path: Path) -> None:
    undecided = Held(9, 4, batches=BATCHES[:9], open=(transactions.OpenTransaction(7, 0, 4),))
    decided = replace(WHOLE, aborted=((7, 4),))
    read(tmp_path, {1: FakeBroker({TP: [undecided, decided]})})
    assert (records(tmp_path), state(tmp_path)["aborted"]) == (b"".join(BATCHES), [[7, 4]])


def test_a_producer_that_never_pauses_does_not_keep_the_reader_for_ever(tmp_path: Path) -> None:
    growing = [Held(n, n, batches=BATCHES[:n]) for n in range(1, 11)]
    reading = read(tmp_path, {1: FakeBroker({TP: growing})}).readings[1, TP]
    assert (reading.bound, reading.read_to) == (1, 3)
    assert state(tmp_path)["complete"] is True


def test_partitions_share_answers_and_a_large_one_does_not_hide_the_others(tmp_path: Path) -> None:
    small = [("t", number) for number in range(1, 4)]
    broker = FakeBroker({TP: [WHOLE], **{tp: [Held(10, 10, batches=(BATCHES[8],))] for tp in small}})
    broker.answer_bytes = 3 * len(BATCHES[0])
    partition = PartitionState(leader=1, replicas=(1,), isr=(1,))
    topic = TopicState("t", {number: partition for _, number in (TP, *small)})
    cluster = audited_cluster(ClusterState("id", {1: address.Address("127.0.0.1", 9001)}, {"t": topic}), {1: broker})
    result = spool(cluster, replica_statuses(cluster), RunFolder(tmp_path))
    assert {reading.read_to for reading in result.readings.values()} == {10}
    assert records(tmp_path) == b"".join(BATCHES)
    for _, number in small:
        assert (folder_of(tmp_path).with_name(f"t-{number}") / f"{8:020}.log").read_bytes() == BATCHES[8]
    assert max(len(topic.partitions) for request in broker.named("Fetch") for topic in request.topics) == 4


def test_gaps_are_passed(tmp_path: Path) -> None:
    status = Held(10, 10, log_start=2, batches=(batch(3), batch(6, 7)))
    reading = read(tmp_path, {1: FakeBroker({TP: [status]})}).readings[1, TP]
    assert records(tmp_path) == batch(3) + batch(6, 7)
    assert (reading.span.start, reading.read_to, reading.is_complete) == (2, 10, True)


def test_retention_may_take_what_was_to_be_read_next(tmp_path: Path) -> None:
    result = read_after(tmp_path, Held(10, 10, log_start=6, batches=BATCHES[6:]))
    assert (result.failures, list(stored(tmp_path))) == ({}, [f"{6:020}.log"])


def test_a_replica_that_was_cut_back_is_a_failure_and_leaves_nothing(tmp_path: Path) -> None:
    result = read_after(tmp_path, Held(4, 4, batches=BATCHES[:4]), spans={TP: Span(6)})
    failure = "t-0 was truncated below offset 6 while it was read"
    assert (result.failures, stored(tmp_path)) == ({(1, TP): failure}, {})


def test_a_span_is_read_in_whole_batches(tmp_path: Path) -> None:
    status = Held(10, 10, batches=(batch(0, 1), batch(2, 3, 4), batch(5, 6), batch(7, 8, 9)))
    reading = read(tmp_path, {1: FakeBroker({TP: [status]})}, spans={TP: Span(3, 6)}).readings[1, TP]
    assert records(tmp_path) == batch(2, 3, 4) + batch(5, 6)
    assert (reading.span.start, reading.read_to, reading.bound, reading.is_complete) == (3, 7, 6, False)


def test_spans_are_what_the_leader_says_of_times(tmp_path: Path) -> None:
    broker = FakeBroker({TP: [WHOLE]}, by_time={100: 3, 200: 8})
    cluster = audited({1: broker})
    spans = {(100, 200): Span(3, 8), (None, 200): Span(0, 8), (100, 999): Span(3), (999, None): Span(10)}
    assert {times: spans_between(cluster, *times)[0][TP] for times in spans} == spans
    broker.is_redpanda_follower = True
    leaderless = ClusterState(
        "id", cluster.state.brokers, {TP[0]: TopicState(TP[0], {TP[1]: PartitionState(-1, (1,), (1,))})}
    )
    refusing = {
        "NotLeaderForPartitionError": cluster,
        "the partition has no leader now": replace(cluster, state=leaderless),
    }
    for error, asked in refusing.items():
        why = f"--since and --until need offsets by time from its leader: {error}"
        assert spans_between(asked, 1, None) == ({}, {TP: why})
    broker.is_redpanda_follower = False
    statuses = replica_statuses(cluster).without({TP: "why"})
    assert spool(cluster, statuses, RunFolder(tmp_path)).failures == {(1, TP): "why"}


@pytest.mark.parametrize(("failure", "reason"), [
    ({"dies_after": 7}, "127.0.0.1:9002 does not answer: gone"),
    ({"error": NOT_LEADER}, "NotLeaderForPartitionError"),
    ({"fetch_versions": (13, 17)}, "supports none of the versions 11, 12 of Fetch"),
])  # fmt: skip
def test_a_replica_that_cannot_be_read_is_named(tmp_path: Path, failure: dict[str, Any], reason: str) -> None:
    result = read(tmp_path, {1: FakeBroker({TP: [WHOLE]}), 2: FakeBroker({TP: [WHOLE]}, **failure)})
    assert (list(result.readings), list(result.failures)) == ([(1, TP)], [(2, TP)])
    assert reason in result.failures[2, TP]
    assert stored(tmp_path, 2) == {}


def test_brokers_that_were_not_seen_are_failures_and_single_replicas_are_read_again_elsewhere(tmp_path: Path) -> None:
    cluster = audited({1: FakeBroker({TP: [WHOLE]})}, absent=(3,))
    result = spool(cluster, replica_statuses(cluster), RunFolder(tmp_path))
    assert result.failures == {(3, TP): "it is not registered with the cluster"}
    cluster = audited({number: FakeBroker({TP: [WHOLE]}) for number in (1, 2)})
    result = spool(cluster, replica_statuses(cluster), RunFolder(tmp_path / "again"), [(2, TP)])
    assert (list(result.readings), stored(tmp_path / "again")) == ([(2, TP)], {})


@pytest.mark.parametrize("sizes", [{TP: TOTAL_BYTES}, {}], ids=["by sizes", "by offsets"])
def test_progress_is_reported(tmp_path: Path, sizes: dict[tuple[str, int], int]) -> None:
    messages: list[tuple[float, int]] = []
    broker = FakeBroker({TP: [WHOLE]}, sizes=sizes, answer_bytes=TOTAL_BYTES // 2)
    read(tmp_path, {1: broker}, on_progress=lambda *done: messages.append(done))
    assert messages == [(0.5, TOTAL_BYTES // 2), (1.0, TOTAL_BYTES)]


def test_a_disk_that_is_too_small_or_fills_up_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpoolDiskError, match="reading takes"):
        read(tmp_path, {1: FakeBroker({TP: [WHOLE]}, sizes={TP: 1 << 60})})
    assert stored(tmp_path) == {}
    free = iter([1 << 40, *[0] * 9])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=next(free)))
    with pytest.raises(SpoolDiskError):
        read(tmp_path, {number: FakeBroker({TP: [WHOLE]}) for number in (1, 2)})
    assert stored(tmp_path, 1) == stored(tmp_path, 2) == {}


def test_a_follower_of_redpanda_is_read_to_its_high_watermark(tmp_path: Path) -> None:
    """It tells neither its log end nor its open transactions."""
    follower = FakeBroker({TP: [WHOLE]}, is_redpanda_follower=True)
    result = read(tmp_path, {1: FakeBroker({TP: [WHOLE]}), 2: follower})
    assert result.failures == {}
    assert records(tmp_path, 2) == b"".join(BATCHES)
    assert (state(tmp_path, 2)["open"], state(tmp_path, 2)["complete"]) == (None, True)
    assert all(request.rack_id for request in follower.named("Fetch"))


def entries(data: bytes) -> list[BatchEntry]:
    return list(complete_entries(data, "s"))


def test_headers_alone_give_the_whole_entries_that_the_parser_finds_and_those_of_old_magics() -> None:
    data = b"".join((batch(0, 1, 2), batch(5), batch(9, 12)))
    parsed = [(entry.position, entry.size_bytes, entry.last_offset) for entry in iter_entries(data, source="s")]
    assert [(entry.position, entry.size_bytes, entry.last_offset) for entry in entries(data)] == parsed
    cut = batch(4, 5) + batch(6)[:-1]
    assert entries(cut) == [BatchEntry(0, len(batch(4, 5)), 4, 5)]
    assert entries(cut + batch(6)[-1:] + b"\0" * 9)[-1].base_offset == 6
    message = struct.pack(">qiibb", 12, 14, 0, 1, 0) + struct.pack(">ii", -1, -1)
    assert entries(message) == [BatchEntry(0, 26, 12, 12)]


@pytest.mark.parametrize(("offset", "size_bytes", "rest"), [
    (0, 13, b"\0"), (0, -5, b"\0"), (0, 14, b"\0"), (-3, 50, b"\0"), (3, 50, b"\xff"),
])  # fmt: skip
def test_what_no_broker_serves_is_damage(offset: int, size_bytes: int, rest: bytes) -> None:
    damaged = struct.pack(">qiib", offset, size_bytes, 0, 2) + rest * 60
    with pytest.raises(CorruptLogError, match="s at byte 62: impossible"):
        entries(struct.pack(">qiib", 0, 50, 0, 1) + b"\0" * 45 + damaged)


def test_the_rate_limit_holds_for_all_readers_together(tmp_path: Path) -> None:
    clock = JumpingClock()
    brokers = {number: FakeBroker({TP: [WHOLE]}, answer_bytes=len(BATCHES[0])) for number in (1, 2, 3)}
    read(tmp_path, brokers, clock=clock, limit=RateLimit(3 * TOTAL_BYTES // 10, clock))
    assert 9 <= clock.now <= 11  # ten seconds' worth, the first of which the bucket had


def test_a_bucket_fills_up_to_one_second() -> None:
    clock = JumpingClock()
    limit = RateLimit(100, clock)
    clock.now = 50
    for size_bytes, expected_s in (100, 50), (200, pytest.approx(52, abs=0.2)):
        limit.pay(size_bytes)
        assert clock.now == expected_s


@pytest.mark.parametrize(("spoken", "version"), [((4, 17), 11), ((12, 17), 12), ((0, 11), 11)])
def test_fetch_is_asked_for_in_a_version_that_names_topics(spoken: tuple[int, int], version: int) -> None:
    assert FakeBroker({}, fetch_versions=spoken).ask(fetch.choose_version()) == version
