"""Transactions, markers and topics after Kafka's known bugs, by the programs of `bench`; errors of Kafka's client."""

from pathlib import Path

import late_marker
import pytest
import recovered_transaction
import skipped_marker
from click.testing import CliRunner
from known_bugs_rig import booted

from harness.clients import ClientError, ClientSpec, java
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError
from harness.host.java import find_java
from harness.targets import find_target
from harness.targets.jars import jars_for

TOPIC = "t"


def test_a_broker_that_recovers_opens_a_transaction_again() -> None:
    ran = CliRunner().invoke(recovered_transaction.main, ["--version", "4.4.0"])
    assert ran.exit_code == EXIT_ANOMALY, ran.output
    before, after, served = ran.output.splitlines()
    stable, high = (int(one.split()[-1]) for one in before.removeprefix("before: ").split(","))
    assert stable == high
    assert after == f"after: last stable offset 2, high watermark {high}"
    assert served == "a read_committed consumer gets: first segment"


@pytest.mark.parametrize(("given", "code", "skipped", "served"), [
    (["--version", "4.4.0", "--abort"], EXIT_ANOMALY, 1, "committed: second; delivered: first, second"),
    (["--version", "4.4.0"], EXIT_ANOMALY, 1, "committed: first; delivered: nothing"),
    (["--version", "3.9.2", "--abort"], EXIT_CLEAN, 0, "committed: second; delivered: second"),
])  # fmt: skip
def test_the_next_marker_ends_a_transaction_without_one(given: list[str], code: int, skipped: int, served: str) -> None:
    ran = CliRunner().invoke(skipped_marker.main, given)
    assert f"skipped {skipped} markers; {served}" in ran.output, ran.output
    assert ran.exit_code == code


@pytest.mark.parametrize(("client", "code", "keys"), [
    ("librdkafka", EXIT_ANOMALY, "first; second; aborted, of a forgotten producer"),
    ("java", EXIT_CLEAN, "first; second"),
])  # fmt: skip
def test_a_late_marker_commits_the_next_transaction_of_version_1(client: str, code: int, keys: str) -> None:
    ran = CliRunner().invoke(late_marker.main, ["--version", "4.4.0", "--client", client])
    assert ran.exit_code == code, ran.output
    assert ran.output.splitlines()[-1] == f"a read_committed consumer gets: {keys}"


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
def test_a_deletion_by_id_spares_the_topic_that_comes_next(version: str) -> None:
    with booted(version) as bed:
        bed.create_topic(TOPIC, (1,))
        former = bed.cluster.admin.topic_id(TOPIC)
        bed.cluster.admin.delete_topic(TOPIC, former)
        bed.cluster.wait(lambda: not bed.cluster.admin.partitions([TOPIC]), "the topic to be gone")
        bed.create_topic(TOPIC, (1,))
        with pytest.raises(HarnessError, match="topic t cannot be deleted: This server does not host this topic ID"):
            bed.cluster.admin.delete_topic(TOPIC, former)
        assert bed.cluster.admin.topic_id(TOPIC) != former
        bed.cluster.admin.delete_topic(TOPIC)
        bed.cluster.wait(lambda: not bed.cluster.admin.partitions([TOPIC]), "the topic to be gone again")
        with pytest.raises(HarnessError, match="topic t has no id"):
            bed.cluster.admin.topic_id(TOPIC)


@pytest.mark.parametrize(("error", "refusal"), [
    ("UnknownServerException", "UNKNOWN_SERVER_ERROR"), ("InvalidTxnStateException", "INVALID_TXN_STATE"),
    ("TimeoutException", "TIMED_OUT"), ("AuthorizationException", ""),
])  # fmt: skip
def test_kafkas_own_client_names_what_a_broker_refuses(tmp_path: Path, error: str, refusal: str) -> None:
    classpath = jars_for(find_target("kafka-4.4")).classpath
    spec = ClientSpec("a-test", "127.0.0.1:9", find_java(), classpath, tmp_path, tmp_path / "java.log")
    with java.virtual_machine(spec) as jvm:
        future = jvm.java.util.concurrent.CompletableFuture()
        future.completeExceptionally(getattr(jvm.org.apache.kafka.common.errors, error)("refused"))
        with pytest.raises(ClientError, match=error) as raised, java.client_errors():
            future.get()
    assert raised.value.refusal == refusal
