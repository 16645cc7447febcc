"""From disagreements to accusations: each finding of an audit names the wrong replica, or is undecided.

Checkers find disagreements between replicas, and describe one of the replicas. `checkers.attribution.blame` decides
which replicas are wrong about a disputed record, as far as a witness shows it. Here both become findings. A finding
that is proven or shown stays on the replica that is wrong. A finding that accuses a right replica moves to the wrong
ones. Each undecided dispute becomes one finding that lists what each replica serves.

Of several ``.txnindex`` spans of one aborted transaction, a witness that received every record shows which is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from checkers.attribution.blame import (
    DELETED,
    SUPERSEDED,
    Blame,
    DisputedRecord,
    KeyState,
    LastRecord,
    blame_state,
    blame_transaction,
    states_served,
)
from checkers.finding import LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.json_codec import to_json
from harness.judge.finding import CheckerRow, Finding, Place, ReplicaGroup, brokers_text, by_place, finding_of, place_of
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from checkers.attribution.coverage import EpochCoverage
    from harness.audit.explain.metadata_evidence import MetadataEvidence

STUCK = str(Anomaly.STUCK_LSO)
DIVERGED = str(Anomaly.TOMBSTONE_DIVERGENCE)
POISON = str(Anomaly.ABORTED_TO_COMMITTED)
HIDDEN = str(Anomaly.COMMITTED_TO_ABORTED)

BELIEVED_OUTCOME = {POISON: COMMITTED, HIDDEN: ABORTED}
"""The outcome that an accused replica assigns to the disputed record's transaction."""
NO_WITNESS = "no replica is shown to have received every record since then"
NO_TRANSACTIONS = "the cluster has no __transaction_state, so only a delete removes a value"
NOT_LOST = "no replica lost records in another way"


@dataclass(frozen=True)
class DisputeDecision:
    """The brokers that are ``wrong`` in a dispute; empty where it is undecided, and then ``reasons`` has why."""

    wrong: frozenset[int]
    right: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Disputes:
    """States by disputed record (rows of `checkers.attribution.blame.key_states`), and the rows of all ``replicas``."""

    key_states: Mapping[tuple[Place, bytes, int], Mapping[int, CheckerRow]]
    replicas: Mapping[Place, Sequence[CheckerRow]]
    evidence: MetadataEvidence

    @classmethod
    def of(
        cls, key_states: Iterable[CheckerRow], replicas: Iterable[CheckerRow], evidence: MetadataEvidence
    ) -> Disputes:
        """Sort the rows of one audit."""
        disputed: dict[tuple[Place, bytes, int], dict[int, CheckerRow]] = {}
        for row in key_states:
            disputed.setdefault((place_of(row), bytes(row["key"]), row["disputed"]), {})[row["broker"]] = row
        return cls(disputed, by_place(replicas), evidence)

    def states_of(self, place: Place, key: bytes, offset: int) -> list[KeyState]:
        """Return every replica's state of a key and of a record."""
        rows = self.key_states.get((place, key, offset), {})
        states = []
        for facts in sorted(self.replicas.get(place, ()), key=lambda facts: facts["broker"]):
            row = rows.get(facts["broker"], {})
            last, at = row.get("last"), row.get("at")
            states.append(
                KeyState(
                    facts["broker"],
                    facts["log_start"],
                    None if last is None else LastRecord(**last),
                    None if at is None else DisputedRecord(**at),
                    row.get("open_from"),
                )
            )
        return states


def attribute(rows: Iterable[CheckerRow], disputes: Disputes) -> list[Finding]:
    """Return the findings of these checkers' rows, with the wrong replicas where they are decided.

    Sets ``decided``, ``decided_by``, ``assumptions``, ``right`` and ``disagree``.
    """
    findings: list[Finding] = []
    undecided: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        finding = finding_of(row)
        states = _disputed_states(finding, finding.offset, disputes)
        decision = (_proven if row["proven"] else _decide)(finding, states, disputes)
        findings += [_decided(finding, broker, states, decision) for broker in sorted(decision.wrong)]
        if not decision.wrong:
            dispute = (finding.place, finding.key, finding.offset)
            undecided.setdefault(dispute, []).append(_undecided(finding, states, decision))
    # Findings that accused a right replica may have become the same: the first of a place and name stays.
    distinct: dict[tuple[object, ...], Finding] = {}
    for finding in (*findings, *map(_merged, undecided.values())):
        identity = (finding.anomaly, finding.place, finding.broker, finding.offset, finding.producer_id, finding.key)
        distinct.setdefault(identity, finding)
    return list(distinct.values())


