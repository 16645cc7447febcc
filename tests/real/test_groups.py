"""Consumer groups on real brokers: what replicas of ``__consumer_offsets`` disagree about, and what groups suffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sandbox import DATA, Ran, Sandbox

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN

if TYPE_CHECKING:
    from collections.abc import Mapping

FOUND = {
    "group-stuck-lso": ("stuck-lso", "visible"),
    "group-aborted-to-committed": ("aborted-to-committed", "visible"),
    "group-committed-to-aborted": ("committed-to-aborted", "latent"),
    "group-deleted": ("tombstone-divergence", "visible"),
    "group-input-recreated": ("tombstone-divergence", "visible"),
}
CONSEQUENCES = {
    "group-stuck-lso": "got no record at all within",
    "group-aborted-to-committed": "skips offsets 10 to 59 of group-aborted-to-committed-input-0",
    "group-committed-to-aborted": None,
    "group-deleted": "offset 10 of group-deleted-input-0 is committed, which with broker 1 is deleted",
    "group-input-recreated": "skips offsets 0 to 39 of group-input-recreated-input-0",
}


def by_scenario(verdict: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the finding of each scenario of groups; each has one."""
    places = {(s["topic"], n): s["scenario"] for s in verdict["scenarios"] for n in s["partitions"]}
    named = [(places[one["topic"], one["partition"]], one) for one in verdict["findings"]]
    of_groups = [(name, one) for name, one in named if name in FOUND]
    assert len(of_groups) == len(FOUND), verdict["reason"]
    return dict(of_groups)


def assert_groups_suffer(ran: Ran, protocols: str, *, named_by_topic_id: bool = False) -> None:
    """``named_by_topic_id``: a Java consumer of the consumer protocol, from 4.1 on, asks for offsets by topic id.

    The coordinator does not answer with offsets of another topic id (``OffsetMetadataManager.isMismatchedTopicId``).
    """
    assert ran.code == EXIT_ANOMALY, ran.output
    findings = by_scenario(ran.verdict)
    assert {name: (one["anomaly"], one["effect"]) for name, one in findings.items()} == FOUND
    assert {one["broker"] for one in findings.values()} == {2}
    for name, text in CONSEQUENCES.items():
        actual = findings[name].get("consequence", "")
        suffering = "classic" if named_by_topic_id and name == "group-input-recreated" else protocols
        expected = [] if text is None else [text, f"({suffering} protocol)"]
        assert all(one in actual for one in expected), actual
        assert bool(actual) is (text is not None)


@pytest.mark.parametrize(
    ("target", "nemesis", "client", "protocols"),
    [
        ("kafka-4.4", "kill", "librdkafka", "classic, consumer"),
        ("kafka-3.9", "join", "java", "classic"),
        ("kafka-4.4", "pause", "java", "classic, consumer"),
    ],
)
def test_groups_suffer_from_the_coordinator_that_was_away(
    sandbox: Sandbox, target: str, nemesis: str, client: str, protocols: str
) -> None:
    chosen = ("--anomaly", "groups", "--nemesis", nemesis, "--client", client, "--format", "json")
    ran = sandbox.run(target, *chosen).end()
    assert_groups_suffer(ran, protocols, named_by_topic_id=client == "java")
    again = sandbox.call("check", str(sandbox.latest(target, "groups")), "--format", "json")
    assert again.verdict["findings"] == ran.verdict["findings"], "from the run folder alone"
    sandbox.wait_until_nothing_is_left()


def test_groups_of_a_healthy_cluster_are_clean(sandbox: Sandbox) -> None:
    ran = sandbox.run("kafka-3.9", "--anomaly", "groups", "--nemesis", "none", "--format", "json").end()
    assert ran.code == EXIT_CLEAN, ran.output
    assert {one["scenario"]: one["verdict"] for one in ran.verdict["scenarios"]} == dict.fromkeys(FOUND, "clean")
    sandbox.wait_until_nothing_is_left()


def test_all_has_topics_of_data_and_groups(sandbox: Sandbox) -> None:
    ran = sandbox.run("kafka-4.4", "--anomaly", "all", "--format", "json").end()
    assert_groups_suffer(ran, "classic, consumer")
    of_data = {one["topic"]: one["anomaly"] for one in ran.verdict["findings"] if one["topic"] != "__consumer_offsets"}
    assert sorted(set(of_data.values())) == sorted(DATA.split(","))
    assert len(of_data) == 6
    sandbox.wait_until_nothing_is_left()
