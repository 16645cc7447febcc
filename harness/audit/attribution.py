"""From disagreements to accusations: each finding of an audit says who is wrong, or that it is not decided.

Checkers find where replicas disagree, and describe one of them. `checkers.attribution.blame` tells who is wrong about
a disputed record, as far as a witness shows it. Here both become findings: what is proven or shown stays on the
replica that is wrong, what accuses a replica that is right goes to those that are wrong, and what nothing decides is
one finding that says what each replica serves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from checkers.attribution.blame import (
    DELETED,
    SUPERSEDED,
    At,
    KeyState,
    Last,
    blame_state,
    blame_transaction,
    states_served,
)
from checkers.attribution.coverage import Coverage
from checkers.finding import LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.judge.verdict import finding_of
from harness.plan.scenario import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from checkers.attribution.blame import Blame
    from harness.audit.knowledge import Knowledge

Row: TypeAlias = "dict[str, Any]"
Place: TypeAlias = "tuple[str, int]"

STUCK = str(Anomaly.STUCK_LSO)
DIVERGED = str(Anomaly.TOMBSTONE_DIVERGENCE)
POISON = str(Anomaly.ABORTED_TO_COMMITTED)
HIDDEN = str(Anomaly.COMMITTED_TO_ABORTED)

BELIEVED = {POISON: COMMITTED, HIDDEN: ABORTED}
"""What an accused replica takes the disputed record for."""
NO_WITNESS = "no replica is shown to have received every record since then"
NO_TRANSACTIONS = "the cluster has no __transaction_state, so nothing but a delete removes a value"
NOT_LOST = "no replica lost records in another way"


@dataclass(frozen=True)
class Decision:
    """Which brokers are ``wrong`` in a dispute; none where it is undecided, and then ``reasons`` say why it is."""

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

    key_states: Mapping[tuple[Place, bytes, int], Mapping[int, Row]]
    replicas: Mapping[Place, Sequence[Row]]
    knowledge: Knowledge

    @classmethod
    def of(cls, key_states: Iterable[Row], replicas: Iterable[Row], knowledge: Knowledge) -> Disputes:
        """Sort the rows of one audit."""
        disputed: dict[tuple[Place, bytes, int], dict[int, Row]] = {}
        for row in key_states:
            place = (row["topic"], row["partition"])
            disputed.setdefault((place, bytes(row["key"]), row["disputed"]), {})[row["broker"]] = row
        facts: dict[Place, list[Row]] = {}
        for row in replicas:
            facts.setdefault((row["topic"], row["partition"]), []).append(row)
        return cls(disputed, facts, knowledge)

    def about(self, place: Place, key: bytes, offset: int) -> list[KeyState]:
        """Return what every replica of the partition has to say of a key and a record."""
        rows = self.key_states.get((place, key, offset), {})
        return [
            _key_state(facts, rows.get(facts["broker"]))
            for facts in sorted(self.replicas.get(place, ()), key=lambda facts: facts["broker"])
        ]

    def coverage(self, place: Place) -> Coverage:
        """Return what is known of the partition's leaders."""
        return self.knowledge.coverage.get(place, Coverage())

    def has_transactions(self, place: Place) -> bool:
        """Whether any replica shows a transactional batch, now."""
        return any(facts["has_transactions"] for facts in self.replicas.get(place, ()))


def _key_state(facts: Row, row: Row | None) -> KeyState:
    if row is None:
        return KeyState(facts["broker"], facts["log_start"])
    last, at = row["last"], row["at"]
    return KeyState(
        facts["broker"],
        facts["log_start"],
        None if last is None else Last(**last),
        None if at is None else At(**at),
        row["open_from"],
    )


