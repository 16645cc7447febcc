"""The audit commands on running clusters: sound ones, one that is at work, one that a broker has left, diverged ones.

On those of `audited` they have the rights of a user who may only read and describe.
"""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from audited import BOUND_S, LOGIN, SECOND, TOPIC, everything, wait_for_replication
from confluent_kafka import Producer

from harness.clients.librdkafka import CONFIG
from harness.clock import RealClock
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_FAILED, EXIT_UNKNOWN
from harness.timers import FAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audited import Audited
    from sandbox import Ran, Sandbox

pytestmark = pytest.mark.timeout(900)

BUSY = ("audited-busy", 0)
KEYS = 30
PAUSE_S = 0.005


def audit(sandbox: Sandbox, audited: Audited, what: str, *more: str) -> Ran:
    return sandbox.call("audit", what, *cluster(audited), "--format", "json", *more)


def cluster(audited: Audited) -> tuple[str, ...]:
    brokers = ",".join(map(str, audited.auditor))
    return ("--bootstrap-server", brokers, "--command-config", str(audited.work / LOGIN))


@contextmanager
def writing(audited: Audited) -> Iterator[None]:
    """Write transactions of both ends, tombstones among them, and plain records, until the block ends."""
    bootstrap, is_over = ",".join(map(str, audited.inside)), threading.Event()
    topic, partition = BUSY

    def transactions(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        producer = Producer({**CONFIG, "bootstrap.servers": bootstrap, "transactional.id": f"busy-{seed}"})
        producer.init_transactions(BOUND_S)
        while not is_over.wait(PAUSE_S):
            producer.begin_transaction()
            for _ in range(20):
                producer.produce(topic, chance.choice((None, b"v")), f"{seed}-{chance.randrange(KEYS)}", partition)
            producer.flush(BOUND_S)
            chance.choice((producer.commit_transaction, producer.abort_transaction))(BOUND_S)

    def plain(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        producer = Producer({**CONFIG, "bootstrap.servers": bootstrap})
        while not is_over.wait(PAUSE_S):
            producer.produce(topic, chance.choice((None, b"v")), f"{seed}-{chance.randrange(KEYS)}", partition)
            producer.poll(0)
        producer.flush(BOUND_S)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(transactions, 1), pool.submit(transactions, 2), pool.submit(plain, 3)]
        try:
            yield
        finally:
            is_over.set()
        for writer in writers:
            writer.result()


def test_an_audit_changes_nothing_and_needs_no_more_than_to_read_and_describe(
    sandbox: Sandbox, audited: Audited
) -> None:
    before = everything(audited)
    ran = audit(sandbox, audited, "live", "--topic", "audited", "--rate-limit-mb", "50")
    assert ran.code == EXIT_CLEAN, ran.said
    assert (ran.verdict["notes"], ran.verdict["doubts"]) == ([], [])
    assert ran.verdict["target"]["brokers"] == [1, 2, 3]
    assert [(one["topic"], one["partition"], one["verdict"]) for one in ran.verdict["scenarios"]] == [
        (*TOPIC, "clean"),
        (*SECOND, "clean"),
    ]
    quick = audit(sandbox, audited, "live", "--topic", "audited", "--quick")
    assert (quick.code, quick.verdict["findings"]) == (EXIT_UNKNOWN, []), quick.said
    exposed = audit(sandbox, audited, "exposure", "--topic", "audited")
    assert (exposed.code, exposed.verdict["level"]) == (EXIT_CLEAN, "ok"), exposed.said
    assert everything(audited) == before
    sandbox.wait_until_nothing_is_left()


def test_what_was_written_in_a_span_of_time_is_never_clean(sandbox: Sandbox, audited: Audited) -> None:
    kept = sandbox.root / "kept"
    span = ("--since", "2020-01-01", "--until", "2100-01-01T00:00Z", "--keep", str(kept))
    ran = audit(sandbox, audited, "live", "--topic", "audited", *span)
    assert ran.code == EXIT_UNKNOWN, ran.said
    assert "between --since and --until" in ran.verdict["reason"]
    assert len(list(kept.glob("reading-1/fetched/*/after-rejoin/*/state.json"))) == 6
    sandbox.wait_until_nothing_is_left()


def test_producers_and_cleaners_at_work_are_no_finding(sandbox: Sandbox, audited: Audited) -> None:
    audited.admin.create_topics({BUSY: (1, 2, 3)}, dict(FAST.topic))
    with writing(audited):
        for more in ((), ("--quick",)):
            ran = audit(sandbox, audited, "live", "--topic", BUSY[0], *more)
            assert ran.code in {EXIT_CLEAN, EXIT_UNKNOWN}, ran.said
            assert ran.verdict["findings"] == []
    ended = audit(sandbox, audited, "live", "--topic", BUSY[0])
    assert ended.verdict["findings"] == [], ended.said
    assert ended.code == EXIT_CLEAN, ended.said


def test_an_audit_that_is_interrupted_leaves_nothing(sandbox: Sandbox, audited: Audited) -> None:
    going = sandbox.start("audit", "live", *cluster(audited), "--topic", "audited", "--rate-limit-mb", "0.01")
    going.wait_for_stage("read 6 replicas")
    going.process.send_signal(signal.SIGINT)
    assert going.end().code == EXIT_FAILED
    sandbox.wait_until_nothing_is_left()


def test_a_broker_that_is_away_makes_its_partitions_unknown(sandbox: Sandbox, audited: Audited) -> None:
    audited.runtime.kill(3)
    try:
        RealClock().wait_until(lambda: 3 not in audited.admin.brokers(), BOUND_S, "the broker to be fenced")
        ran = audit(sandbox, audited, "live", "--topic", "audited")
        assert ran.code == EXIT_UNKNOWN, ran.said
        assert all("the replica of broker 3 was not read" in one["reason"] for one in ran.verdict["scenarios"])
        exposed = audit(sandbox, audited, "exposure", "--topic", "audited")
        assert (exposed.code, exposed.verdict["level"]) == (EXIT_UNKNOWN, "at risk"), exposed.said
    finally:
        audited.runtime.start(3)
        wait_for_replication(audited.auditor)


def test_a_diverged_cluster_is_found_out(sandbox: Sandbox) -> None:
    ran = sandbox.run("kafka-4.4", "--anomaly", "all", "--keep").end()
    assert ran.code == EXIT_ANOMALY, ran.said
    kept = ",".join(re.findall(r"kept: broker \d+ at (\S+)", ran.stderr))
    (run_id,) = re.findall(r"harness clean (\S+)", ran.stderr)
    try:
        judged = json.loads((sandbox.latest("kafka-4.4", "all") / "verdict.json").read_text())
        live = sandbox.call("audit", "live", "--bootstrap-server", kept, "--topic", "*", "--format", "json")
        assert live.code == EXIT_ANOMALY, live.said
        assert {"stuck-lso", "tombstone-divergence", "aborted-to-committed"} <= wrong_topics(live.verdict)
        # Where nothing tells whether a delete was aborted, those that lack it and those that have it may be wrong.
        deleted = [one for one in live.verdict["findings"] if one["topic"] == "aborted-to-committed-delete"]
        assert all("aborted-to-committed" in (one["anomaly"], *one["candidates"]) for one in deleted), live.said
        assert {2} == {one["broker"] for one in live.verdict["findings"] if one not in deleted}
        assert wrong_topics(live.verdict) <= wrong_topics(judged)
        # Its aborted list alone may tell what a broker takes a transaction for: no finding, and not clean either.
        sound = {one["topic"] for one in live.verdict["scenarios"] if one["verdict"] == "clean"}
        assert sound == {"control"}, live.said
        (stuck,) = (one for one in live.verdict["findings"] if one["topic"] == "stuck-lso")
        assert (stuck["anomaly"], stuck["effect"]) == ("stuck-lso", "visible")
    finally:
        cleaned = sandbox.call("clean", run_id)
    assert cleaned.code == 0, cleaned.said
    sandbox.wait_until_nothing_is_left()


def wrong_topics(verdict: dict[str, Any]) -> set[str]:
    return {one["topic"] for one in verdict["findings"]}
