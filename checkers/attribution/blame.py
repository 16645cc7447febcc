"""Which replica is wrong where replicas disagree, decided only by evidence.

A finding says that replicas disagree. The logs alone may prove that its replica is wrong (``proven``). Else the
decision needs a complete replica: one that provably received every relevant record, in its present log (see
`coverage`). The belief of a complete replica is right, as the replay of a log in which no record is missing gives the
outcomes as they were written:

* **of a transaction**: the replica holds the disputed record, and received every record from there to the marker that
  ended the transaction;
* **of a key's final state**: the replica received every record from its last record of the key on, whether that record
  is before or after the disputed one; or, where it has no record at or after the disputed record, from that record on.

Complete replicas that contradict each other decide nothing. How many replicas agree is no evidence: this is not a vote.

A marker in the next producer epoch decides nothing by itself: in transactions v2 it is the record's own marker, but a
restarted v1 producer also has a higher epoch, and then the marker may be that of the producer's next transaction.

Does not verify: that logs were not tampered with, and what a `coverage.Proof` names as an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from checkers.replay.batch_outcomes import ABORTED, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from checkers.attribution.coverage import Coverage, Proof

Truth: TypeAlias = "int | str"
"""For a transaction: its outcome. For a key: the offset of its value, `DELETED`, or `SUPERSEDED`."""
DELETED = "deleted"
"""The last committed record of the key is a delete."""
SUPERSEDED = "superseded"
"""The disputed value is not the key's last one, and no later value is: the disputed value was deleted or aborted. An
older value may be alive."""


@dataclass(frozen=True)
class Last:
    """The last record of a key that a replica believes committed."""

    offset: int
    tombstone: bool
    leader_epoch: int


@dataclass(frozen=True)
class At:
    """A replica's belief about a disputed record; the last field is the leader epoch of the deciding marker."""

    belief: str
    tombstone: bool
    transactional: bool
    leader_epoch: int
    decided_in_leader_epoch: int | None


@dataclass(frozen=True)
class KeyState:
    """One replica's state of a key and of a disputed record of that key; see `checkers.attribution.key_states`."""

    broker: int
    log_start: int
    last: Last | None = None
    at: At | None = None
    open_from: int | None = None

    @property
    def alive_at(self) -> int | None:
        """The offset of the value that this replica serves for the key."""
        return None if self.last is None or self.last.tombstone else self.last.offset


@dataclass(frozen=True)
class Blame:
    """``truth`` where evidence shows it, and the brokers that are shown to be ``wrong`` and ``right`` about it.

    ``reasons``: the evidence, each a sentence; ``contradiction``: why complete replicas decide nothing.
    """

    truth: Truth | None = None
    wrong: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    contradiction: str | None = None


@dataclass(frozen=True)
class _Claim:
    truth: Truth
    broker: int
    proof: Proof


def blame_transaction(states: Sequence[KeyState], coverage: Coverage) -> Blame:
    """Decide the outcome of a disputed record's transaction, and which replicas believe another outcome."""
    claims = []
    for one in states:
        at = one.at
        if at is None or not at.transactional or at.belief == OPEN or at.decided_in_leader_epoch is None:
            continue
        if proof := coverage.received(one.broker, at.leader_epoch, at.decided_in_leader_epoch):
            claims.append(_Claim(at.belief, one.broker, proof))
    beliefs = {one.broker: one.at.belief for one in states if one.at is not None and one.at.belief != OPEN}
    truths: set[Truth] = {claim.truth for claim in claims}
    return _blame(claims, {broker: {belief == truth for truth in truths} for broker, belief in beliefs.items()}, truths)


def blame_state(offset: int, states: Sequence[KeyState], coverage: Coverage) -> Blame:
    """Decide a key's final state, where a record at this offset is disputed, and which replicas have another one."""
    covering = [one for one in states if one.log_start <= offset and one.open_from is None]
    disputed_in = min((one.at.leader_epoch for one in states if one.at is not None), default=None)
    claims = []
    for one in covering:
        proof = None if one.last is None else coverage.received(one.broker, one.last.leader_epoch)
        if one.last is not None and proof is not None:
            claims.append(_Claim(DELETED if one.last.tombstone else one.last.offset, one.broker, proof))
        elif (one.last is None or one.last.offset < offset) and disputed_in is not None:
            proof = coverage.received(one.broker, disputed_in)
            claims += [] if proof is None else [_Claim(SUPERSEDED, one.broker, proof)]
    truths = {claim.truth for claim in claims}
    # DELETED, or an older value's offset, is more specific than SUPERSEDED.
    has_specific = any(truth == DELETED or (isinstance(truth, int) and truth < offset) for truth in truths)
    shown = truths - {SUPERSEDED} if has_specific else truths
    return _blame(claims, {one.broker: {_is_right(one, truth, offset) for truth in shown} for one in covering}, shown)


def _is_right(one: KeyState, truth: Truth, offset: int) -> bool | None:
    """Whether a replica's final state of the key is the true one; None where evidence does not decide."""
    if truth == SUPERSEDED:
        return False if one.alive_at is not None and one.alive_at >= offset else None
    if isinstance(truth, int) and truth < one.log_start:
        return None
    return one.alive_at is None if truth == DELETED else one.alive_at == truth


def _blame(claims: Sequence[_Claim], verdicts: Mapping[int, set[bool | None]], truths: set[Truth]) -> Blame:
    """Combine the claims of complete replicas; ``verdicts``: by broker, whether it is right by each of the truths."""
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
    """Return the brokers by the state that they serve for a key, a phrase; the record at this offset is disputed."""
    groups: dict[str, list[int]] = {}
    for one in states:
        groups.setdefault(_state_served(offset, one), []).append(one.broker)
    return groups


def _state_served(offset: int, one: KeyState) -> str:
    if one.last is not None:
        state = f"{'a delete at' if one.last.tombstone else 'the value of'} offset {one.last.offset}"
    else:
        state = "nothing" if one.log_start <= offset else f"nothing (its log starts at {one.log_start})"
    if one.open_from is not None:
        return f"{state}, with offset {one.open_from} in an open transaction"
    if one.at is not None and one.at.belief == ABORTED:
        return f"{state}, with offset {offset} taken for aborted"
    return state
