"""From disagreements to accusations: each finding of an audit names the wrong replica, or is undecided.

Checkers describe one of the replicas that disagree, and `checkers.attribution.blame` decides which replicas are wrong,
as far as a witness shows it. A finding that accuses a right replica moves to the wrong ones. Each undecided dispute
becomes one finding that lists what each replica serves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

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
from checkers.attribution.coverage import EpochCoverage
from checkers.finding import LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.json_codec import to_json
from harness.judge.finding import CheckerRow, Finding, Place, ReplicaGroup, brokers_text, by_place, finding_of, place_of
from harness.schedules.catalog import Anomaly

STUCK, DIVERGED = str(Anomaly.STUCK_LSO), str(Anomaly.TOMBSTONE_DIVERGENCE)
POISON, HIDDEN = str(Anomaly.ABORTED_TO_COMMITTED), str(Anomaly.COMMITTED_TO_ABORTED)
BELIEVED_OUTCOME = {POISON: COMMITTED, HIDDEN: ABORTED}
"""The outcome that an accused replica assigns to the disputed record's transaction."""
NO_WITNESS = "no replica is shown to have received every record since then"

Decision: TypeAlias = tuple[Blame, Mapping[int, tuple[str, ...]]]
"""Who is wrong in a dispute, and the anomalies of a wrong broker. Of an undecided dispute, ``reasons`` has why."""


@dataclass(frozen=True)
class Disputes:
    """States by disputed record (rows of `checkers.attribution.blame.key_states`), and the rows of all ``replicas``."""

    key_states: Mapping[tuple[Place, bytes, int], Mapping[int, CheckerRow]]
    replicas: Mapping[Place, Sequence[CheckerRow]]
    evidence: MetadataEvidence

    @classmethod
    def of(
        cls, key_states: Iterable[CheckerRow], replicas: Iterable[CheckerRow], evidence: MetadataEvidence
    ) -> "Disputes":
        """Sort the rows of one audit."""
        disputed: dict[tuple[Place, bytes, int], dict[int, CheckerRow]] = {}
        for row in key_states:
            disputed.setdefault((place_of(row), bytes(row["key"]), row["disputed"]), {})[row["broker"]] = row
        return cls(disputed, by_place(replicas), evidence)

    def states_of(self, finding: Finding, offset: int) -> list[KeyState]:
        """Return every replica's state of a finding's key and of a record; nothing without a key."""
        rows = {} if finding.key is None else self.key_states.get((finding.place, finding.key, offset), {})
        replicas = () if finding.key is None else self.replicas.get(finding.place, ())
        states = []
        goes_on = any(row.get("goes_on") for row in rows.values())
        for facts in sorted(replicas, key=lambda facts: facts["broker"]):
            row = rows.get(facts["broker"], {})
            last, at = row.get("last"), row.get("at")
            states.append(
                KeyState(
                    facts["broker"],
                    facts["log_start"],
                    None if last is None else LastRecord(**last),
                    None if at is None else DisputedRecord(**at),
                    row.get("open_from"),
                    goes_on,
                )
            )
        return states

    def show_transactions(self, finding: Finding) -> bool:
        """Return whether any replica of a finding's partition has a transactional batch."""
        return any(facts["has_transactions"] for facts in self.replicas.get(finding.place, ()))


def attribute(rows: Iterable[CheckerRow], disputes: Disputes) -> list[Finding]:
    """Return the findings of these checkers' rows, with the wrong replicas where they are decided.

    Sets ``decided``, ``decided_by``, ``assumptions``, ``right`` and ``disagree``.
    """
    findings: list[Finding] = []
    undecided: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        finding = finding_of(row)
        states = _disputed_states(finding, finding.offset, disputes)
        blame, names = (_proven if row["proven"] else _decide)(finding, states, disputes)
        findings += [_decided(finding, broker, states, blame, names.get(broker, ())) for broker in sorted(blame.wrong)]
        if not blame.wrong:
            dispute = (finding.place, finding.key, finding.offset)
            undecided.setdefault(dispute, []).append(_undecided(finding, states, blame))
    # Findings that accused a right replica may have become the same: the first of a place and name stays.
    distinct: dict[tuple[object, ...], Finding] = {}
    for finding in (*findings, *map(_merged, undecided.values())):
        identity = (finding.anomaly, finding.place, finding.broker, finding.offset, finding.producer_id, finding.key)
        distinct.setdefault(identity, finding)
    return list(distinct.values())


def _disputed_states(finding: Finding, offset: int, disputes: Disputes) -> list[KeyState]:
    """Return the states of a finding's key; none where the finding is not about the served state of a key."""
    return [] if finding.anomaly == STUCK else disputes.states_of(finding, offset)


