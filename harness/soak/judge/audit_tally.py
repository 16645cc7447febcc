"""An audit's findings against the truth: who is accused rightly, wrongly, or for nothing, and what is not found."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.judge.finding import by_place
from harness.judge.verdict import CLEAN
from harness.schedules.catalog import Anomaly
from harness.soak.evidence.client_log import UNKNOWN
from harness.soak.judge.truth import STATE, STUCK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.finding import Finding
    from harness.judge.verdict import Verdict
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.judge.truth import Truth, Wrong

RIGHT, BY_LUCK, WRONG, EITHER = "right", "by luck", "wrong", "either"
NONE = 0
"""Transactions have numbers from 1 on."""


@dataclass(frozen=True)
class Tally:
    """How an audit did on one round. Counts are of partitions, but for those of accusations.

    ``missed``: diverged partitions without a finding, and whether their verdict is unknown or, worse, clean.
    ``wrong``: each wrong accusation, with the finding and with what every replica is wrong about. ``harmful``: likewise
    each finding whose commands have a replica copied anew from one that is wrong where it is right itself.
    """

    COUNTS: ClassVar = (
        "partitions", "diverged", "found", "called clean", "decided", "partly decided", "undecided",
        "right accusations", "right by luck", "wrong accusations", "either", "nothing wrong", "harmful copies",
    )  # fmt: skip

    counts: Mapping[str, int]
    missed: Sequence[Mapping[str, Any]]
    wrong: Sequence[Mapping[str, Any]]
    for_nothing: Sequence[Finding]
    harmful: Sequence[Mapping[str, Any]]


def tally(truth: Truth, verdict: Verdict) -> Tally:
    """Compare the findings of an audit with the truth."""
    findings, diverged = by_place(verdict.findings), truth.diverged
    judged = [(finding, judge(truth, finding)) for finding in verdict.findings if finding.decided]
    shares: dict[str, int] = defaultdict(int)
    for tp in diverged & findings.keys():
        decided = [finding.decided for finding in findings[tp]]
        shares["decided" if all(decided) else "partly decided" if any(decided) else "undecided"] += 1
    for_nothing = [
        finding
        for tp in findings.keys() - diverged
        for finding in findings[tp]
        if judge(truth, finding) not in {EITHER, BY_LUCK}
    ]
    verdicts = {(one.topic, one.partition): one.verdict for one in verdict.scenarios}
    harmful = [finding for finding in verdict.findings if _is_harmful(truth, finding)]
    counts = {
        "partitions": len({tp for _, tp in truth.wrongs}),
        "diverged": len(diverged),
        "found": len(diverged & findings.keys()),
        "called clean": sum(verdicts[tp] == CLEAN for tp in diverged),
        **{name: shares[name] for name in ("decided", "partly decided", "undecided")},
        "right accusations": sum(is_right == RIGHT for _, is_right in judged),
        "right by luck": sum(is_right == BY_LUCK for _, is_right in judged),
        "wrong accusations": sum(is_right == WRONG for _, is_right in judged),
        "either": sum(is_right == EITHER for _, is_right in judged),
        "nothing wrong": len({finding.place for finding in for_nothing}),
        "harmful copies": len(harmful),
    }
    return Tally(
        counts,
        [{"verdict": verdicts[tp], **_replicas(truth, tp)} for tp in sorted(diverged - findings.keys())],
        [{"finding": one, **_replicas(truth, one.place)} for one, is_right in judged if is_right == WRONG],
        for_nothing,
        [{"finding": finding, **_replicas(truth, finding.place)} for finding in harmful],
    )


def judge(truth: Truth, finding: Finding) -> str:
    """Return whether an accusation is right: the broker is wrong about that key's final state, or that transaction.

    ``either`` where no client can vouch for the key or the transaction, such as one of whose records no replica has any
    left and no client knows the offset. ``by luck`` where the broker did miss the
    marker of the transaction, and the one that it goes by says the same: it serves what is right. Brokers that a
    finding calls right must not be wrong about it; they may be wrong about something else of the partition.
    """
    tp, key = finding.place, None if finding.key is None else finding.key.decode("utf-8", "backslashreplace")
    write = truth.at.get((tp, finding.offset))
    transaction = NONE if write is None or write.transaction is None else write.transaction

    def is_wrong(broker: int) -> bool:
        return any(
            (wrong.kind == STATE and wrong.key == key)
            or wrong.offset == finding.offset
            or (wrong.transaction == transaction)
            or (
                wrong.kind == STUCK
                and finding.anomaly == Anomaly.STUCK_LSO
                and wrong.producer_id == finding.producer_id
            )
            for wrong in truth.wrongs.get((broker, tp), ())
        )

    if is_wrong(finding.broker) and not any(map(is_wrong, finding.right or ())):
        return RIGHT
    belief = truth.missed[finding.broker, tp].get(transaction)
    if belief is not None and truth.outcomes[transaction] != UNKNOWN:
        return BY_LUCK if belief == truth.outcomes[transaction] else RIGHT
    if write is None and key is None:
        return EITHER
    keys = {key, None if write is None else write.key}
    is_unknown = truth.outcomes.get(transaction) == UNKNOWN or any(
        (tp, one) in truth.unknown_keys for one in keys if one
    )
    return EITHER if is_unknown else WRONG


def copied_from(finding: Finding) -> int | None:
    """Return the broker that a finding's commands make the leader while the accused one is not among the replicas."""
    plans = [line.split("'")[1] for line in finding.commands or () if line.startswith("echo '")]
    orders = [partition["replicas"] for plan in plans for partition in json.loads(plan)["partitions"]]
    return next((order[0] for order in orders if finding.broker not in order), None)


def _is_harmful(truth: Truth, finding: Finding) -> bool:
    source, tp = copied_from(finding), finding.place
    if source is None:
        return False
    there, here = (
        {(wrong.kind, wrong.key, wrong.transaction) for wrong in truth.wrongs.get((broker, tp), ())}
        for broker in (source, finding.broker)
    )
    return not there <= here


def _replicas(truth: Truth, tp: TopicPartition) -> dict[str, Any]:
    wrongs: dict[int, tuple[Wrong, ...]] = {broker: w for (broker, place), w in truth.wrongs.items() if place == tp}
    return {
        "partition": f"{tp[0]}-{tp[1]}",
        "wrong about": {broker: [asdict(one) for one in about] for broker, about in sorted(wrongs.items())},
    }