def attribute(rows: Iterable[Row], disputes: Disputes) -> list[Row]:
    """Return the findings of these rows of checkers, with who is wrong where that is decided.

    Adds ``decided``; of what is disputed ``decided_by`` and ``assumptions`` (sentences), ``right`` (brokers that are
    shown to be right) and ``disagree`` (``brokers``, ``serves``).
    """
    found: dict[tuple[Any, ...], Row] = {}
    undecided: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        finding = finding_of(row)
        about = _about(row, row["offset"], disputes)
        decision = (_proven if row["proven"] else _decide)(row, finding, about, disputes)
        for broker in sorted(decision.wrong):
            _keep(found, _decided(finding, broker, about, decision))
        if not decision.wrong:
            dispute = (*_place(row), str(finding["key"]), row["offset"])
            undecided.setdefault(dispute, []).append(_undecided(finding, about, decision))
    for group in undecided.values():
        _keep(found, _merged(group))
    return list(found.values())


def _keep(found: dict[tuple[Any, ...], Row], finding: Row) -> None:
    """Keep the first finding of its place and name: those that accuse a right replica become the same one."""
    names = ("anomaly", "topic", "partition", "broker", "offset", "producer_id")
    found.setdefault((*(finding[name] for name in names), str(finding["key"])), finding)


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]


def _about(row: Row, offset: int, disputes: Disputes) -> list[KeyState]:
    """Return the states of a finding's key; none where the finding is not about what is served for it."""
    if row["key"] is None or row["anomaly"] == STUCK:
        return []
    return disputes.about(_place(row), bytes(row["key"]), offset)


def _proven(row: Row, finding: Row, about: Sequence[KeyState], disputes: Disputes) -> Decision:
    """Return who is right, too, where the logs alone prove that a replica is wrong."""
    witness, accused = finding["witness"], frozenset({row["broker"]})
    if witness.get("deleted_at") is not None:
        right = frozenset(one.broker for one in about if one.alive_at is None)
        return Decision(accused, right - accused)
    if witness.get("last_committed_at") is not None:
        right = frozenset(one.broker for one in about if one.alive_at == witness["last_committed_at"])
        return Decision(accused, right - accused)
    return Decision(accused, _received_since(row, disputes) - accused)


def _received_since(row: Row, disputes: Disputes) -> frozenset[int]:
    """Return the brokers that received every record since the one that a finding is about, whoever has it still."""
    states = [] if row["key"] is None else disputes.about(_place(row), bytes(row["key"]), row["offset"])
    epochs = {one.at.leader_epoch for one in states if one.at is not None}
    coverage = disputes.coverage(_place(row))
    return frozenset(one.broker for one in states if epochs and coverage.received(one.broker, min(epochs)))


def _decide(row: Row, finding: Row, about: Sequence[KeyState], disputes: Disputes) -> Decision:
    """Decide who is wrong about a disputed record: by its transaction's outcome, else by the key's final state."""
    coverage, accused, witness = disputes.coverage(_place(row)), row["broker"], finding["witness"]
    believed = witness.get("believed_here") or BELIEVED.get(row["anomaly"])
    outcome = blame_transaction(about, coverage)
    state = blame_state(row["offset"], about, coverage)
    if row["anomaly"] == DIVERGED and witness.get("deleted_at") is not None:
        deleted = blame_transaction(_about(row, witness["deleted_at"], disputes), coverage)
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
        return _decision(state, {broker: _names(broker, about, state, row, disputes) for broker in state.wrong})
    if disputes.knowledge.is_without_transactions and row["anomaly"] == DIVERGED:
        return Decision(frozenset({accused}), reasons=(NO_TRANSACTIONS,), assumptions=(NOT_LOST,))
    why = outcome.contradiction or state.contradiction or NO_WITNESS
    return Decision(frozenset(), reasons=(why,))


def _decision(blame: Blame, names: Mapping[int, tuple[str, ...]]) -> Decision:
    return Decision(frozenset(names), blame.right - frozenset(names), blame.reasons, blame.assumptions, names)


