"""From disagreements to accusations: each finding of an audit names the wrong replica, or is undecided.

Checkers find disagreements between replicas, and describe one of the replicas. `checkers.attribution.blame` decides
which replicas are wrong about a disputed record, as far as a witness shows it. Here both become findings. A finding
that is proven or shown stays on the replica that is wrong. A finding that accuses a right replica moves to the wrong
ones. Each undecided dispute becomes one finding that lists what each replica serves.

Of several ``.txnindex`` spans of one aborted transaction, a witness that received every record shows which is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from checkers.attribution.blame import (
    DELETED,
    SUPERSEDED,
    DisputedRecord,
    KeyState,
    LastRecord,
    blame_state,
    blame_transaction,
    states_served,
)
from checkers.finding import LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.audit.explain.knowledge import brokers_text, place_of, rows_by_place
from harness.json_codec import to_json
from harness.judge.finding import Finding, ReplicaGroup, finding_of
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from checkers.attribution.blame import Blame
    from checkers.attribution.coverage import EpochCoverage
    from harness.audit.explain.knowledge import Knowledge
    from harness.judge.finding import CheckerRow, Place

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
    """States by disputed record, and the facts of all replicas.

    Both are rows: of `checkers.attribution.key_states`, and ``replicas``.
    """

    key_states: Mapping[tuple[Place, bytes, int], Mapping[int, CheckerRow]]
    replicas: Mapping[Place, Sequence[CheckerRow]]
    knowledge: Knowledge

    @classmethod
    def of(cls, key_states: Iterable[CheckerRow], replicas: Iterable[CheckerRow], knowledge: Knowledge) -> Disputes:
        """Sort the rows of one audit."""
        disputed: dict[tuple[Place, bytes, int], dict[int, CheckerRow]] = {}
        for row in key_states:
            disputed.setdefault((place_of(row), bytes(row["key"]), row["disputed"]), {})[row["broker"]] = row
        return cls(disputed, rows_by_place(replicas), knowledge)

    def states_of(self, place: Place, key: bytes, offset: int) -> list[KeyState]:
        """Return what every replica of the partition has to say of a key and a record."""
        rows = self.key_states.get((place, key, offset), {})
        return [
            _key_state(facts, rows.get(facts["broker"]))
            for facts in sorted(self.replicas.get(place, ()), key=lambda facts: facts["broker"])
        ]

    def has_transactions(self, place: Place) -> bool:
        """Whether any replica now has a transactional batch."""
        return any(facts["has_transactions"] for facts in self.replicas.get(place, ()))


def _key_state(facts: CheckerRow, row: CheckerRow | None) -> KeyState:
    if row is None:
        return KeyState(facts["broker"], facts["log_start"])
    last, at = row["last"], row["at"]
    return KeyState(
        facts["broker"],
        facts["log_start"],
        None if last is None else LastRecord(**last),
        None if at is None else DisputedRecord(**at),
        row["open_from"],
    )


def attribute(rows: Iterable[CheckerRow], disputes: Disputes) -> list[Finding]:
    """Return the findings of these checkers' rows, with the wrong replicas where they are decided.

    Sets ``decided``, ``decided_by``, ``assumptions``, ``right`` and ``disagree``.
    """
    findings: dict[tuple[object, ...], Finding] = {}
    undecided: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        finding = finding_of(row)
        states = _disputed_states(finding, finding.offset, disputes)
        decision = (_proven if row["proven"] else _decide)(finding, states, disputes)
        for broker in sorted(decision.wrong):
            _keep(findings, _decided(finding, broker, states, decision))
        if not decision.wrong:
            dispute = (finding.place, finding.key, finding.offset)
            undecided.setdefault(dispute, []).append(_undecided(finding, states, decision))
    for group in undecided.values():
        _keep(findings, _merged(group))
    return list(findings.values())


def _keep(findings: dict[tuple[object, ...], Finding], finding: Finding) -> None:
    """Keep the first finding of a place and name: findings that accused a right replica may have become the same."""
    identity = (finding.anomaly, finding.place, finding.broker, finding.offset, finding.producer_id, finding.key)
    findings.setdefault(identity, finding)


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
            coverage = disputes.knowledge.coverage_of(finding.place)
            right = _serving(None if is_deleted else at, at, finding, states, coverage)
            return DisputeDecision(accused, right - accused)
    return DisputeDecision(accused, _received_since(finding, disputes) - accused)


def _serving(
    alive_at: int | None, since: int, finding: Finding, states: Sequence[KeyState], coverage: EpochCoverage
) -> frozenset[int]:
    """Return the brokers that serve this, where it is right: no broker serves something else that may be later.

    That a value was overwritten proves that who serves it is wrong, and not what the key is now: where one of the
    others serves nothing, a delete may have been written later, and its tombstone removed everywhere. Then it takes
    complete replicas to say who is right.
    """
    others = [one for one in states if one.log_start <= since and (one.alive_at is None or one.alive_at >= since)]
    if all(one.alive_at == alive_at for one in others):
        return frozenset(one.broker for one in others)
    return blame_state(finding.offset, states, coverage).right


def _received_since(finding: Finding, disputes: Disputes) -> frozenset[int]:
    """Return the brokers that received every record since the one of the finding, by any replica that still has it."""
    states = [] if finding.key is None else disputes.states_of(finding.place, finding.key, finding.offset)
    epochs = {one.at.leader_epoch for one in states if one.at is not None}
    coverage = disputes.knowledge.coverage_of(finding.place)
    return frozenset(one.broker for one in states if epochs and coverage.received(one.broker, min(epochs)))


def _decide(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> DisputeDecision:
    """Decide who is wrong about a disputed record: by its transaction's outcome, else by the key's final state."""
    coverage, accused, witness = disputes.knowledge.coverage_of(finding.place), finding.broker, finding.witness
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
    if disputes.knowledge.is_without_transactions and finding.anomaly == DIVERGED:
        return DisputeDecision(frozenset({accused}), reasons=(NO_TRANSACTIONS,), assumptions=(NOT_LOST,))
    why = outcome.contradiction or state.contradiction or NO_WITNESS
    return DisputeDecision(frozenset(), reasons=(why,))


def _decision(blame: Blame, names: Mapping[int, tuple[str, ...]]) -> DisputeDecision:
    return DisputeDecision(frozenset(names), blame.right - frozenset(names), blame.reasons, blame.assumptions, names)


def _names(
    broker: int, states: Sequence[KeyState], state: Blame, finding: Finding, disputes: Disputes
) -> tuple[str, ...]:
    """Return the possible anomalies of a replica whose final state of a key is wrong; the likeliest first."""
    in_transaction = any(one.at is not None and one.at.transactional for one in states)
    has_transactions = in_transaction or disputes.has_transactions(finding.place)
    state_here = next(one for one in states if one.broker == broker)
    if state.truth in {DELETED, SUPERSEDED}:
        return (
            *([POISON] if finding.anomaly == POISON else []),
            DIVERGED,
            *([POISON] if in_transaction and finding.anomaly != POISON else []),
            *([HIDDEN] if has_transactions else []),
        )
    if state_here.alive_at is not None and isinstance(state.truth, int) and state_here.alive_at > state.truth:
        # Only an abort leaves an older value alive.
        return (POISON,) if in_transaction else (UNEXPLAINED_DIVERGENCE,)
    if state_here.alive_at is not None:
        return (HIDDEN,) if in_transaction else (UNEXPLAINED_DIVERGENCE,)
    return ((HIDDEN, POISON) if in_transaction else (POISON,)) if has_transactions else (UNEXPLAINED_DIVERGENCE,)


def _decided(finding: Finding, broker: int, states: Sequence[KeyState], decision: DisputeDecision) -> Finding:
    names = decision.names.get(broker, ())
    attributed = _attributed(finding, decision, _disagree(finding.offset, states))
    if broker == finding.broker:
        # Keep the checker's anomaly unless the decision rules it out.
        if names and finding.anomaly not in names and finding.anomaly != UNEXPLAINED_DIVERGENCE:
            return replace(attributed, anomaly=names[0], candidates=_candidates(names))
        candidates = [name for name in finding.candidates if name in names] if names else finding.candidates
        return replace(attributed, candidates=_candidates(candidates))
    serves = next(text for text, brokers in states_served(finding.offset, states).items() if broker in brokers)
    explanation = (
        f"key {_key_text(finding)}: this broker serves {serves}, and {_truth(decision, finding.offset, states)}"
    )
    return replace(
        attributed,
        anomaly=names[0],
        candidates=_candidates(names),
        broker=broker,
        explanation=explanation,
        witness={"described_on_broker": finding.broker, "disputed_at": finding.offset},
    )


def _attributed(finding: Finding, decision: DisputeDecision, disagree: tuple[ReplicaGroup, ...]) -> Finding:
    """Return a finding with the fields of a decision."""
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


def _truth(decision: DisputeDecision, offset: int, states: Sequence[KeyState]) -> str:
    """Describe what the right replicas serve."""
    groups = states_served(offset, [one for one in states if one.broker in decision.right])
    return "; ".join(f"{brokers_text(brokers)} rightly {_verb(brokers)} {text}" for text, brokers in groups.items())


def _undecided(finding: Finding, states: Sequence[KeyState], decision: DisputeDecision) -> Finding:
    """Return a finding that accuses no replica."""
    groups = _disagree(finding.offset, states)
    serves = "; ".join(f"{brokers_text(group.brokers)} {_verb(group.brokers)} {group.serves}" for group in groups)
    why = f"which replica is wrong is undecided: {'; '.join(decision.reasons)}"
    explanation = (
        f"key {_key_text(finding)}: {serves or 'replicas differ'}; {why}. If broker {finding.broker} is wrong: "
        f"{finding.explanation}"
    )
    return replace(_attributed(finding, decision, groups), explanation=explanation)


def _merged(findings: Sequence[Finding]) -> Finding:
    """Return one finding for all that describe the same dispute."""
    names = dict.fromkeys(name for finding in findings for name in finding.names)
    is_visible = any(finding.effect == VISIBLE for finding in findings)
    return replace(findings[0], candidates=_candidates(list(names)), effect=VISIBLE if is_visible else LATENT)


def _disagree(offset: int, states: Sequence[KeyState]) -> tuple[ReplicaGroup, ...]:
    served = states_served(offset, states)
    return tuple(ReplicaGroup(brokers=tuple(brokers), serves=text) for text, brokers in served.items())


def _verb(brokers: Sequence[int]) -> str:
    return "serve" if len(brokers) > 1 else "serves"


def _key_text(finding: Finding) -> str:
    if finding.record is not None and finding.record.key is not None:
        return f'"{finding.record.text}"'
    return "(no key)" if finding.key is None else next(iter(to_json(finding.key).values()))


def attribute_spans(rows: Iterable[CheckerRow], knowledge: Knowledge) -> tuple[list[Finding], list[CheckerRow]]:
    """Return findings, and the undecided rows of `checkers.consistency.txnindex_disagreement`.

    A replica whose span starts earlier than that of a witness has missed a marker in between: at that marker another
    transaction of the witness ends. Whether the other transaction was committed is no longer recorded, so the finding
    has candidates. A span that is shorter than the witness's belongs to a replica that copied a log after it was
    cleaned: legal.

    Only a witness that was not restarted since counts: a recovery after a crash rebuilds the index of a segment from
    what cleaning has left of it (`LogSegment.recover`).
    """
    findings: list[Finding] = []
    undecided: list[CheckerRow] = []
    for row in rows:
        reasons = _witness_reasons(row, knowledge.coverage_of(place_of(row)))
        starts = {span["first_offset"] for span in row["spans"] if span["broker"] in reasons}
        if len(starts) == 1:
            findings += _span_findings(row, reasons, starts.pop())
        else:
            undecided.append(row)
    return findings, undecided


def _witness_reasons(row: CheckerRow, coverage: EpochCoverage) -> dict[int, str]:
    """Return the proof that each broker received the whole span, by broker."""
    if row["leader_epoch"] is None:
        return {}
    proofs = {span["broker"]: coverage.received(span["broker"], row["leader_epoch"]) for span in row["spans"]}
    return {broker: proof.reason for broker, proof in proofs.items() if proof is not None and not proof.assumptions}


def _span_findings(row: CheckerRow, reasons: Mapping[int, str], start: int) -> Iterable[Finding]:
    witness, proof = min(reasons), tuple(f"broker {broker} {reason}" for broker, reason in reasons.items())
    for span in row["spans"]:
        if span["first_offset"] < start:
            finding = Finding(
                anomaly=UNEXPLAINED_DIVERGENCE,
                candidates=(UNEXPLAINED_DIVERGENCE, HIDDEN),
                broker=span["broker"],
                topic=row["topic"],
                partition=row["partition"],
                offset=span["first_offset"],
                key=None,
                producer_id=row["producer_id"],
                effect=LATENT,
                explanation=(
                    f"a marker of producer {row['producer_id']} is missing: this broker counts all that the producer "
                    f"wrote from offset {span['first_offset']} to {row['last_offset']} as one aborted transaction, and "
                    f"broker {witness}, which received every record, only from {start} on; none of its records is left"
                ),
                witness={
                    "span_here_from": span["first_offset"],
                    "span_to": row["last_offset"],
                    "other_broker": witness,
                    "span_there_from": start,
                },
            )
            decision = DisputeDecision(frozenset({span["broker"]}), frozenset(reasons), proof)
            yield _attributed(finding, decision, ())
