"""Audits of a cluster whose groups have diverged: brokers of a run that found every payload of groups and was kept."""

from collections.abc import Mapping
from typing import Any

from kept import Kept, kept_clusters
from sandbox import Sandbox
from test_groups import FOUND

from harness.errors import EXIT_ANOMALY

OFFSETS = "__consumer_offsets"
SHOWN: dict[str, dict[tuple[int, ...], Any]] = {
    "group-stuck-lso": {(2,): "pending"},
    "group-aborted-to-committed": {(1, 3): 10, (2,): 60},
    "group-deleted": {(1, 3): None, (2,): 10},
}
"""The replicas' answers for the group of a scenario: the committed offset, or that an offset stays pending."""


kept = kept_clusters("groups", "kafka-4.4", "kafka-3.9")


def by_scenario(kept: Kept, verdict: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the findings of an audit by the scenario that made them."""
    scenarios = {(s["topic"], n): s["scenario"] for s in kept.verdict["scenarios"] for n in s["partitions"]}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in verdict["findings"]:
        found.setdefault(scenarios[one["topic"], one["partition"]], []).append(one)
    return found


def assert_groups_are_shown(found: Mapping[str, list[Mapping[str, Any]]]) -> None:
    for scenario, states in SHOWN.items():
        (one,) = found[scenario]
        assert FOUND[scenario][0] in (one["anomaly"], *one["candidates"])
        assert one["explanation"].startswith(f"group {scenario}-")
        shown = {
            tuple(state["brokers"]): "pending" if state["pending"] else state["committed_offset"]
            for state in one["record"]["states"]
        }
        assert {brokers: shown.get(brokers) for brokers in states} == states, one
    assert found.keys() <= FOUND.keys()
    of_groups = [one for group in found.values() for one in group]
    # A transaction has no separate key.
    assert all("key" in one["record"] for one in of_groups if one["key"] is not None)
    assert not any("\\x00" in one["explanation"] for one in of_groups)


def test_a_live_audit_says_what_groups_get_and_who_coordinates_them(kept: Kept, sandbox: Sandbox) -> None:
    source = ("--bootstrap-server", kept.bootstrap, "--topic", OFFSETS)
    live = sandbox.call("audit", "live", *source, "--format", "json", code=EXIT_ANOMALY)
    found = by_scenario(kept, live.verdict)
    assert_groups_are_shown(found)
    assert {one["broker"] for group in found.values() for one in group if one["decided"]} == {2}, live.output
    records = [one["record"] for group in found.values() for one in group if "record" in one]
    # The run's last look was at the coordinator that was down.
    assert {one["coordinator"]["broker"] for one in records} == {2}
    assert "wrong" in {one["coordinator"]["is"] for one in records}
    assert all(one["coordinator"]["text"].startswith("coordinator of group ") for one in records)
    sandbox.wait_until_nothing_is_left()


def test_an_audit_of_disks_without_a_topic_decides_and_commits_the_right_offset(kept: Kept, sandbox: Sandbox) -> None:
    brokers = [word for broker, log_dir in kept.log_dirs.items() for word in ("--broker", f"{broker}={log_dir}")]
    disk = sandbox.call("audit", "disk", *brokers, "--format", "json", code=EXIT_ANOMALY)
    (note,) = (note for note in disk.verdict["notes"] if note.startswith("every compacted topic is audited, by the m"))
    assert f" {OFFSETS}" in note
    found = by_scenario(kept, {"findings": [one for one in disk.verdict["findings"] if one["topic"] == OFFSETS]})
    assert_groups_are_shown(found)
    (aborted,) = found["group-aborted-to-committed"]
    assert (aborted["anomaly"], aborted["broker"], aborted["right"]) == ("aborted-to-committed", 2, [1, 3])
    assert "--reset-offsets --to-offset 10 --execute" in aborted["record"]["commit"]
    assert "skips offsets 10 to 59" in aborted["record"]["consumers"]
    assert aborted["record"]["coordinator"]["text"].endswith("at the end of the metadata log: broker 2 (diverged)")
    sandbox.wait_until_nothing_is_left()