def _proven(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> Decision:
    """Return the decision, with the right brokers, where the logs alone prove that a replica is wrong."""
    coverage, witness, accused = disputes.evidence.coverage_of(finding.place), finding.witness, {finding.broker}
    for name, is_deleted in (("deleted_at", True), ("last_committed_at", False)):
        if (at := witness.get(name)) is not None:
            right = _serving(None if is_deleted else at, at, finding, states, coverage)
            break
    else:
        # Those that received every record since the finding's record, by any replica that still has it.
        every = disputes.states_of(finding, finding.offset)
        epochs = {state.at.leader_epoch for state in every if state.at is not None}
        right = frozenset(state.broker for state in every if epochs and coverage.received(state.broker, min(epochs)))
    return Blame(wrong=frozenset(accused), right=right - accused), {}


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


def _decide(finding: Finding, states: Sequence[KeyState], disputes: Disputes) -> Decision:
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
    has_only_deletes = disputes.evidence.is_without_transactions and not disputes.show_transactions(finding)
    if finding.anomaly == DIVERGED and has_only_deletes:
        why = "the cluster has no __transaction_state, so only a delete removes a value"
        return Blame(
            wrong=frozenset({accused}), reasons=(why,), assumptions=("no replica lost records in another way",)
        ), {}
    why = outcome.contradiction or state.contradiction or f"{NO_WITNESS}: {_missing(finding, states, disputes)}"
    return Blame(reasons=(why,)), {}


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
        # A replica with every record does not show which state is right either:
        silent = f"and its log starts at offset {state.log_start}"
        if state.open_from is not None:
            silent = f"with offset {state.open_from} in an open transaction"
        gap = coverage.gap(state.broker, min(epochs)) or f"received every record, {silent}"
        brokers_by_gap.setdefault(gap, []).append(state.broker)
    return "; ".join(f"{brokers_text(brokers)}: {gap}" for gap, brokers in brokers_by_gap.items())


def _decision(blame: Blame, names: Mapping[int, tuple[str, ...]]) -> Decision:
    return replace(blame, wrong=frozenset(names), right=blame.right - frozenset(names)), names


def _names(
    broker: int, states: Sequence[KeyState], state: Blame, finding: Finding, disputes: Disputes
) -> tuple[str, ...]:
    """Return the possible anomalies of a replica whose final state of a key is wrong; the likeliest first."""
    in_transaction = any(other.at is not None and other.at.transactional for other in states)
    has_transactions = in_transaction or disputes.show_transactions(finding)
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


def _decided(
    finding: Finding, broker: int, states: Sequence[KeyState], blame: Blame, names: tuple[str, ...]
) -> Finding:
    groups = _disagree(finding.offset, states)
    attributed = _attributed(finding, blame, groups)
    if broker == finding.broker:
        # Keep the checker's anomaly unless the decision rules it out.
        if names and finding.anomaly not in names and finding.anomaly != UNEXPLAINED_DIVERGENCE:
            return replace(attributed, anomaly=names[0], candidates=_candidates(names))
        candidates = [name for name in finding.candidates if name in names] if names else finding.candidates
        return replace(attributed, candidates=_candidates(candidates))
    served = next(group.serves for group in groups if broker in group.brokers)
    right = _disagree(finding.offset, [state for state in states if state.broker in blame.right])
    explanation = f"key {_key_text(finding)}: this broker serves {served}, and {_serves_text(right, 'rightly ')}"
    return replace(
        attributed,
        anomaly=names[0],
        candidates=_candidates(names),
        broker=broker,
        explanation=explanation,
        witness={"described_on_broker": finding.broker, "disputed_at": finding.offset},
    )


def _attributed(finding: Finding, blame: Blame, disagree: tuple[ReplicaGroup, ...]) -> Finding:
    return replace(
        finding,
        decided=bool(blame.wrong),
        decided_by=blame.reasons if blame.wrong else (),
        assumptions=blame.assumptions,
        right=tuple(sorted(blame.right)),
        disagree=disagree,
    )


def _candidates(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if len(names) > 1 else ()


def _undecided(finding: Finding, states: Sequence[KeyState], blame: Blame) -> Finding:
    groups = _disagree(finding.offset, states)
    explanation = (
        f"key {_key_text(finding)}: {_serves_text(groups) or 'replicas differ'}; cannot tell which replica is wrong:"
        f" {'; '.join(blame.reasons)}. If broker {finding.broker} is wrong: {finding.explanation}"
    )
    return replace(_attributed(finding, blame, groups), explanation=explanation)


def _merged(findings: Sequence[Finding]) -> Finding:
    names = dict.fromkeys(name for finding in findings for name in finding.names)
    effect = VISIBLE if any(finding.effect == VISIBLE for finding in findings) else LATENT
    return replace(findings[0], candidates=_candidates(list(names)), effect=effect)


def _disagree(offset: int, states: Sequence[KeyState]) -> tuple[ReplicaGroup, ...]:
    served = states_served(offset, states)
    return tuple(ReplicaGroup(brokers=tuple(brokers), serves=text) for text, brokers in served.items())


def _serves_text(groups: Sequence[ReplicaGroup], adverb: str = "") -> str:
    verbs = ("serves", "serve")
    return "; ".join(f"{brokers_text(g.brokers)} {adverb}{verbs[len(g.brokers) > 1]} {g.serves}" for g in groups)


def _key_text(finding: Finding) -> str:
    if finding.record is not None and finding.record.key is not None:
        return f'"{finding.record.text}"'
    return "(no key)" if finding.key is None else next(iter(to_json(finding.key).values()))


def attribute_spans(rows: Iterable[CheckerRow], evidence: MetadataEvidence) -> tuple[list[Finding], list[CheckerRow]]:
    """Return findings, and the undecided rows of `side_files.compare_spans`.

    A replica whose span starts earlier than the span of a witness has missed a marker in between, which ends another
    transaction of the witness; whether that was committed is no longer recorded. A span that is shorter than the
    witness's belongs to a replica that copied a log after it was cleaned: legal.

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
            yield _attributed(finding, Blame(None, frozenset({broker}), frozenset(reasons), proof), ())
