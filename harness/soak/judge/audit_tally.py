"""The findings of an audit, compared with the truth: right, wrong and unfounded accusations, and missed partitions."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.judge.finding import Finding, by_place, name_of
from harness.judge.verdict import CLEAN, Verdict
from harness.kafka_api import TopicPartition
from harness.schedules.catalog import Anomaly
from harness.soak.evidence.client_log import UNKNOWN
from harness.soak.judge.truth import STATE, STUCK, Truth

RIGHT, BY_LUCK, WRONG, EITHER = "right", "by luck", "wrong", "either"


@dataclass(frozen=True)
class Tally:
    """The success of an audit on a round. Counts are of partitions, except the counts of accusations.

    ``missed``: diverged partitions without a finding, and whether their verdict is unknown or, worse, clean.
    ``wrong``: each wrong accusation, with the finding and with what every replica is wrong about. ``harmful``: likewise
    each finding whose commands have a replica copied again from one that is wrong where it is right itself.
    """

    counts: Mapping[str, int]
    missed: Sequence[Mapping[str, Any]]
    wrong: Sequence[Mapping[str, Any]]
    for_nothing: Sequence[Finding]
    harmful: Sequence[Mapping[str, Any]]


def tally(truth: Truth, verdict: Verdict) -> Tally:
    """Compare the findings of an audit with the truth."""
    findings, diverged = by_place(verdict.findings), truth.diverged
    verdicts = {(scenario.topic, scenario.partition): scenario.verdict for scenario in verdict.scenarios}
    judged = [(finding, judge(truth, finding)) for finding in verdict.findings if finding.decided]
    accusations = Counter(result for _, result in judged)
    decided = [{finding.decided for finding in findings[tp]} for tp in diverged & findings.keys()]
    for_nothing = [
        finding
        for tp in findings.keys() - diverged
        for finding in findings[tp]
        if judge(truth, finding) not in {EITHER, BY_LUCK}
    ]
    wrong = [finding for finding, result in judged if result == WRONG]
    harmful = [finding for finding in verdict.findings if _is_harmful(truth, finding)]
    counts = {
        "partitions": len({tp for _, tp in truth.wrongs}),
        "diverged": len(diverged),
        "found": len(decided),
        "called clean": sum(verdicts[tp] == CLEAN for tp in diverged),
        "decided": decided.count({True}),
        "partly decided": decided.count({True, False}),
        "undecided": decided.count({False}),
        "right accusations": accusations[RIGHT],
        "right by luck": accusations[BY_LUCK],
        "wrong accusations": accusations[WRONG],
        "either": accusations[EITHER],
        "nothing wrong": len({finding.place for finding in for_nothing}),
        "harmful copies": len(harmful),
    }

    def replicas(tp: TopicPartition) -> dict[str, Any]:
        wrongs = {broker: wrongs for (broker, place), wrongs in sorted(truth.wrongs.items()) if place == tp}
        return {"partition": name_of(tp), "wrong about": {b: list(map(asdict, wrongs[b])) for b in wrongs}}

    return Tally(
        counts,
        [{"verdict": verdicts[tp], **replicas(tp)} for tp in sorted(diverged - findings.keys())],
        [{"finding": finding, **replicas(finding.place)} for finding in wrong],
        for_nothing,
        [{"finding": finding, **replicas(finding.place)} for finding in harmful],
    )


def judge(truth: Truth, finding: Finding) -> str:
    """Return whether an accusation is right: the broker is wrong about that key's final state, or that transaction.

    ``either`` where no client can vouch for the key or the transaction, such as a transaction of which no replica has
    a record and no client knows an offset. ``by luck`` where the broker missed the marker of the transaction, and the
    marker that ends it there has the same outcome: it serves the right records. Brokers that a finding calls right must
    not be wrong about it; they may be wrong about something else of the partition.
    """
    tp, key = finding.place, None if finding.key is None else finding.key.decode("utf-8", "backslashreplace")
    write = truth.at.get((tp, finding.offset))
    transaction = 0 if write is None or write.transaction is None else write.transaction  # they have numbers from 1 on
    is_stuck = finding.anomaly == Anomaly.STUCK_LSO

    def is_wrong(broker: int) -> bool:
        return any(
            (wrong.kind == STATE and wrong.key == key)
            or wrong.offset == finding.offset
            or wrong.transaction == transaction
            or (is_stuck and (wrong.kind, wrong.producer_id) == (STUCK, finding.producer_id))
            for wrong in truth.wrongs.get((broker, tp), ())
        )

    if is_wrong(finding.broker) and not any(map(is_wrong, finding.right or ())):
        return RIGHT
    belief = truth.missed[finding.broker, tp].get(transaction)
    outcome = truth.transactions[transaction].outcome if transaction in truth.transactions else None
    if belief is not None and outcome != UNKNOWN:
        return BY_LUCK if belief == outcome else RIGHT
    if write is None and key is None:
        return EITHER
    keys = {key, None if write is None else write.key}
    return EITHER if outcome == UNKNOWN or any((tp, name) in truth.unknown_keys for name in keys) else WRONG


def _is_harmful(truth: Truth, finding: Finding) -> bool:
    """Return whether the finding's commands copy a replica from a leader with errors that it does not have."""
    plans = [line.split("'")[1] for line in finding.commands or () if line.startswith("echo '")]
    orders = [partition["replicas"] for plan in plans for partition in json.loads(plan)["partitions"]]
    source = next((order[0] for order in orders if finding.broker not in order), finding.broker)
    there, here = (
        {(wrong.kind, wrong.key, wrong.transaction) for wrong in truth.wrongs.get((broker, finding.place), ())}
        for broker in (source, finding.broker)
    )
    return not there <= here
