"""Decide from evidence which of the replicas that disagree is wrong.

The logs alone may prove that a finding's replica is wrong (``proven``). Else the decision needs a complete replica,
which provably received every relevant record in its present log (see `coverage`). The belief of a complete replica is
right, as the replay of a log without missing records gives the outcomes as they were written:

* **of a transaction**: the replica has the disputed record, and received every record from there to the marker that
  ended the transaction;
* **of a key's final state**: the replica received every record from its last record of the key on, whether that record
  is before or after the disputed one; or, where it has no record at or after the disputed record, from that record on.

Complete replicas that contradict each other decide nothing, and neither does the number of replicas that agree, nor a
marker in the next producer epoch: in transactions v2 it is the record's own marker, but a restarted v1 producer also
has a higher epoch, and then the marker may belong to the producer's next transaction.
Does not verify: that logs were not tampered with; the assumptions of a `coverage.Proof`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.attribution.coverage import EpochCoverage, Proof
from checkers.evidence.tables import PARTITION, REPLICA, colocated, place_of
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from checkers.replay.judged import Judged

ProvenTruth: TypeAlias = int | str
"""For a transaction: its outcome. For a key: the offset of its value, `DELETED`, or `SUPERSEDED`."""
DELETED = "deleted"
"""The last committed record of the key is a delete."""
SUPERSEDED = "superseded"
"""The disputed value was deleted or aborted, and no later value exists. An older value may be alive."""


@dataclass(frozen=True)
class LastRecord:
    """The last record of a key that a replica believes committed."""

    offset: int
    tombstone: bool
    leader_epoch: int


@dataclass(frozen=True)
class DisputedRecord:
    """A replica's belief about a disputed record; the last field is the leader epoch of the marker after it, if any."""

    belief: str
    transactional: bool
    leader_epoch: int
    decided_in_leader_epoch: int | None


@dataclass(frozen=True)
class KeyState:
    """One replica's state of a key and of a disputed record of that key; see `key_states`.

    ``goes_on``: the key has a record at or beyond the bound, because of which a cleaner may have removed all others.
    """

    broker: int
    log_start: int
    last: LastRecord | None = None
    at: DisputedRecord | None = None
    open_from: int | None = None
    goes_on: bool = False

    @property
    def alive_at(self) -> int | None:
        """The offset of the value that this replica serves for the key."""
        return None if self.last is None or self.last.tombstone else self.last.offset


