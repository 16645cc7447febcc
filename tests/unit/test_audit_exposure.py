"""Exposure of a cluster: replicas out of the ISR and the pace of first copies, compared with the retention."""

import json
from dataclasses import replace
from typing import Any

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.clock import NOW_MS

from harness.audit.explain.show import exposure_json, exposure_table, prefiltered_json, replica_table
from harness.audit.live import exposure as exposures
from harness.audit.live.broker_reports import NOTHING_SEEN
from harness.audit.live.exposure import FROM_THE_FIRST_MINUTE, ON_ITS_OLD_LOG, Exposure, ExposureKind, Level
from harness.audit.live.lags import BYTES, MARKER, OFFSETS, TOMBSTONES, CopyProgress, Lag, NextRemoval, next_removal
from harness.audit.live.prefilter import prefilter
from harness.audit.removal_settings import RemovalSettings, read_settings
from harness.broker_files.segments.batches import Batch, Record, iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.terminal import Table, stdout

DAY_MS = 86_400_000
COMPACTED = {
    "cleanup.policy": "compact", "delete.retention.ms": "100000", "min.compaction.lag.ms": "20000",
    "segment.ms": "5000", "min.cleanable.dirty.ratio": "0.5",
}  # fmt: skip
SETTINGS = RemovalSettings(100_000, 20_000, 0.5)
DAILY = RemovalSettings(DAY_MS, 0, 0.5)


def written(offset: int, time_ms: int, *, is_append_time: bool = False) -> bytes:
    batch = encode_batch(base_offset=offset, records=[Record(offset, time_ms, b"K", b"v")])
    return batch if not is_append_time else batch[:22] + bytes([batch[22] | 8]) + batch[23:]


def header(offset: int, **fields: Any) -> Batch:
    """Return a batch by its header: attributes 0x20 control, 0x40 delete horizon."""
    (batch,) = iter_batches(written(offset, 0), source="literal")
    return replace(batch, **fields)


def lag(time_ms: int | None, *, is_append_time: bool = False) -> Lag:
    if time_ms is None:
        return Lag(2, TP, (), None)
    batches = iter_batches(written(5, time_ms, is_append_time=is_append_time), source="literal", verify_crc=False)
    return Lag(2, TP, tuple(batches), None)


AT_RISK = (
    "broker 2 is out of the ISR of t-0 and misses the records since 1970-01-02 00:00:00 UTC (24 h ago, by producers'"
    " clocks); tombstones and markers stay for at least 24 h: until the ISR is full, no removal"
)
HORIZON = Lag(2, TP, (header(5, max_timestamp_ms=0), header(6, attributes=0x40, timestamp_base_ms=7_000)), None)


@pytest.mark.parametrize(("missed", "now_ms", "settings", "expected", "text"), [
    (lag(DAY_MS), 2 * DAY_MS - 1, DAILY, (Level.AT_RISK, DAY_MS), AT_RISK),
    (lag(DAY_MS), 2 * DAY_MS, DAILY, (Level.TOO_LATE, DAY_MS), "some that it never fetched may be gone"),
    (lag(0), 119_999, SETTINGS, (Level.AT_RISK, 0), "at least 2 min: until"),
    (lag(0), 120_000, SETTINGS, (Level.TOO_LATE, 0), "at least 2 min, so"),
    (lag(0), 99 * DAY_MS, read_settings(None), (Level.AT_RISK, 0), "of tombstones and markers is unknown"),
    (lag(1000, is_append_time=True), 2000, DAILY, (Level.AT_RISK, 1000), "by the broker's clock"),
    (lag(None), 0, DAILY, (Level.OK, None), "2 is out of the ISR of t-0, and misses no record of its leader"),
    (Lag(2, TP, None, "refused"), 99 * DAY_MS, DAILY, (Level.AT_RISK, None),
     "was not seen (refused): since when is unknown"),
    (Lag(2, TP, None, None), 99 * DAY_MS, DAILY, (Level.AT_RISK, None), "records could not be read from a leader"),
    (lag(-1), 99 * DAY_MS, DAILY, (Level.AT_RISK, None), "its missing records have no timestamp"),
    (HORIZON, 0, DAILY, (Level.AT_RISK, 0),
     "the tombstones at offset 6 may be removed from 1970-01-01 00:00:07 UTC on"),
])  # fmt: skip
def test_it_may_be_too_late_once_compaction_lag_and_retention_have_passed(
    missed: Lag, now_ms: int, settings: RemovalSettings, expected: tuple[Level, int | None], text: str
) -> None:
    result = exposures.judge_lag(missed, settings, now_ms)
    assert (result.level, result.since_ms) == expected
    assert text in result.sentence
    assert result.by_brokers_clock == ("broker's clock" in text)
    assert result.at_stake == (NextRemoval(6, TOMBSTONES, 7_000, is_stamped=True) if missed is HORIZON else None)


