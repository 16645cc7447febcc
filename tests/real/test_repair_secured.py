"""`harness repair` on brokers that ask for SASL over TLS, by a user with exactly the rights of its page.

A replica that missed a delete is rebuilt, and a transaction that hangs is aborted by Kafka's API (KIP-664). The
transaction hangs as in KIP-890: a request of its producer reaches the leader after the transaction has ended.
"""

import json
import re
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from documentation import ROOT
from sandbox import Ran, Sandbox, wait_until
from secured import BOUND_S, BROKERS, Secured, batches_of, booted, hang, login_file, make_stores

from harness.broker_files.segments.batches import Batch, Record, iter_records, marker
from harness.clients.librdkafka import CONFIG
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError
from harness.kafka_api import TopicPartition
from harness.protect.guard.channel import TOPIC as CHANNEL
from harness.schedules.timers import FAST

USER = "repairer"
DIVERGED, HANGING = ("diverged", 0), ("hanging", 0)
AWAY = 2
RESOURCES = {
    "the cluster": [("cluster", "kafka-cluster")],
    "the topics": [("topic", topic) for topic, _ in (DIVERGED, HANGING)], f"topic `{CHANNEL}`": [("topic", CHANNEL)],
    f"group `{CHANNEL}`": [("group", CHANNEL)], "transactional ids": [("transactional-id", "*")],
}  # fmt: skip
SETTINGS = {
    # As before KIP-890: a leader appends a transactional batch without a request to the coordinator.
    "transaction.partition.verification.enable": "false",
    "producer.id.expiration.ms": "600000",
}


def rights_of_the_page() -> list[tuple[str, str, str]]:
    """Return type, name and operation of every row of the page's table of rights."""
    section = (ROOT / "docs/reference/repair.md").read_text().partition("## Rights")[2].partition("##")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", section, re.MULTILINE)
    assert {name for name, _ in rows} - RESOURCES.keys() == {"Resource"}
    return [
        (*resource, operation)
        for name, operations in rows
        if name in RESOURCES
        for resource in RESOURCES[name]
        for operation in operations.split(", ")
    ]


@pytest.fixture(params=["kafka-4.4", "kafka-3.9"])
def secured(request: pytest.FixtureRequest, sandbox: Sandbox) -> Iterator[Secured]:
    settings = {**make_stores(sandbox.root), **SETTINGS}
    login = login_file(sandbox.root, USER, "a secret", is_tls=True)
    with booted(request.param, sandbox.root, login, settings) as cluster:
        yield cluster


def batches(cluster: Secured, broker: int, partition: TopicPartition) -> list[Batch]:
    return batches_of(cluster.inside[broker - 1], partition)


def records(cluster: Secured, broker: int) -> list[Record]:
    own = batches(cluster, broker, DIVERGED)
    return [record for batch in own for record in iter_records(batch, source="a Fetch answer")]


def diverge(cluster: Secured) -> None:
    """Have one broker miss a delete that the others have removed."""
    producer = Producer({**CONFIG, "bootstrap.servers": ",".join(map(str, cluster.inside))})
    numbers = count()

    def write(key: str, value: str | None) -> None:
        producer.produce(DIVERGED[0], key=key, value=value, partition=DIVERGED[1])
        assert producer.flush(BOUND_S) == 0

    def is_removed() -> bool:
        # Cleaners pass only where something new was written, and never over the active segment.
        write("filler", str(next(numbers)))
        others = [record for broker in BROKERS if broker != AWAY for record in records(cluster, broker)]
        return all(record.value is not None for record in others)

    def is_gone() -> bool:
        try:
            return AWAY not in cluster.admin.partitions([DIVERGED[0]])[DIVERGED].isr
        except HarnessError:
            return False

    write("lost", "value")
    # On a busy machine the record is acknowledged by a smaller ISR.
    wait_until(lambda: len(batches(cluster, AWAY, DIVERGED)) == 1, BOUND_S, "the record on the broker to be killed")
    cluster.runtime.kill(AWAY)
    wait_until(is_gone, BOUND_S, "the broker to leave the ISR")
    write("lost", None)
    wait_until(is_removed, BOUND_S, "the delete to be removed")
    cluster.runtime.start(AWAY)
    wait_until(lambda: cluster.is_whole(DIVERGED[0], HANGING[0]), BOUND_S, "every replica to be in sync")


def markers(cluster: Secured, broker: int) -> list[str]:
    """Return the types of the markers in the replica's log of the transaction that hangs."""
    seen = (marker(batch, source="a Fetch answer") for batch in batches(cluster, broker, HANGING))
    return [one.type for one in seen if one is not None]


def audit(sandbox: Sandbox, cluster: Secured) -> Ran:
    topics = ("--topic", DIVERGED[0], "--topic", HANGING[0])
    return sandbox.call("audit", "live", *cluster.server, *topics, "--format", "json")


def test_replicas_are_rebuilt_and_a_hanging_transaction_is_aborted(secured: Secured, sandbox: Sandbox) -> None:
    secured.create({DIVERGED: (1, 2, 3), HANGING: (3, 1, 2)}, FAST.topic)
    diverge(secured)
    hang(secured.admin, secured.inside, HANGING)
    secured.allow(USER, rights_of_the_page())

    audited = audit(sandbox, secured)
    assert audited.code == EXIT_ANOMALY, audited.output
    kinds = {(one["topic"], one["anomaly"]) for one in audited.verdict["findings"]}
    assert kinds == {(DIVERGED[0], "tombstone-divergence"), (HANGING[0], "hanging-transaction")}
    path = sandbox.root / "audit.json"
    path.write_text(audited.stdout)

    plan = json.loads(sandbox.call("repair", str(path), *secured.server, "--plan", "--format", "json").stdout)
    # If a live audit does not decide which replica is wrong, a person does.
    decided = () if plan["repairs"] else ("--right", "diverged-0=1", "--saved-elsewhere")
    assert [one["topic"] for one in plan["aborts"]] == [HANGING[0]], plan
    assert [markers(secured, broker) for broker in BROKERS] == [["commit"]] * 3, "a plan changes nothing"

    ran = sandbox.call("repair", str(path), *secured.server, "--apply", *decided, "--format", "json", code=EXIT_CLEAN)
    assert [one["why"] for one in json.loads(ran.stdout)["aborted"]] == [None]
    assert not any(record.key == b"lost" for record in records(secured, AWAY)), ran.output
    assert [markers(secured, broker) for broker in BROKERS] == [["commit", "abort"]] * 3
    again = audit(sandbox, secured)
    assert again.code == EXIT_CLEAN, again.output
