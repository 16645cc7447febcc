"""Exposure of a cluster: replicas out of the ISR and the pace of first copies, compared with the retention."""

import json
from dataclasses import replace
from typing import Any

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.clock import NOW_MS

from harness.audit.explain.show import exposure_json, exposure_table, prefiltered_json, replica_table
from harness.audit.live.broker_reports import NOTHING_SEEN
from harness.audit.live.exposure import (
    FROM_THE_FIRST_MINUTE,
    ON_ITS_OLD_LOG,
    Exposure,
    ExposureKind,
    Level,
    ReplicaExposure,
    exposure,
    judge_copy,
    judge_lag,
)
from harness.audit.live.lags import BYTES, MARKER, OFFSETS, TOMBSTONES, CopyProgress, Lag, NextRemoval, next_removal
from harness.audit.live.prefilter import prefilter
from harness.audit.removal_settings import RemovalSettings, read_settings
from harness.broker_files.segments.batches import Batch, Record, iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.terminal import Table, stdout

DAY_MS = 86_400_000
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100000",
    "min.compaction.lag.ms": "20000",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.5",
}
SETTINGS = RemovalSettings(100_000, 20_000, 5_000, 0.5)
DAILY = RemovalSettings(DAY_MS, 0, DAY_MS, 0.5)


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


class TestLags:
    @pytest.mark.parametrize(
        ("since_ms", "now_ms", "settings", "level", "text"),
        [
            (DAY_MS, 2 * DAY_MS - 1, DAILY, Level.AT_RISK, AT_RISK),
            (DAY_MS, 2 * DAY_MS, DAILY, Level.TOO_LATE, "some that it never fetched may be gone"),
            (0, 119_999, SETTINGS, Level.AT_RISK, "at least 2 min: until"),
            (0, 120_000, SETTINGS, Level.TOO_LATE, "at least 2 min, so"),
            (0, DAY_MS * 99, read_settings(None), Level.AT_RISK, "the retention of tombstones and markers is unknown"),
        ],
    )
    def test_it_may_be_too_late_once_compaction_lag_and_retention_have_passed(
        self, since_ms: int, now_ms: int, settings: RemovalSettings, level: Level, text: str
    ) -> None:
        result = judge_lag(lag(since_ms), settings, now_ms)
        assert (result.level, result.since_ms) == (level, since_ms)
        assert text in result.sentence

    def test_whose_clock_it_is_is_reported(self) -> None:
        result = judge_lag(lag(1000, is_append_time=True), DAILY, 2000)
        assert result.by_brokers_clock
        assert "by the broker's clock" in result.sentence

    def test_one_that_lacks_nothing_is_fine(self) -> None:
        result = judge_lag(lag(None), DAILY, 0)
        assert result.level == Level.OK
        assert result.sentence == "broker 2 is out of the ISR of t-0, and misses no record of its leader"

    @pytest.mark.parametrize(
        ("away", "words"),
        [
            (Lag(2, TP, None, "refused"), "was not seen (refused): since when is unknown"),
            (Lag(2, TP, None, None), "its missing records could not be read from a leader"),
            (lag(-1), "its missing records have no timestamp"),
        ],
    )
    def test_where_nothing_tells_since_when_it_is_at_risk(self, away: Lag, words: str) -> None:
        result = judge_lag(away, DAILY, DAY_MS * 99)
        assert (result.level, result.since_ms) == (Level.AT_RISK, None)
        assert words in result.sentence

    def test_what_goes_first_of_what_it_lacks_is_reported(self) -> None:
        away = Lag(2, TP, (header(5, max_timestamp_ms=0), header(6, attributes=0x40, timestamp_base_ms=7_000)), None)
        result = judge_lag(away, DAILY, 0)
        assert result.at_stake == NextRemoval(6, TOMBSTONES, 7_000, is_stamped=True)
        assert "the tombstones at offset 6 may be removed from 1970-01-01 00:00:07 UTC on" in result.sentence


