"""Audits of a diverged cluster: brokers of a run that found every payload and was kept."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from kept import Kept, commit_offset, kept_clusters
from sandbox import DATA, Sandbox

from harness.audit.live.cluster import client_of, describe
from harness.audit.live.exposure import ExposureKind, Level, exposure
from harness.audit.live.prefilter import prefilter
from harness.errors import EXIT_ANOMALY, EXIT_UNKNOWN
from harness.kafka_api.address import parse_bootstrap

kept = kept_clusters(DATA, "kafka-4.4", "kafka-3.9")


def test_a_diverged_cluster_is_found_out(kept: Kept, sandbox: Sandbox) -> None:
    (stops,) = (one["offset"] for one in kept.verdict["findings"] if one["topic"] == "stuck-lso")
    for group in ("billing", "search"):
        commit_offset(parse_bootstrap(kept.bootstrap), group, ("stuck-lso", 0), stops)
    source = ("--bootstrap-server", kept.bootstrap, "--topic", "*")
    live = sandbox.call("audit", "live", *source, "--format", "json", code=EXIT_ANOMALY)
    assert {"stuck-lso", "tombstone-divergence", "aborted-to-committed"} <= wrong_topics(live.verdict)
    # The former leader is not known here: where that matters, no broker is accused.
    assert {one["broker"] for one in live.verdict["findings"] if one["decided"]} == {2}, live.output
    deleted = [one for one in live.verdict["findings"] if one["topic"] == "aborted-to-committed-delete"]
    assert all("aborted-to-committed" in (one["anomaly"], *one["candidates"]) for one in deleted), live.output
    assert wrong_topics(live.verdict) <= wrong_topics(kept.verdict)
    # Its aborted list alone may tell what a broker takes a transaction for: no finding, and not clean either.
    sound = {one["topic"] for one in live.verdict["scenarios"] if one["verdict"] == "clean"}
    assert sound == {"control"}, live.output
    (stuck,) = (one for one in live.verdict["findings"] if one["topic"] == "stuck-lso")
    assert (stuck["anomaly"], stuck["effect"]) == ("stuck-lso", "visible")
    assert stuck["impact"].startswith(f"broker 2 leads: read_committed consumers stop at offset {stops} (")
    assert stuck["impact"].endswith("; groups billing, search are stuck")
    sandbox.wait_until_nothing_is_left()


def wrong_topics(verdict: dict[str, Any]) -> set[str]:
    return {one["topic"] for one in verdict["findings"]}


@pytest.mark.commit("kafka-4.4")
def test_a_stuck_replica_is_found_without_reading_data(kept: Kept, sandbox: Sandbox) -> None:
    cluster = describe(client_of(parse_bootstrap(kept.bootstrap)), ["stuck*"])
    filtered = prefilter(cluster)
    (found,) = filtered.suspicions
    stuck = (one for one in kept.verdict["findings"] if one["topic"].startswith("stuck"))
    judged = [(one["anomaly"], one["broker"], one["offset"]) for one in stuck]
    assert [(found.anomaly, found.broker, found.offset)] == judged
    assert found.decided_on == (1, 3)
    assert found.coordinator is not None
    assert found.coordinator.state == "CompleteCommit"
    assert filtered.notes == ()
    exposed = exposure(cluster)
    assert exposed.level == Level.TOO_LATE
    ((frozen,),) = (topic.replicas for topic in exposed.topics)
    assert (frozen.kind, frozen.broker) == (ExposureKind.FROZEN, 2)
    asked = sandbox.call("audit", "exposure", "--bootstrap-server", kept.bootstrap, "--topic", "stuck*")
    assert (asked.code, "frozen" in asked.stdout) == (EXIT_UNKNOWN, True), asked.output


def test_folders_with_the_metadata_log_decide_who_is_wrong(kept: Kept, sandbox: Sandbox) -> None:
    folders = [f"--broker={broker}={data}" for broker, data in kept.log_dirs.items()]
    whole = sandbox.call("audit", "disk", "--topic", "*", *folders, "--format", "json", code=EXIT_ANOMALY)
    # All six payloads: the broker that was down is wrong, and no other broker is.
    assert wrong_topics(whole.verdict) == wrong_topics(kept.verdict)
    assert {(one["decided"], one["broker"]) for one in whole.verdict["findings"]} == {(True, 2)}, whole.output
    assert all(1 in one["right"] or 3 in one["right"] for one in whole.verdict["findings"]), whole.output
    text = sandbox.call("audit", "disk", "--topic", "aborted-to-committed-delete", *folders, "--verbose")
    assert "1 of 1 partition diverged, 0 agree" in text.stdout, text.output
    assert "ANOMALY aborted-to-committed: broker 2, aborted-to-committed-delete-0" in text.stdout, text.output
    assert "decided by: broker 1 led leader epoch 0" in text.stdout, text.output
    sandbox.wait_until_nothing_is_left()


@pytest.mark.commit("kafka-4.4")
def test_folders_without_the_metadata_log_accuse_nobody_who_is_right(kept: Kept, sandbox: Sandbox) -> None:
    folders = [f"--broker={broker}={data}" for broker, data in kept.without_metadata(sandbox.root / "copies").items()]
    bare = sandbox.call("audit", "disk", "--topic", "*", *folders, "--format", "json", code=EXIT_ANOMALY)
    assert {one["broker"] for one in bare.verdict["findings"] if one["decided"]} <= {2}, bare.output
    (deleted,) = (one for one in bare.verdict["findings"] if one["topic"] == "aborted-to-committed-delete")
    assert not deleted["decided"]
    assert [group["brokers"] for group in deleted["disagree"]] == [[1, 3], [2]]
    assert not any("reassign" in command for command in deleted["commands"])


@pytest.mark.commit("kafka-4.4")
def test_a_key_is_explained_on_each_replica(kept: Kept, sandbox: Sandbox) -> None:
    live = ("--bootstrap-server", kept.bootstrap)
    copies = [f"--broker={broker}={data}" for broker, data in kept.without_metadata(sandbox.root / "key").items()]
    for where in (live, copies):
        deleted = key(sandbox, "tombstone-divergence", where)
        assert [len(replica["records"]) for replica in deleted["replicas"]] == [0, 1, 0]
        assert [replica["served"][:7] for replica in deleted["replicas"]] == ["nothing", "the val", "nothing"]
        assert [text[:12] for text in deleted["differences"]] == ["brokers 1, 3"]
        stuck = key(sandbox, "stuck-lso", where)
        assert [text[:38] for text in stuck["differences"]] == ["broker 2 still has the transaction of "], stuck
        assert [record["outcome"] for record in stuck["replicas"][1]["records"]] == ["open", "committed"]
        assert "no pass goes beyond" in stuck["replicas"][1]["cleaner"][0]
        is_disk_known = all(replica["cleaner"][-1].startswith("dirty from") for replica in stuck["replicas"])
        assert is_disk_known == (where is copies), stuck
    sandbox.wait_until_nothing_is_left()


def key(sandbox: Sandbox, topic: str, where: Sequence[str]) -> dict[str, Any]:
    """Return the only partition of what the command prints about key K."""
    ran = sandbox.call("audit", "key", *where, "--topic", topic, "--key", "K", "--format", "json")
    assert ran.code == EXIT_ANOMALY, ran.output
    (partition,) = json.loads(ran.stdout)["partitions"]
    return dict(partition)