class TestCopies:
    """A window of two minutes."""

    @pytest.mark.parametrize(("done", "total", "pace", "level"), [
        (10, 119, 1.0, Level.AT_RISK),
        (119, 120, 1.0, Level.AT_RISK),
        (120, 121, 1.0, Level.TOO_LATE),
        (10, 120, 0.0, Level.AT_RISK),
    ])  # fmt: skip
    def test_the_whole_copy_has_to_fit_into_the_window(self, done: int, total: int, pace: float, level: Level) -> None:
        assert exposures.judge_copy(CopyProgress(2, TP, BYTES, done, total, pace), SETTINGS).level == level

    @pytest.mark.parametrize(
        ("pace", "left_s", "text"),
        [(10.0, 60, "600 of 1200 bytes, about 60 s so far and 60 s to go; "), (0.0, None, "and it did not grow")],
    )
    def test_how_long_it_takes_is_reported(self, pace: float, left_s: float | None, text: str) -> None:
        result = exposures.judge_copy(CopyProgress(2, TP, BYTES, 600, 1200, pace), SETTINGS)
        assert result.left_s == (None if left_s is None else pytest.approx(left_s))
        assert text in result.sentence

    @pytest.mark.parametrize("pace", [0.0, 1.0, 1e9], ids=["stands still", "slow", "nearly done"])
    def test_it_is_exposed_from_the_first_minute_whatever_the_retention(self, pace: float) -> None:
        for settings in (SETTINGS, DAILY, RemovalSettings(DAY_MS * 365, 0, 0.5), read_settings(None)):
            result = exposures.judge_copy(CopyProgress(2, TP, BYTES, 1, 2, pace), settings)
            assert result.level >= Level.AT_RISK
            assert FROM_THE_FIRST_MINUTE in result.sentence

    def test_one_whose_broker_is_down_may_go_on_from_an_old_log(self) -> None:
        result = exposures.judge_copy(CopyProgress(2, TP, is_measured=False), SETTINGS)
        assert (result.kind, result.level, result.left_s) == (ExposureKind.ADDED, Level.AT_RISK, None)
        assert result.sentence == (
            f"broker 2 is being added as a replica of t-0, with unknown progress; {ON_ITS_OLD_LOG};"
            f" {FROM_THE_FIRST_MINUTE}; tombstones and markers stay for at least 2 min"
        )


STAMPED = [
    header(1, attributes=0x30, max_timestamp_ms=5),
    header(2, attributes=0x70, timestamp_base_ms=900),
    header(3, attributes=0x40, timestamp_base_ms=800),
]
UNSTAMPED = [header(1, max_timestamp_ms=0), *(header(n, attributes=0x30, max_timestamp_ms=n) for n in (9, 5, 7))]
EMPTY = [header(1, attributes=0x70, timestamp_base_ms=1, record_count=0)]


@pytest.mark.parametrize(("batches", "expected"), [
    (STAMPED, NextRemoval(3, TOMBSTONES, 800, is_stamped=True)),
    (UNSTAMPED, NextRemoval(5, MARKER, 105, is_stamped=False)),
    (EMPTY, None),
], ids=["by its horizon", "else the oldest marker by its writing", "empty batches have nothing to lose"])  # fmt: skip
def test_what_goes_first(batches: list[Batch], expected: NextRemoval | None) -> None:
    assert next_removal(batches, 100) == expected


def exposed(brokers: dict[int, FakeBroker], **cluster: Any) -> Exposure:
    return exposures.exposure(audited(brokers, settings=COMPACTED, **cluster))


def exposed_replica(brokers: dict[int, FakeBroker], **cluster: Any) -> exposures.ReplicaExposure:
    """Return the only exposed replica of the only topic."""
    (topic,) = exposed(brokers, **cluster).topics
    (replica,) = topic.replicas
    return replica


LEADER = Held(10, 10, batches=tuple(written(n, NOW_MS - 130_000 + n * 1000) for n in range(10)))