def _names(broker: int, about: Sequence[KeyState], state: Blame, row: Row, disputes: Disputes) -> tuple[str, ...]:
    """Return what can have happened to a replica whose final state of a key is wrong; the likeliest first."""
    in_transaction = any(one.at is not None and one.at.transactional for one in about)
    has_transactions = in_transaction or disputes.has_transactions(_place(row))
    here = next(one for one in about if one.broker == broker)
    if state.truth in {DELETED, SUPERSEDED}:
        return (
            *([POISON] if row["anomaly"] == POISON else []),
            DIVERGED,
            *([POISON] if in_transaction and row["anomaly"] != POISON else []),
            *([HIDDEN] if has_transactions else []),
        )
    if here.alive_at is not None:
        return (HIDDEN,) if in_transaction else (UNEXPLAINED_DIVERGENCE,)
    return ((HIDDEN, POISON) if in_transaction else (POISON,)) if has_transactions else (UNEXPLAINED_DIVERGENCE,)


def _decided(finding: Row, broker: int, about: Sequence[KeyState], decision: Decision) -> Row:
    names = decision.names.get(broker, ())
    shown = {
        "decided": True,
        "decided_by": list(decision.reasons),
        "assumptions": list(decision.assumptions),
        "right": sorted(decision.right),
        "disagree": _disagree(finding["offset"], about),
    }
    if broker == finding["broker"]:
        # The checker's own name stays, unless it cannot be.
        if names and finding["anomaly"] not in names and finding["anomaly"] != UNEXPLAINED_DIVERGENCE:
            return {**finding, **shown, "anomaly": names[0], "candidates": _candidates(names)}
        kept = [name for name in finding["candidates"] if name in names] if names else finding["candidates"]
        return {**finding, **shown, "candidates": _candidates(kept)}
    serves = next(text for text, brokers in states_served(finding["offset"], about).items() if broker in brokers)
    explanation = f"key {_text(finding)}: this broker serves {serves}, and {_truth(decision, finding['offset'], about)}"
    return {
        **finding,
        **shown,
        "anomaly": names[0],
        "candidates": _candidates(names),
        "broker": broker,
        "explanation": explanation,
        "witness": {"described_on_broker": finding["broker"], "disputed_at": finding["offset"]},
    }


def _candidates(names: Sequence[str]) -> list[str]:
    return list(names) if len(names) > 1 else []


def _truth(decision: Decision, offset: int, about: Sequence[KeyState]) -> str:
    """Return what the replicas that are right serve, in words."""
    groups = states_served(offset, [one for one in about if one.broker in decision.right])
    return "; ".join(f"{_brokers(brokers)} rightly {_verb(brokers)} {text}" for text, brokers in groups.items())


def _undecided(finding: Row, about: Sequence[KeyState], decision: Decision) -> Row:
    """Return a finding that accuses nobody."""
    groups = _disagree(finding["offset"], about)
    serves = "; ".join(f"{_brokers(one['brokers'])} {_verb(one['brokers'])} {one['serves']}" for one in groups)
    why = f"who is wrong is not decided: {'; '.join(decision.reasons)}"
    return {
        **finding,
        "explanation": (
            f"key {_text(finding)}: {serves or 'replicas differ'}; {why}. If broker {finding['broker']} is wrong: "
            f"{finding['explanation']}"
        ),
        "decided": False,
        "decided_by": [],
        "assumptions": [],
        "right": [],
        "disagree": groups,
    }


def _merged(group: Sequence[Row]) -> Row:
    """Return one finding for all that describe the same dispute."""
    names = dict.fromkeys(name for one in group for name in (one["anomaly"], *one["candidates"]))
    is_visible = any(one["effect"] == VISIBLE for one in group)
    return {**group[0], "candidates": _candidates(list(names)), "effect": VISIBLE if is_visible else LATENT}


def _disagree(offset: int, about: Sequence[KeyState]) -> list[Row]:
    return [{"brokers": brokers, "serves": text} for text, brokers in states_served(offset, about).items()]


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def _verb(brokers: Sequence[int]) -> str:
    return "serve" if len(brokers) > 1 else "serves"


def _text(finding: Row) -> str:
    key = finding["key"] or {}
    return str(key.get("text", key.get("base64", "(no key)")))
