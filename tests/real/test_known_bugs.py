"""Transactions, markers and topics after Kafka's known bugs, by the programs of `bench`."""

import late_marker
import pytest
import recovered_transaction
import skipped_marker
from click.testing import CliRunner
from known_bugs_rig import booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError

TOPIC = "t"


def test_a_broker_that_recovers_opens_a_transaction_again() -> None:
    ran = CliRunner().invoke(recovered_transaction.main, ["--version", "4.4.0"])
    assert ran.exit_code == EXIT_ANOMALY, ran.output
    before, after, served = ran.output.splitlines()
    stable, high = (int(one.split()[-1]) for one in before.removeprefix("before: ").split(","))
    assert stable == high
    assert after == f"after: last stable offset 2, high watermark {high}"
    assert served == "a read_committed consumer gets: first segment"


@pytest.mark.parametrize(
    ("given", "code", "skipped", "served"),
    [
        (["--version", "4.4.0", "--abort"], EXIT_ANOMALY, 1, "committed: second; delivered: first, second"),
        (["--version", "4.4.0"], EXIT_ANOMALY, 1, "committed: first; delivered: nothing"),
        (["--version", "3.9.2", "--abort"], EXIT_CLEAN, 0, "committed: second; delivered: second"),
    ],
)
def test_the_next_marker_ends_a_transaction_without_one(given: list[str], code: int, skipped: int, served: str) -> None:
    ran = CliRunner().invoke(skipped_marker.main, given)
    assert f"skipped {skipped} markers; {served}" in ran.output, ran.output
    assert ran.exit_code == code


@pytest.mark.parametrize(
    ("client", "code", "keys"),
    [
        ("librdkafka", EXIT_ANOMALY, "first; second; aborted, of a forgotten producer"),
        ("java", EXIT_CLEAN, "first; second"),
    ],
)
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