class TestClusters:
    def test_a_full_isr_is_fine(self) -> None:
        verdict = exposed({1: FakeBroker({TP: [LEADER]}), 2: FakeBroker({TP: [LEADER]})})
        (topic,) = verdict.topics
        assert (verdict.level, topic.settings, topic.replicas, verdict.notes) == (Level.OK, SETTINGS, (), ())
        assert topic.sentence == ("t: every replica is in the ISR; tombstones and markers stay for at least 2 min")

    def test_a_replica_out_of_the_isr_lacks_what_its_leader_shows_from_its_log_end_on(self) -> None:
        behind = Held(4, 4, log_end=5, batches=LEADER.batches[:5])
        replica = exposed_replica({1: FakeBroker({TP: [LEADER]}), 2: FakeBroker({TP: [behind]})}, isr=(1,))
        assert (replica.broker, replica.level, replica.since_ms) == (2, Level.TOO_LATE, NOW_MS - 125_000)

    def test_a_broker_that_is_down_is_at_risk_but_not_in_a_topic_that_is_not_compacted(self) -> None:
        replica = exposed_replica({1: FakeBroker({TP: [LEADER]})}, absent=(2,))
        assert (replica.broker, replica.level) == (2, Level.AT_RISK)
        assert "it is not registered with the cluster" in replica.sentence
        brokers = {1: FakeBroker({TP: [LEADER]}), 2: FakeBroker({TP: [Held(4, 4, log_end=5)]})}
        cluster = audited(brokers, settings={"cleanup.policy": "delete"}, isr=(1,))
        (topic,) = exposures.exposure(cluster).topics
        assert (topic.level, topic.replicas, topic.sentence) == (Level.OK, (), "t: not compacted")
        positions = {p.fetch_offset for r in brokers[1].named("Fetch") for t in r.topics for p in t.partitions}
        assert positions == {10}, "missing batches were read"

    @pytest.mark.parametrize(("sizes", "added", "left_s", "text"), [
        ({TP: 3000}, FakeBroker({TP: [Held(3, 3)]}, sizes={TP: 300}, growth_bytes=30), (3000 - 360) / 10, BYTES),
        ({}, FakeBroker({TP: [*[Held(1, 1)] * 5, Held(7, 7)]}), 3 / (6 / 9), OFFSETS),
        ({}, FakeBroker({TP: [*[Held(1, 1)] * 3, Held(4, 4)]}), 6.0, f"4 of 10 {OFFSETS}"),
    ], ids=["by bytes", "a copy that grows in steps is looked at until then", "by offsets without sizes"])  # fmt: skip
    def test_a_copy_is_measured(
        self, sizes: dict[tuple[str, int], int], added: FakeBroker, left_s: float, text: str
    ) -> None:
        leader = FakeBroker({TP: [LEADER]}, adding={TP: [2]}, sizes=sizes)
        replica = exposed_replica({1: leader, 2: added}, isr=(1,))
        assert (replica.broker, replica.level) == (2, Level.AT_RISK)
        assert replica.left_s == pytest.approx(left_s)
        assert text in replica.sentence

    def test_a_replica_that_is_assigned_again_to_a_broker_that_is_down_is_being_added(self) -> None:
        verdict = exposed({1: FakeBroker({TP: [LEADER]}, adding={TP: [2]})}, absent=(2,))
        (replica,) = verdict.topics[0].replicas
        assert (replica.kind, replica.broker, replica.level) == (ExposureKind.ADDED, 2, Level.AT_RISK)
        assert ON_ITS_OLD_LOG in replica.sentence
        assert verdict.notes == ()

    def test_what_may_not_be_asked_is_a_note(self) -> None:
        broker = FakeBroker({TP: [LEADER]}, listing_error=kafka.errors.ClusterAuthorizationFailedError.errno)
        result = exposed({1: broker})
        assert result.notes == ("reassignments are unknown: ClusterAuthorizationFailedError",)


OPEN = OpenTransaction(7, 3, 4)
HELD = replace(LEADER, last_stable_offset=4, open=(OPEN,))
"""Holds the transaction of offset 4 open, which was written 126 s before `NOW_MS`."""
WORD = TransactionDescription(1, "tx\x1b[31m", "Ongoing", 7, 3, NOW_MS - 100_000, frozenset({TP}), timeout_ms=900_000)


def frozen(*status: Held, settings: dict[str, str] = COMPACTED, told: bool = True, **word: Any) -> Exposure:
    """Return the exposure of these replicas; the coordinator tells `WORD` with these fields, or nothing."""
    brokers = {number: FakeBroker({TP: [replica]}) for number, replica in enumerate(status, 1)}
    brokers[1].words = [replace(WORD, **word)] if told else []
    return exposures.exposure(audited(brokers, settings=settings))