def disputed_records(findings: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return run, topic, partition, key, offset of each disputed record of these rows of `finding.findings`.

    A finding disputes the record at its offset and, where a tombstone is missing, the tombstone.
    """
    disputed = set()
    for row in findings:
        if row["key"] is not None:
            place = (*place_of(row), bytes(row["key"]))
            deleted_at = json.loads(row["witness"]).get("deleted_at")
            disputed |= {(*place, offset) for offset in (row["offset"], deleted_at) if offset is not None}
    return sorted(disputed)


def key_states(judged: Judged, disputed: list[tuple[Any, ...]]) -> DataFrame:
    """Return REPLICA, key, ``disputed`` (an offset), ``last``, ``at``, ``open_from``, ``goes_on``, of all with the key.

    ``last``: the last record of the key that the replica believes committed (fields of `LastRecord`). ``at``: its
    belief about the disputed record, null where it has no such record (fields of `DisputedRecord`).
    ``open_from``: its first record of the key in an open transaction. ``goes_on``: see `KeyState`.
    """
    schema = "run string, topic string, partition int, key binary, disputed long"
    records = judged.records.sparkSession.createDataFrame(disputed, schema)
    last = f.struct("offset", "tombstone", "leader_epoch")
    at = f.struct("belief", "transactional", "leader_epoch", "decided_in_leader_epoch")
    assert judged.replica_only is not None  # noqa: S101  (only audits dispute records)
    going_on = judged.replica_only.later.withColumn("goes_on", f.lit(True))
    return (
        colocated(judged.records)
        .join(colocated(records), ["key", *PARTITION])
        .groupBy("key", "disputed", *REPLICA)
        .agg(
            f.max(f.when(f.col("belief") == COMMITTED, last)).alias("last"),
            f.first(f.when(f.col("offset") == f.col("disputed"), at), ignorenulls=True).alias("at"),
            f.min(f.when(f.col("belief") == OPEN, f.col("offset"))).alias("open_from"),
        )
        .join(colocated(going_on), ["key", *PARTITION], "left")
        .withColumn("goes_on", f.coalesce("goes_on", f.lit(False)))
    )


@dataclass(frozen=True)
class Blame:
    """The ``truth`` where evidence shows it, and the brokers that are ``wrong`` and ``right`` about it.

    ``reasons``: the evidence, in sentences; ``contradiction``: why complete replicas decide nothing.
    """

    truth: ProvenTruth | None = None
    wrong: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    contradiction: str | None = None


class _Claim(NamedTuple):
    truth: ProvenTruth
    broker: int
    proof: Proof


def blame_transaction(states: Sequence[KeyState], coverage: EpochCoverage) -> Blame:
    """Decide the outcome of a disputed record's transaction, and which replicas believe another outcome."""
    claims = []
    for state in states:
        at = state.at
        if at is None or at.belief == OPEN or at.decided_in_leader_epoch is None:
            continue
        if proof := coverage.received(state.broker, at.leader_epoch, at.decided_in_leader_epoch):
            claims.append(_Claim(at.belief, state.broker, proof))
    beliefs = {state.broker: state.at.belief for state in states if state.at is not None and state.at.belief != OPEN}
    truths: set[ProvenTruth] = {claim.truth for claim in claims}
    return _blame(claims, {broker: {belief == truth for truth in truths} for broker, belief in beliefs.items()}, truths)


def blame_state(offset: int, states: Sequence[KeyState], coverage: EpochCoverage) -> Blame:
    """Decide a key's final state, where the record at this offset is disputed, and which replicas have a wrong one."""
    covering = [state for state in states if state.log_start <= offset and state.open_from is None]
    disputed_in = min((state.at.leader_epoch for state in states if state.at is not None), default=None)
    claims = []
    for state in covering:
        last = state.last
        if last is not None and (proof := coverage.received(state.broker, last.leader_epoch)):
            claims.append(_Claim(DELETED if last.tombstone else last.offset, state.broker, proof))
        elif (
            (last is None or last.offset < offset)
            and not state.goes_on
            and disputed_in is not None
            and (proof := coverage.received(state.broker, disputed_in))
        ):
            claims.append(_Claim(SUPERSEDED, state.broker, proof))
    truths = {claim.truth for claim in claims}
    # DELETED, or a value's offset, is more specific than SUPERSEDED.
    shown = truths - {SUPERSEDED} or truths
    verdicts = {state.broker: {_is_right(state, truth, offset) for truth in shown} for state in covering}
    return _blame(claims, verdicts, shown)


def _is_right(state: KeyState, truth: ProvenTruth, offset: int) -> bool | None:
    """Return whether a replica's final state of the key is right; None where evidence does not decide."""
    if truth == SUPERSEDED:
        return False if state.alive_at is not None and state.alive_at >= offset else None
    if isinstance(truth, int) and (truth < state.log_start or (state.last is None and state.goes_on)):
        return None
    return state.alive_at is None if truth == DELETED else state.alive_at == truth


def _blame(claims: Sequence[_Claim], verdicts: Mapping[int, set[bool | None]], truths: set[ProvenTruth]) -> Blame:
    """Combine the claims of complete replicas; ``verdicts``: whether each broker is right by each of the truths."""
    if not claims:
        return Blame()
    reasons = tuple(f"broker {claim.broker} {claim.proof.reason}" for claim in claims)
    complete = frozenset(claim.broker for claim in claims)
    wrong = frozenset(broker for broker, verdict in verdicts.items() if verdict == {False})
    if len(truths) > 1 or wrong & complete:
        return Blame(contradiction=f"replicas that received every record differ ({'; '.join(reasons)})")
    right = frozenset(broker for broker, verdict in verdicts.items() if verdict == {True})
    # One complete replica without assumptions is enough.
    assumptions = min((claim.proof.assumptions for claim in claims), key=len)
    return Blame(next(iter(truths)), wrong, right | complete, reasons, assumptions)


def states_served(offset: int, states: Iterable[KeyState]) -> dict[str, list[int]]:
    """Return the brokers by the state that they serve for a key, as a phrase; the offset is the disputed record's."""
    groups: dict[str, list[int]] = {}
    for state in states:
        if state.last is not None:
            served = f"{'a delete at' if state.last.tombstone else 'the value of'} offset {state.last.offset}"
        else:
            served = "nothing" if state.log_start <= offset else f"nothing (its log starts at {state.log_start})"
        if state.open_from is not None:
            served += f", with offset {state.open_from} in an open transaction"
        elif state.at is not None and state.at.belief == ABORTED:
            served += f", with offset {offset} believed aborted"
        groups.setdefault(served, []).append(state.broker)
    return groups