def _disputed_states(finding: Finding, offset: int, disputes: Disputes) -> list[KeyState]:
    """Return the states of a finding's key; none where the finding is not about the served state of a key."""
    if finding.key is None or finding.anomaly == STUCK:
        return []
    return disputes.states_of(finding.place, finding.key, offset)


def _proven(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> DisputeDecision:
    """Return the decision, with the right brokers, where the logs alone prove that a replica is wrong."""
    witness, accused = finding.witness, frozenset({finding.broker})
    for name, is_deleted in (("deleted_at", True), ("last_committed_at", False)):
        if (at := witness.get(name)) is not None:
            coverage = disputes.evidence.coverage_of(finding.place)
            right = _serving(None if is_deleted else at, at, finding, states, coverage)
            return DisputeDecision(accused, right - accused)
    return DisputeDecision(accused, _received_since(finding, disputes) - accused)


def _serving(
    alive_at: int | None, since: int, finding: Finding, states: Sequence[KeyState], coverage: EpochCoverage
) -> frozenset[int]:
    """Return the brokers that serve this value, where it is right: no broker serves another value that may be later.

    An overwritten value proves that a replica which serves it is wrong, and does not show the key's current value:
    where one of the others serves nothing, a delete may have been written later, and its tombstone removed everywhere.
    Then only complete replicas show which replica is right.
    """
    others = [
        state for state in states if state.log_start <= since and (state.alive_at is None or state.alive_at >= since)
    ]
    if all(state.alive_at == alive_at for state in others):
        return frozenset(state.broker for state in others)
    return blame_state(finding.offset, states, coverage).right


def _received_since(finding: Finding, disputes: Disputes) -> frozenset[int]:
    """Return the brokers that received every record since the finding's record, by any replica that still has it."""
    states = [] if finding.key is None else disputes.states_of(finding.place, finding.key, finding.offset)
    epochs = {state.at.leader_epoch for state in states if state.at is not None}
    coverage = disputes.evidence.coverage_of(finding.place)
    return frozenset(state.broker for state in states if epochs and coverage.received(state.broker, min(epochs)))


def _decide(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> DisputeDecision:
    """Decide who is wrong about a disputed record: by its transaction's outcome, else by the key's final state."""
    coverage, accused, witness = disputes.evidence.coverage_of(finding.place), finding.broker, finding.witness
    believed = witness.get("believed_here") or BELIEVED_OUTCOME.get(finding.anomaly)
    outcome = blame_transaction(states, coverage)
    state = blame_state(finding.offset, states, coverage)
    if finding.anomaly == DIVERGED and witness.get("deleted_at") is not None:
        deleted = blame_transaction(_disputed_states(finding, witness["deleted_at"], disputes), coverage)
        if deleted.truth == COMMITTED:
            return _decision(deleted, {accused: (DIVERGED, HIDDEN)})
        if deleted.truth == ABORTED and deleted.wrong:
            return _decision(deleted, dict.fromkeys(deleted.wrong, (POISON,)))
    elif believed is not None and outcome.truth is not None:
        names = (POISON,) if outcome.truth == ABORTED else (HIDDEN,)
        wrong = outcome.wrong | (frozenset() if outcome.truth == believed else frozenset({accused}))
        if wrong:
            return _decision(outcome, dict.fromkeys(wrong, names))
    if accused in state.wrong | state.right and state.wrong:
        return _decision(state, {broker: _names(broker, states, state, finding, disputes) for broker in state.wrong})
    if disputes.evidence.is_without_transactions and finding.anomaly == DIVERGED:
        return DisputeDecision(frozenset({accused}), reasons=(NO_TRANSACTIONS,), assumptions=(NOT_LOST,))
    why = outcome.contradiction or state.contradiction or f"{NO_WITNESS}: {_missing(finding, states, disputes)}"
    return DisputeDecision(frozenset(), reasons=(why,))


def _missing(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> str:
    """Return which evidence is missing for a decision, and why."""
    if disputes.evidence.lacking:
        return disputes.evidence.lacking
    epochs = [state.at.leader_epoch for state in states if state.at is not None]
    if not epochs:
        return "no replica has the disputed record any more, which would show its leader epoch"
    coverage = disputes.evidence.coverage_of(finding.place)
    brokers_by_gap: dict[str, list[int]] = {}
    for state in states:
        brokers_by_gap.setdefault(coverage.gap(state.broker, min(epochs)) or _silence(state), []).append(state.broker)
    return "; ".join(f"{brokers_text(brokers)}: {gap}" for gap, brokers in brokers_by_gap.items())


def _silence(state: KeyState) -> str:
    """Return why the state of a replica with every record does not show which state is right."""
    if state.open_from is not None:
        return f"received every record, with offset {state.open_from} in an open transaction"
    return f"received every record, and its log starts at offset {state.log_start}"


def _decision(blame: Blame, names: Mapping[int, tuple[str, ...]]) -> DisputeDecision:
    return DisputeDecision(frozenset(names), blame.right - frozenset(names), blame.reasons, blame.assumptions, names)


def _names(
    broker: int, states: Sequence[KeyState], state: Blame, finding: Finding, disputes: Disputes
) -> tuple[str, ...]:
    """Return the possible anomalies of a replica whose final state of a key is wrong; the likeliest first."""
    in_transaction = any(other.at is not None and other.at.transactional for other in states)
    facts_of_replicas = disputes.replicas.get(finding.place, ())
    has_transactions = in_transaction or any(facts["has_transactions"] for facts in facts_of_replicas)
    if state.truth in {DELETED, SUPERSEDED}:
        is_poison = finding.anomaly == POISON
        later = [POISON] if in_transaction and not is_poison else []
        return *([POISON] if is_poison else []), DIVERGED, *later, *([HIDDEN] if has_transactions else [])
    alive_at = next(other.alive_at for other in states if other.broker == broker)
    if alive_at is None:
        names = (HIDDEN, POISON) if in_transaction else (POISON,)
        return names if has_transactions else (UNEXPLAINED_DIVERGENCE,)
    # Only an abort leaves an older value alive.
    is_newer_alive = isinstance(state.truth, int) and alive_at > state.truth
    return (POISON if is_newer_alive else HIDDEN,) if in_transaction else (UNEXPLAINED_DIVERGENCE,)


def _decided(finding: Finding, broker: int, states: Sequence[KeyState], decision: DisputeDecision) -> Finding:
    names, groups = decision.names.get(broker, ()), _disagree(finding.offset, states)
    attributed = _attributed(finding, decision, groups)
    if broker == finding.broker:
        # Keep the checker's anomaly unless the decision rules it out.
        if names and finding.anomaly not in names and finding.anomaly != UNEXPLAINED_DIVERGENCE:
            return replace(attributed, anomaly=names[0], candidates=_candidates(names))
        candidates = [name for name in finding.candidates if name in names] if names else finding.candidates
        return replace(attributed, candidates=_candidates(candidates))
    served = next(group.serves for group in groups if broker in group.brokers)
    right = _disagree(finding.offset, [state for state in states if state.broker in decision.right])
    explanation = f"key {_key_text(finding)}: this broker serves {served}, and {_serves_text(right, 'rightly ')}"
    return replace(
        attributed,
        anomaly=names[0],
        candidates=_candidates(names),
        broker=broker,
        explanation=explanation,
        witness={"described_on_broker": finding.broker, "disputed_at": finding.offset},
    )


def _attributed(finding: Finding, decision: DisputeDecision, disagree: tuple[ReplicaGroup, ...]) -> Finding:
    return replace(
        finding,
        decided=bool(decision.wrong),
        decided_by=tuple(decision.reasons) if decision.wrong else (),
        assumptions=tuple(decision.assumptions),
        right=tuple(sorted(decision.right)),
        disagree=disagree,
    )


def _candidates(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if len(names) > 1 else ()


def _undecided(finding: Finding, states: Sequence[KeyState], decision: DisputeDecision) -> Finding:
    groups = _disagree(finding.offset, states)
    why = f"cannot tell which replica is wrong: {'; '.join(decision.reasons)}"
    explanation = (
        f"key {_key_text(finding)}: {_serves_text(groups) or 'replicas differ'}; {why}. If broker {finding.broker} is "
        f"wrong: {finding.explanation}"
    )
    return replace(_attributed(finding, decision, groups), explanation=explanation)


def _merged(findings: Sequence[Finding]) -> Finding:
    names = dict.fromkeys(name for finding in findings for name in finding.names)
    is_visible = any(finding.effect == VISIBLE for finding in findings)
    return replace(findings[0], candidates=_candidates(list(names)), effect=VISIBLE if is_visible else LATENT)


def _disagree(offset: int, states: Sequence[KeyState]) -> tuple[ReplicaGroup, ...]:
    served = states_served(offset, states)
    return tuple(ReplicaGroup(brokers=tuple(brokers), serves=text) for text, brokers in served.items())


def _serves_text(groups: Sequence[ReplicaGroup], adverb: str = "") -> str:
    verbs = ("serve" if len(group.brokers) > 1 else "serves" for group in groups)
    phrases = zip(groups, verbs, strict=True)
    return "; ".join(f"{brokers_text(group.brokers)} {adverb}{verb} {group.serves}" for group, verb in phrases)


def _key_text(finding: Finding) -> str:
    if finding.record is not None and finding.record.key is not None:
        return f'"{finding.record.text}"'
    return "(no key)" if finding.key is None else next(iter(to_json(finding.key).values()))


def attribute_spans(rows: Iterable[CheckerRow], evidence: MetadataEvidence) -> tuple[list[Finding], list[CheckerRow]]:
    """Return findings, and the undecided rows of `side_files.compare_spans`.

    A replica whose span starts earlier than the span of a witness has missed a marker in between, which ends another
    transaction of the witness. Whether the other transaction was committed is no longer recorded, so the finding
    has candidates. A span that is shorter than the witness's belongs to a replica that copied a log after it was
    cleaned: legal.

    Only a witness that was not restarted since counts: a recovery after a crash rebuilds the index of a segment from
    the records that cleaning has left (`LogSegment.recover`).
    """
    findings: list[Finding] = []
    undecided: list[CheckerRow] = []
    for row in rows:
        coverage, epoch = evidence.coverage_of(place_of(row)), row["leader_epoch"]
        brokers = [] if epoch is None else [span["broker"] for span in row["spans"]]
        proofs = {broker: proof for broker in brokers if (proof := coverage.received(broker, epoch)) is not None}
        reasons = {broker: proof.reason for broker, proof in proofs.items() if not proof.assumptions}
        starts = {span["first_offset"] for span in row["spans"] if span["broker"] in reasons}
        if len(starts) == 1:
            findings += _span_findings(row, reasons, starts.pop())
        else:
            undecided.append(row)
    return findings, undecided


def _span_findings(row: CheckerRow, reasons: Mapping[int, str], start: int) -> Iterable[Finding]:
    witness, proof = min(reasons), tuple(f"broker {broker} {reason}" for broker, reason in reasons.items())
    producer_id, end = row["producer_id"], row["last_offset"]
    for broker, first in ((span["broker"], span["first_offset"]) for span in row["spans"]):
        if first < start:
            finding = Finding(
                anomaly=UNEXPLAINED_DIVERGENCE,
                candidates=(UNEXPLAINED_DIVERGENCE, HIDDEN),
                broker=broker,
                topic=row["topic"],
                partition=row["partition"],
                offset=first,
                key=None,
                producer_id=producer_id,
                effect=LATENT,
                explanation=(
                    f"a marker of producer {producer_id} is missing: this broker counts all that the producer wrote "
                    f"from offset {first} to {end} as one aborted transaction, and broker {witness}, which received "
                    f"every record, only from {start} on; none of its records is left"
                ),
                witness={
                    "span_here_from": first, "span_to": end, "other_broker": witness, "span_there_from": start,
                },
            )  # fmt: skip
            yield _attributed(finding, DisputeDecision(frozenset({broker}), frozenset(reasons), proof), ())