class TestCopies:
    """A window of two minutes."""

    @pytest.mark.parametrize(
        ("done", "total", "pace", "level"),
        [
            (10, 119, 1.0, Level.AT_RISK),
            (10, 120, 1.0, Level.AT_RISK),
            (119, 120, 1.0, Level.AT_RISK),
            (120, 121, 1.0, Level.TOO_LATE),
            (10, 120, 0.0, Level.AT_RISK),
        ],
    )
    def test_the_whole_copy_has_to_fit_into_the_window(self, done: int, total: int, pace: float, level: Level) -> None:
        assert judge_copy(CopyProgress(2, TP, BYTES, done, total, pace), SETTINGS).level == level

    def test_how_long_it_takes_is_reported(self) -> None:
        result = judge_copy(CopyProgress(2, TP, BYTES, 600, 1200, 10.0), SETTINGS)
        assert result.left_s == pytest.approx(60)
        assert "600 of 1200 bytes, about 60 s so far and 60 s to go; " in result.sentence

    @pytest.mark.parametrize("pace", [0.0, 1.0, 1e9], ids=["stands still", "slow", "nearly done"])
    def test_it_is_exposed_from_the_first_minute_whatever_the_retention(self, pace: float) -> None:
        for settings in (SETTINGS, DAILY, RemovalSettings(DAY_MS * 365, 0, DAY_MS, 0.5), read_settings(None)):
            result = judge_copy(CopyProgress(2, TP, BYTES, 1, 2, pace), settings)
            assert result.level >= Level.AT_RISK
            assert FROM_THE_FIRST_MINUTE in result.sentence

    def test_one_whose_broker_is_down_may_go_on_from_an_old_log(self) -> None:
        result = judge_copy(CopyProgress(2, TP, is_measured=False), SETTINGS)
        assert (result.kind, result.level, result.left_s) == (ExposureKind.ADDED, Level.AT_RISK, None)
        assert result.sentence == (
            f"broker 2 is being added as a replica of t-0, with unknown progress; {ON_ITS_OLD_LOG};"
            f" {FROM_THE_FIRST_MINUTE}; tombstones and markers stay for at least 2 min"
        )

    def test_one_that_stands_still_says_so(self) -> None:
        result = judge_copy(CopyProgress(2, TP, BYTES, 600, 1200, 0.0), SETTINGS)
        assert result.left_s is None
        assert "and it did not grow" in result.sentence


class TestStake:
    def test_what_is_stamped_goes_first_by_its_horizon(self) -> None:
        batches = [
            header(1, attributes=0x30, max_timestamp_ms=5),
            header(2, attributes=0x70, timestamp_base_ms=900),
            header(3, attributes=0x40, timestamp_base_ms=800),
        ]
        assert next_removal(batches, 100) == NextRemoval(3, TOMBSTONES, 800, is_stamped=True)

    def test_else_the_oldest_marker_counts_from_its_writing(self) -> None:
        batches = [header(1, max_timestamp_ms=0), *(header(n, attributes=0x30, max_timestamp_ms=n) for n in (9, 5, 7))]
        assert next_removal(batches, 100) == NextRemoval(5, MARKER, 105, is_stamped=False)

    def test_empty_batches_have_nothing_to_lose(self) -> None:
        assert next_removal([header(1, attributes=0x70, timestamp_base_ms=1, record_count=0)], 100) is None


def exposed(brokers: dict[int, FakeBroker], **cluster: object) -> Exposure:
    return exposure(audited(brokers, settings=COMPACTED, **cluster))  # type: ignore[arg-type]


