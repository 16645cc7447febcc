"""Which consumer groups a finding concerns: by their committed offsets, and as far as the user may describe groups."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from test_audit_summary import audit, finding

from harness.audit.explain import impact
from harness.audit.explain.impact import add_groups, with_groups
from harness.judge.finding import Finding, InternalRecord, Place
from harness.judge.verdict import Verdict

OTHER: Place = ("t", 1)
OFFSETS = {"before": 3, "billing": 5, "search": 5, "past": 9}
FROZEN = (
    "groups billing, search are stuck; group before stops there;"
    " group past is past it, without further records if read_committed"
)
CONSUME = "groups before, billing, past and 1 more consume it"
IN_OFFSETS = InternalRecord(topic_kind="k", text="", type="offset-commit", key={"group": "a\x1b", "topic": "t"})
OF_MEMBER = replace(IN_OFFSETS, type="ConsumerGroupMemberMetadata", key={"group_id": "b", "member_id": "m"})


@pytest.mark.parametrize(("facts", "leader", "expected"), [
    ({}, 2, FROZEN),
    ({"anomaly": "hanging-transaction", "broker": 1}, 2, FROZEN),
    ({}, 1, CONSUME),
    ({"decided": False}, 2, CONSUME),
    ({"anomaly": "tombstone-divergence"}, 2,
     "groups before, billing, search have yet to pass it; group past has passed it"),
    ({"anomaly": "committed-to-aborted", "effect": "latent"}, 2, CONSUME),
    ({"topic": "__consumer_offsets", "record": IN_OFFSETS}, 2, "it concerns group a\\x1b"),
    ({"topic": "__consumer_offsets", "record": OF_MEMBER}, 2, "it concerns group b"),
])  # fmt: skip
def test_groups_are_named_by_what_they_get(facts: dict[str, Any], leader: int, expected: str) -> None:
    assert with_groups(finding(impact="before", **facts), leader, OFFSETS).impact == f"before; {expected}"


def test_nothing_is_added_without_groups_or_an_impact() -> None:
    assert with_groups(finding(impact="so"), 2, {}).impact == "so"
    assert with_groups(finding(), 2, OFFSETS).impact is None
    assert with_groups(finding(impact="so", topic="__consumer_offsets"), 2, OFFSETS).impact == "so"


def of(*places: Place) -> Verdict:
    findings: list[Finding] = [finding(number, topic=topic, impact="so") for topic, number in places]
    return audit(findings=tuple(findings), notes=("earlier",))


def broker(**more: Any) -> FakeBroker:
    return FakeBroker({TP: [Held(9, 5)]}, **more)


def test_every_coordinator_is_asked_for_the_partitions_with_findings_only() -> None:
    brokers = {1: broker(groups={"b": {TP: 5}, "silent": {OTHER: 1}}), 2: broker(groups={"a": {TP: 5}})}
    verdict = add_groups(of(TP), audited(brokers), {TP: 2})
    assert [result.impact for result in verdict.findings] == ["so; groups a, b are stuck"]
    assert verdict.notes == ("earlier",)
    (request,) = brokers[1].named("OffsetFetch")
    assert [[(t.name, t.partition_indexes) for t in group.topics] for group in request.groups] == [[("t", [0])]] * 2


def test_nothing_is_asked_without_findings_and_what_is_not_permitted_is_a_note() -> None:
    brokers = {1: broker(groups={"a": {TP: 5}, "secret": None}), 2: broker(listing_error=30), 3: broker(dies_after=0)}
    assert add_groups(audit(), audited(brokers), {}) == audit()
    assert not any(fake.asked for fake in brokers.values())
    verdict = add_groups(of(TP), audited(brokers), {TP: 2})
    assert [result.impact for result in verdict.findings] == ["so; group a is stuck"]
    assert verdict.notes == (
        "earlier",
        "the consumer groups of broker 2 are unknown: groups cannot be listed: GroupAuthorizationFailedError",
        "the consumer groups of broker 3 are unknown: gone",
        "consumer groups that did not report their offsets (this user needs Describe, or they were moved): 1",
    )


def test_groups_and_partitions_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact, "MOST_OFFSETS", 4)
    monkeypatch.setattr(impact, "OFFSETS_A_REQUEST", 2)
    monkeypatch.setattr(impact, "MOST_PARTITIONS", 1)
    fake = broker(groups={f"g{number}": {TP: 5} for number in range(6)})
    verdict = add_groups(of(TP, OTHER), audited({1: fake}), {TP: 2, OTHER: 2})
    assert [len(request.groups) for request in fake.named("OffsetFetch")] == [2, 2]
    assert verdict.findings[1].impact == "so"
    assert (verdict.notes or ())[1:] == (
        "consumer groups that were not asked for their offsets, as there are too many: 2",
        "consumer groups are listed for 1 of 2 partitions with findings",
    )