FROZEN_TOO_LATE = (ExposureKind.FROZEN, Level.TOO_LATE)


class TestFrozen:
    def test_a_replica_that_holds_open_what_was_decided_elsewhere_is_not_ok(self) -> None:
        verdict = frozen(LEADER, HELD, LEADER, state="CompleteCommit")
        (replica,) = verdict.topics[0].replicas
        assert (verdict.level, replica.kind, replica.broker) == (Level.TOO_LATE, ExposureKind.FROZEN, 2)
        assert replica.sentence == (
            "broker 2 still has the transaction of producer 7 open from offset 4 of t-0, and it has ended on"
            " brokers 1, 3; the coordinator of tx\\x1b[31m says CompleteCommit; read_committed consumers of"
            " broker 2 get nothing from offset 4 on (high watermark 10): `harness audit live` reads the records behind"
            " it"
        )
        assert verdict.topics[0].sentence.startswith("t: 1 replica is frozen; every replica is in the ISR; tombstones")

    def test_so_is_a_transaction_that_hangs_everywhere_also_in_a_topic_that_is_not_compacted(self) -> None:
        verdict = frozen(HELD, HELD, state="CompleteAbort")
        assert {(replica.kind, replica.level) for replica in verdict.topics[0].replicas} == {FROZEN_TOO_LATE}
        assert verdict.topics[0].sentence.startswith("t: 2 replicas are frozen")
        verdict = frozen(HELD, state="Dead", settings={"cleanup.policy": "delete"})
        assert (verdict.level, verdict.topics[0].sentence) == (Level.TOO_LATE, "t: 1 replica is frozen; not compacted")

    def test_a_transaction_that_goes_on_is_fine_unless_it_does_for_longer_than_it_may(self) -> None:
        verdict = frozen(HELD, HELD)
        assert (verdict.level, verdict.topics[0].replicas, verdict.notes) == (Level.OK, (), ())
        began_ms = NOW_MS - 960_100
        verdict = frozen(HELD, start_time_ms=began_ms)
        (replica,) = verdict.topics[0].replicas
        assert (replica.kind, replica.level, replica.since_ms) == (ExposureKind.FROZEN, Level.AT_RISK, began_ms)
        assert "(16 min ago, by its coordinator's clock), and a transaction is aborted after 15 min" in replica.sentence
        levels = [frozen(HELD, start_time_ms=NOW_MS - 70_100, timeout_ms=ms).level for ms in (900_000, 10_000)]
        assert levels == [Level.OK, Level.AT_RISK], "its own timeout counts"

    @pytest.mark.parametrize(("age_ms", "level"), [(900_000, Level.OK), (970_000, Level.AT_RISK)])
    def test_where_no_coordinator_tells_its_record_does(self, age_ms: int, level: Level) -> None:
        old = tuple(written(n, NOW_MS - age_ms) for n in range(10))
        verdict = frozen(replace(HELD, batches=old), told=False)
        assert verdict.level == level
        assert verdict.notes == (NOTHING_SEEN,)


def printed(table: Table, capsys: pytest.CaptureFixture[str]) -> str:
    stdout().table(table)
    return capsys.readouterr().out


def test_it_and_what_the_prefilter_says_can_be_printed_and_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = exposed({1: FakeBroker({TP: [LEADER]})}, absent=(2,))
    text = printed(exposure_table(verdict), capsys)
    assert "at risk" in text
    assert "(it is not registered with the cluster)" in text
    parsed = json.loads(json.dumps(exposure_json(verdict)))
    assert parsed["level"] == parsed["topics"][0]["replicas"][0]["level"] == "at risk"
    assert parsed["topics"][0]["settings"]["delete_retention_ms"] == 100_000
    status = Held(20, 10, open=(OpenTransaction(7, 3, 10),))
    cluster = audited({1: FakeBroker({TP: [Held(20, 20)]}), 2: FakeBroker({TP: [status]})})
    filtered = prefilter(cluster)
    assert "producer 7 from 10" in printed(replica_table(filtered.statuses), capsys)
    parsed = json.loads(json.dumps(prefiltered_json(filtered)))
    assert [replica["broker"] for replica in parsed["suspicions"]] == [2]
    opened = {"producer_id": 7, "producer_epoch": 3, "first_offset": 10, "last_time_ms": -1, "coordinator_epoch": -1}
    assert parsed["replicas"][1]["open"] == [opened]
