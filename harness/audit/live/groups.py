"""Consumer groups with committed offsets in partitions with findings, as far as this user may describe groups.

No request returns the groups of a partition: every broker lists the groups that it coordinates, and returns their
offsets in these partitions only. With thousands of groups not all of them are asked for their offsets.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from harness.audit.explain.impact import with_groups
from harness.audit.live.cluster import AuditedCluster
from harness.judge.finding import Place
from harness.judge.verdict import Verdict
from harness.kafka_api.client_requests import NO_OFFSET, fetch_offsets_of_groups, list_groups
from harness.kafka_api.connection import Connection

MOST_OFFSETS: Final = 200_000
"""The most offsets to ask one broker for, over all groups and partitions."""
OFFSETS_A_REQUEST: Final = 10_000
MOST_PARTITIONS: Final = 1_000


def add_groups(verdict: Verdict, cluster: AuditedCluster, leaders: Mapping[Place, int]) -> Verdict:
    """Add to each finding's impact the groups that consume its partition; nothing is asked without findings."""
    places = dict.fromkeys(finding.place for finding in verdict.findings)
    if not places:
        return verdict
    asked = list(islice(places, MOST_PARTITIONS))
    offsets, notes = _committed_offsets(cluster, asked)
    if len(asked) < len(places):
        notes.append(f"consumer groups are listed for {len(asked)} of {len(places)} partitions with findings")
    findings = [
        with_groups(finding, leaders.get(finding.place, -1), offsets.get(finding.place, {}))
        for finding in verdict.findings
    ]
    return replace(verdict, findings=tuple(findings), notes=(*(verdict.notes or ()), *notes))


def _committed_offsets(
    cluster: AuditedCluster, places: Collection[Place]
) -> tuple[dict[Place, dict[str, int]], list[str]]:
    """Return committed offsets by partition and group, and a sentence on each kind of missing answer."""
    most_groups = max(MOST_OFFSETS // len(places), 1)
    at_once = max(OFFSETS_A_REQUEST // len(places), 1)

    def ask(_broker: int, caller: Connection) -> tuple[dict[str, Mapping[Place, int | str]], int, int]:
        listed = sorted(caller.ask(list_groups()))
        asked = listed[:most_groups]
        answers: dict[str, Mapping[Place, int | str]] = {}
        for start in range(0, len(asked), at_once):
            groups = dict.fromkeys(asked[start : start + at_once], places)
            answers |= caller.ask(fetch_offsets_of_groups(groups, require_stable=False))
        return answers, len(asked) - len(answers), len(listed) - len(asked)

    by_broker, errors = cluster.client.ask_all(cluster.state.brokers, ask)
    notes = [f"the consumer groups of broker {broker} are unknown: {error}" for broker, error in errors.items()]
    if refused := sum(refused for _, refused, _ in by_broker.values()):
        notes.append(
            f"consumer groups that did not report their offsets (this user needs Describe on them): {refused:,}"
        )
    if left_out := sum(left_out for _, _, left_out in by_broker.values()):
        notes.append(f"consumer groups that were not asked for their offsets, as there are too many: {left_out:,}")
    offsets: dict[Place, dict[str, int]] = {}
    for answers, _, _ in by_broker.values():
        for group, committed in answers.items():
            for place, offset in committed.items():
                if isinstance(offset, int) and offset != NO_OFFSET:
                    offsets.setdefault(place, {})[group] = offset
    return offsets, notes