def exposed_replica(brokers: dict[int, FakeBroker], **cluster: object) -> ReplicaExposure:
    """Return the only exposed replica of the only topic."""
    ((replica,),) = (topic.replicas for topic in exposed(brokers, **cluster).topics)
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

    def test_a_broker_that_is_down_is_at_risk(self) -> None:
        replica = exposed_replica({1: FakeBroker({TP: [LEADER]})}, absent=(2,))
        assert (replica.broker, replica.level) == (2, Level.AT_RISK)
        assert "it is not registered with the cluster" in replica.sentence

    def test_a_copy_is_measured_by_bytes(self) -> None:
        leader = FakeBroker({TP: [LEADER]}, adding={TP: [2]}, sizes={TP: 3000})
        added = FakeBroker({TP: [Held(3, 3)]}, sizes={TP: 300}, growth_bytes=30)
        replica = exposed_replica({1: leader, 2: added}, isr=(1,))
        assert (replica.broker, replica.level) == (2, Level.AT_RISK)
        assert replica.left_s == pytest.approx((3000 - 360) / 10)

    def test_a_copy_that_grows_in_steps_is_looked_at_until_it_does(self) -> None:
        leader = FakeBroker({TP: [LEADER]}, adding={TP: [2]})
        added = FakeBroker({TP: [*[Held(1, 1)] * 5, Held(7, 7)]})
        replica = exposed_replica({1: leader, 2: added}, isr=(1,))
        assert replica.left_s == pytest.approx(3 / (6 / 9))

    def test_a_replica_that_is_assigned_again_to_a_broker_that_is_down_is_being_added(self) -> None:
        leader = FakeBroker({TP: [LEADER]}, adding={TP: [2]})
        verdict = exposed({1: leader}, absent=(2,))
        ((replica,),) = (topic.replicas for topic in verdict.topics)
        assert (replica.kind, replica.broker, replica.level) == (ExposureKind.ADDED, 2, Level.AT_RISK)
        assert ON_ITS_OLD_LOG in replica.sentence
        assert verdict.notes == ()

    def test_or_by_offsets_where_no_sizes_are_reported(self) -> None:
        leader = FakeBroker({TP: [LEADER]}, adding={TP: [2]})
        added = FakeBroker({TP: [*[Held(1, 1)] * 3, Held(4, 4)]})
        replica = exposed_replica({1: leader, 2: added}, isr=(1,))
        assert replica.left_s == pytest.approx(6.0)
        assert f"4 of 10 {OFFSETS}" in replica.sentence

    def test_what_may_not_be_asked_is_a_note(self) -> None:
        refusal = kafka.errors.ClusterAuthorizationFailedError.errno
        result = exposed({1: FakeBroker({TP: [LEADER]}, listing_error=refusal)})
        assert result.notes == ("reassignments are unknown: ClusterAuthorizationFailedError",)

    def test_a_topic_that_is_not_compacted_loses_no_tombstones(self) -> None:
        cluster = audited({1: FakeBroker({TP: [LEADER]})}, settings={"cleanup.policy": "delete"}, absent=(2,))
        (topic,) = exposure(cluster).topics
        assert (topic.level, topic.replicas, topic.sentence) == (Level.OK, (), "t: not compacted")


OPEN = OpenTransaction(7, 3, 4)
HELD = replace(LEADER, last_stable_offset=4, open=(OPEN,))
"""Holds the transaction of offset 4 open, which was written 126 s before `NOW_MS`."""
WORD = TransactionDescription(1, "tx\x1b[31m", "Ongoing", 7, 3, NOW_MS - 100_000, frozenset({TP}), timeout_ms=900_000)


def frozen(
    *status: Held, words: tuple[TransactionDescription, ...] = (WORD,), settings: dict[str, str] | None = None
) -> Exposure:
    brokers = {number: FakeBroker({TP: [replica]}) for number, replica in enumerate(status, 1)}
    brokers[1].words = list(words)
    cluster = audited(brokers, settings=COMPACTED if settings is None else settings)
    return exposure(cluster)


