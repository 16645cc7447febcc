"""Consumer groups on real brokers: what replicas of ``__consumer_offsets`` disagree about, and what groups suffer."""

from collections.abc import Mapping
from typing import Any

import pytest
from sandbox import DATA, Ran, Sandbox

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.schedules.catalog import scenarios_for
from harness.targets import find_target

BACK = ("tombstone-divergence", "visible")
FOUND = {
    "group-stuck-lso": ("stuck-lso", "visible"),
    "group-aborted-to-committed": ("aborted-to-committed", "visible"),
    "group-committed-to-aborted": ("committed-to-aborted", "latent"),
    **dict.fromkeys([f"group-{name}" for name in ("deleted", "input-recreated", "expired", "upgraded")], BACK),
}
CONSEQUENCES = {
    "group-stuck-lso": "got no record at all within",
    "group-aborted-to-committed": "skips offsets 10 to 59 of group-aborted-to-committed-input-0",
    "group-committed-to-aborted": None,
    "group-deleted": "offset 10 of group-deleted-input-0 is committed, which with broker 1 is deleted",
    "group-input-recreated": "skips offsets 0 to 39 of group-input-recreated-input-0",
    "group-expired": "skips offsets 0 to 9 of group-expired-input-0",
    "group-upgraded": "got no record at all within",
}
PROTOCOLS = {"kafka-3.9": "classic", "kafka-4.4": "classic, consumer"}


def found_on(target: str) -> dict[str, tuple[str, str]]:
    scenarios = scenarios_for("groups", find_target(target).group_protocols)
    return {scenario.name: FOUND[scenario.name] for scenario in scenarios}


def protocols_that_suffer(scenario: str, target: str, client: str) -> str:
    """Return the protocols whose members suffer.

    Java's consumers of the consumer protocol ask by the topic's id (seen of 4.3.1 and 4.4.0), and
    coordinators have no offset for the id of a topic that was created again (KIP-848).
    """
    has_ids = (scenario, target, client) == ("group-input-recreated", "kafka-4.4", "java")
    return "classic" if has_ids else PROTOCOLS[target]


def by_scenario(verdict: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    places = {(s["topic"], n): s["scenario"] for s in verdict["scenarios"] for n in s["partitions"]}
    named = [(places[one["topic"], one["partition"]], one) for one in verdict["findings"]]
    of_groups = [(name, one) for name, one in named if name in FOUND]
    assert len(of_groups) == len(dict(of_groups)), verdict["reason"]
    return dict(of_groups)


def assert_groups_suffer(ran: Ran, target: str, client: str = "librdkafka") -> None:
    assert ran.code == EXIT_ANOMALY, ran.output
    findings = by_scenario(ran.verdict)
    assert {name: (one["anomaly"], one["effect"]) for name, one in findings.items()} == found_on(target)
    assert {one["broker"] for one in findings.values()} == {2}
    for name, one in findings.items():
        text, actual = CONSEQUENCES[name], one.get("consequence", "")
        expected = [] if text is None else [text, f"({protocols_that_suffer(name, target, client)} protocol)"]
        assert all(one in actual for one in expected), actual
        assert bool(actual) is (text is not None)


@pytest.mark.parametrize(
    ("target", "nemesis", "client"),
    [("kafka-4.4", "kill", "librdkafka"), ("kafka-3.9", "join", "java"), ("kafka-4.4", "pause", "java")],
)
def test_groups_suffer_where_a_coordinator_was_away(sandbox: Sandbox, target: str, nemesis: str, client: str) -> None:
    chosen = ("--anomaly", "groups", "--nemesis", nemesis, "--client", client, "--format", "json")
    ran = sandbox.run(target, *chosen).end()
    assert_groups_suffer(ran, target, client)
    again = sandbox.call("check", str(sandbox.latest(target, "groups")), "--format", "json")
    assert again.verdict["findings"] == ran.verdict["findings"], "from the run folder alone"
    sandbox.wait_until_nothing_is_left()


@pytest.mark.parametrize("target", PROTOCOLS)
def test_groups_of_a_healthy_cluster_are_clean(sandbox: Sandbox, target: str) -> None:
    ran = sandbox.run(target, "--anomaly", "groups", "--nemesis", "none", "--format", "json").end(EXIT_CLEAN)
    names = dict.fromkeys(found_on(target), "clean")
    assert {one["scenario"]: one["verdict"] for one in ran.verdict["scenarios"]} == names
    sandbox.wait_until_nothing_is_left()


def test_all_has_topics_of_data_and_groups(sandbox: Sandbox) -> None:
    ran = sandbox.run("kafka-4.4", "--anomaly", "all", "--format", "json").end()
    assert_groups_suffer(ran, "kafka-4.4")
    of_data = {one["topic"]: one["anomaly"] for one in ran.verdict["findings"] if one["topic"] != "__consumer_offsets"}
    assert sorted(set(of_data.values())) == sorted(DATA.split(","))
    assert len(of_data) == 6
    sandbox.wait_until_nothing_is_left()
