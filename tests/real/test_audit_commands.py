"""The audit commands on running clusters: sound ones, one that is at work, one that a broker has left, diverged ones.

The users have the rights of `audited`: they may only read and describe.
"""

import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from audited import BOUND_S, KEPT, LOGIN, SECOND, TOPIC, Audited, everything, wait_for_replication, write_plainly
from confluent_kafka import Producer
from sandbox import Ran, Sandbox

from harness.clients.librdkafka import CONFIG
from harness.errors import EXIT_CLEAN, EXIT_INTERRUPTED, EXIT_UNKNOWN
from harness.host.clock import RealClock
from harness.schedules.timers import FAST

BUSY = ("audited-busy", 0)
KEYS = 30
PAUSE_S = 0.005
OPTION_OF = {".json": "output", ".xml": "junit", ".html": "html"}


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
    assert ran.code == EXIT_CLEAN, ran.output
    assert (ran.verdict["notes"], ran.verdict["doubts"]) == ([], [])
    assert ran.verdict["target"]["brokers"] == [1, 2, 3]
    assert [(one["topic"], one["partition"], one["verdict"]) for one in ran.verdict["scenarios"]] == [
        (*TOPIC, "clean"),
        (*SECOND, "clean"),
    ]
    quick = audit(sandbox, audited, "live", "--topic", "audited", "--quick")
    assert (quick.code, quick.verdict["findings"]) == (EXIT_UNKNOWN, []), quick.output
    exposed = audit(sandbox, audited, "exposure", "--topic", "audited")
    assert (exposed.code, exposed.verdict["level"]) == (EXIT_CLEAN, "ok"), exposed.output
    keyed = audit(sandbox, audited, "key", "--topic", "audited", "--key", "v", "--all-partitions")
    assert keyed.code == EXIT_CLEAN, keyed.output
    replicas = keyed.verdict["partitions"][0]["replicas"]
    assert [[record["outcome"] for record in replica["records"]] for replica in replicas] == [["open"]] * 3
    assert all("(transactional id open)" in replica["served"] for replica in replicas), keyed.output
    assert everything(audited) == before
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
    assert ended.verdict["findings"] == [], ended.output
    assert ended.code == EXIT_CLEAN, ended.output


def test_ten_times_the_limit_of_the_spool_is_read_in_waves_and_an_interrupt_keeps_what_was_compared(
    sandbox: Sandbox, audited: Audited
) -> None:
    many = [("audited-many", number) for number in range(12)]
    audited.admin.create_topics(dict.fromkeys(many, (1, 2, 3)), KEPT)
    for partition in many:
        write_plainly(audited, partition, 150)
    ran = audit(sandbox, audited, "live", "--topic", "audited-many", "--spool-limit", "1MB")
    assert (ran.code, len(ran.verdict["scenarios"])) == (EXIT_CLEAN, 12), ran.output
    assert "read 3 replicas, wave 12 of 12" in ran.stderr
    options = ("--topic", "audited-many", "--spool-limit", "1MB", "--format", "json")
    going = sandbox.start("audit", "live", *cluster(audited), *options)
    going.wait_for_stage("read 3 replicas, wave 3 of 12")
    going.process.send_signal(signal.SIGINT)
    ended = going.end()
    assert ended.code == EXIT_INTERRUPTED, ended.output
    counts = Counter((one["verdict"], *one.get("causes", ())) for one in ended.verdict["scenarios"])
    assert counts.keys() == {("clean",), ("unknown", "interrupted", "not-comparable")}
    assert 2 <= counts["clean",] < 12
    sandbox.wait_until_nothing_is_left()


def test_an_audit_that_is_interrupted_at_once_reports_what_brokers_said_and_leaves_nothing(
    sandbox: Sandbox, audited: Audited
) -> None:
    files = {name: sandbox.root / name for name in ("audit.json", "audit.xml", "audit.html")}
    options = [word for name, path in files.items() for word in (f"--{OPTION_OF[path.suffix]}", str(path))]
    limited = ("--topic", "audited", "--rate-limit-mb", "0.01")
    going = sandbox.start("audit", "live", *cluster(audited), *limited, *options)
    going.wait_for_stage("read 6 replicas")
    going.process.send_signal(signal.SIGINT)
    ran = going.end()
    assert (ran.code, "harness: interrupted; no data was stored" in ran.stderr) == (EXIT_INTERRUPTED, True)
    assert "UNKNOWN      interrupted, not-comparable: audited-0, audited-1" in ran.stdout
    assert f"(exit code {EXIT_INTERRUPTED})" in ran.stdout
    stored = json.loads(files["audit.json"].read_text())
    assert [scenario["verdict"] for scenario in stored["scenarios"]] == ["unknown", "unknown"]
    assert "audited-1" in files["audit.xml"].read_text()
    assert "audited-1" in files["audit.html"].read_text()
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
    finally:
        audited.runtime.start(3)
        wait_for_replication(audited.auditor)