class TestFrozen:
    def test_a_replica_that_holds_open_what_was_decided_elsewhere_is_not_ok(self) -> None:
        verdict = frozen(LEADER, HELD, LEADER, words=(replace(WORD, state="CompleteCommit"),))
        ((replica,),) = (topic.replicas for topic in verdict.topics)
        assert (verdict.level, replica.kind, replica.broker) == (Level.TOO_LATE, ExposureKind.FROZEN, 2)
        assert replica.sentence == (
            "broker 2 still has the transaction of producer 7 open from offset 4 of t-0, and it has ended on"
            " brokers 1, 3; the coordinator of tx\\x1b[31m says CompleteCommit; read_committed consumers of"
            " broker 2 get nothing from offset 4 on (high watermark 10): `harness audit live` reads the records behind"
            " it"
        )
        assert verdict.topics[0].sentence.startswith("t: 1 replica is frozen; every replica is in the ISR; tombstones")

    def test_so_is_a_transaction_that_hangs_everywhere(self) -> None:
        verdict = frozen(HELD, HELD, words=(replace(WORD, state="CompleteAbort"),))
        frozen_replicas = [(replica.kind, replica.level) for replica in verdict.topics[0].replicas]
        assert frozen_replicas == [(ExposureKind.FROZEN, Level.TOO_LATE)] * 2
        assert verdict.topics[0].sentence.startswith("t: 2 replicas are frozen")

    def test_also_in_a_topic_that_is_not_compacted(self) -> None:
        verdict = frozen(HELD, words=(replace(WORD, state="Dead"),), settings={"cleanup.policy": "delete"})
        assert (verdict.level, verdict.topics[0].sentence) == (Level.TOO_LATE, "t: 1 replica is frozen; not compacted")

    def test_a_transaction_that_goes_on_is_fine(self) -> None:
        verdict = frozen(HELD, HELD)
        assert (verdict.level, verdict.topics[0].replicas, verdict.notes) == (Level.OK, (), ())

    def test_unless_it_goes_on_for_longer_than_it_may(self) -> None:
        began_ms = NOW_MS - 960_100
        verdict = frozen(HELD, words=(replace(WORD, start_time_ms=began_ms),))
        (replica,) = verdict.topics[0].replicas
        assert (replica.kind, replica.level, replica.since_ms) == (ExposureKind.FROZEN, Level.AT_RISK, began_ms)
        facts = "(16 min ago, by its coordinator's clock), and a transaction is aborted after 15 min"
        assert facts in replica.sentence

    def test_its_own_timeout_counts(self) -> None:
        began_ms = NOW_MS - 70_100
        assert frozen(HELD, words=(replace(WORD, start_time_ms=began_ms),)).level == Level.OK
        assert frozen(HELD, words=(replace(WORD, start_time_ms=began_ms, timeout_ms=10_000),)).level == Level.AT_RISK

    @pytest.mark.parametrize(("age_ms", "level"), [(900_000, Level.OK), (970_000, Level.AT_RISK)])
    def test_where_no_coordinator_tells_its_record_does(self, age_ms: int, level: Level) -> None:
        old = tuple(written(n, NOW_MS - age_ms) for n in range(10))
        verdict = frozen(replace(HELD, batches=old), words=())
        assert verdict.level == level
        assert verdict.notes == (NOTHING_SEEN,)

    def test_one_that_is_too_far_behind_to_tell_is_a_note(self) -> None:
        behind = Held(6, 4, log_end=6, open=(OPEN,), batches=LEADER.batches[:6])
        verdict = frozen(LEADER, behind, words=(replace(WORD, state="CompleteCommit"),))
        assert verdict.level == Level.OK
        (note,) = verdict.notes
        assert note.endswith("too far behind to tell")


def printed(table: Table, capsys: pytest.CaptureFixture[str]) -> str:
    stdout().table(table)
    return capsys.readouterr().out


def test_it_can_be_printed_and_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = exposed({1: FakeBroker({TP: [LEADER]})}, absent=(2,))
    text = printed(exposure_table(verdict), capsys)
    assert "at risk" in text
    assert "(it is not registered with the cluster)" in text
    parsed = json.loads(json.dumps(exposure_json(verdict)))
    assert parsed["level"] == parsed["topics"][0]["replicas"][0]["level"] == "at risk"
    assert parsed["topics"][0]["settings"]["delete_retention_ms"] == 100_000


def test_so_can_what_the_prefilter_says(capsys: pytest.CaptureFixture[str]) -> None:
    status = Held(20, 10, open=(OpenTransaction(7, 3, 10),))
    cluster = audited({1: FakeBroker({TP: [Held(20, 20)]}), 2: FakeBroker({TP: [status]})})
    filtered = prefilter(cluster)
    assert "producer 7 from 10" in printed(replica_table(filtered.statuses), capsys)
    parsed = json.loads(json.dumps(prefiltered_json(filtered)))
    assert [replica["broker"] for replica in parsed["suspicions"]] == [2]
    assert parsed["replicas"][1]["open"] == [{"producer_id": 7, "producer_epoch": 3, "first_offset": 10}]
