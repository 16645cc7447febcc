"""How ``clean`` is earned: by a set of facts about every replica, which depends on the kind of run.

The facts are rows of `checkers.consistency.exposure`. Each way to earn ``clean`` is a list of conditions, and each
condition has the text for where it is not met.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.schedules.scenario import Critical

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Fact: TypeAlias = "Mapping[str, Any]"
"""A row of `checkers.consistency.exposure`."""
_Conditions: TypeAlias = "tuple[tuple[str, Callable[[Fact], bool]], ...]"
"""What has to be shown of a replica, each with the text for where it is not."""
_ByRemoval: TypeAlias = "Callable[[Sequence[Fact], Sequence[Fact]], tuple[str, str]]"
"""From facts of the brokers that stayed, and of those that were away: a way to earn ``clean``, and what it lacks."""
_IfKept: TypeAlias = "Callable[[Sequence[Fact], Sequence[Fact], Sequence[Fact]], tuple[str, str]]"
"""The same, from facts of the control partition as well."""


def earn(
    scenario: Mapping[str, Any],
    facts: Sequence[Fact],
    control: Sequence[Fact],
    *,
    absent: Sequence[int],
    is_shared: bool = False,
    hands_over: bool = False,
    protected_by: str | None = None,
) -> tuple[str | None, str]:
    """Return how ``clean`` is earned and "", or None and the missing proof.

    ``facts``: one row per replica (and kind of critical record), as `checkers.consistency.exposure` gives them.
    ``clean`` has to be earned in each partition. ``absent``: the brokers that were away; none in a run without a fault.
    ``is_shared``: there is one copy of each partition, which every broker serves: no broker returns with a copy of its
    own. ``hands_over``: leadership moved while the absent brokers copied, so that each leader counts by what it held.
    ``protected_by``: "gate" or "guard", so that a record that was kept is evidence only where that is seen to have held
    its partition; ``facts`` have what it did, too (`harness.judge.protected`).
    """
    by_removal = _lack_of_handover if hands_over else _lack_of_removal
    if_kept = partial(_lack_of_protection, protected_by) if protected_by else _lack_of_keeping
    several = len(scenario["replicas"]) > 1
    earned = []
    for partition, brokers in scenario["replicas"].items():
        for kind in scenario["critical"]:
            rows = {row["broker"]: row for row in facts if (row["partition"], row["kind"]) == (int(partition), kind)}
            judge = _earn_shared if is_shared and absent else partial(_earn_one, by_removal, if_kept)
            way, lack = judge(kind, brokers, rows, [row for row in control if row["kind"] == kind], absent)
            if way is None:
                return None, f"partition {partition}: {lack}" if several else lack
            earned.append(way)
    return "; ".join(dict.fromkeys(earned)), ""


def _unknown(kind: str, brokers: Sequence[int], rows: Mapping[int, Fact]) -> str:
    """Return which fact about the critical record is unknown; "" where none is."""
    missing = sorted(set(brokers) - set(rows))
    if missing:
        return f"nothing is known of the {kind} that should have been removed, on brokers {missing}"
    if rows[brokers[0]]["critical_offset"] is None:
        return f"the {kind} that should have been removed was never seen on any replica"
    return ""


def _earn_shared(
    kind: str, brokers: Sequence[int], rows: Mapping[int, Fact], _control: Sequence[Fact], absent: Sequence[int]
) -> tuple[str | None, str]:
    """With one copy, the absent broker has to serve what the others serve, once they have removed a record."""
    if unknown := _unknown(kind, brokers, rows):
        return None, unknown
    lack = _lack_of_any([row for broker, row in rows.items() if broker not in absent], _REMOVED_BEFORE_RETURN)
    lack = lack or _lack_of_any(rows.values(), _SERVED)
    if not lack and len({row["served_digest"] for row in rows.values()}) > 1:
        lack = "brokers do not serve the same batches"
    if lack:
        return None, f"{kind} at offset {rows[brokers[0]]['critical_offset']}: {lack}"
    return "the others removed it while the broker was away, and every broker serves the one copy", ""


def _earn_one(  # noqa: PLR0917
    by_removal: _ByRemoval,
    if_kept: _IfKept,
    kind: str,
    brokers: Sequence[int],
    rows: Mapping[int, Fact],
    control: Sequence[Fact],
    absent: Sequence[int],
) -> tuple[str | None, str]:
    """``by_removal``: the way by which the replicas that stayed removed the record; ``if_kept``: where they did not."""
    if unknown := _unknown(kind, brokers, rows):
        return None, unknown
    offset = rows[brokers[0]]["critical_offset"]
    away = [row for broker, row in rows.items() if broker in absent]
    stayed = [row for broker, row in rows.items() if broker not in absent]
    if away:
        if lack := _lack_of_any(away, _RETURNED):
            return None, lack
        way, lack = by_removal(stayed, away)
        kept, lack_of_keeping = if_kept(stayed, away, control)
        ways = {
            way: lack,
            "the others kept it though their cleaners had passed it, and removed it on the control partition": (
                _lack_of_any(stayed, _PASSED_AND_KEPT) or _lack_of_any(control, _REMOVED_BEFORE_RETURN)
                or ("" if control else "there is no control partition")
            ),
            kept: lack_of_keeping,
        }  # fmt: skip
        if all(row["held_critical"] for row in stayed) and any(row.get("released_at_ms") for row in stayed):
            lack = lack_of_keeping  # says more than that it was not removed
    else:
        lack = _lack_of_any(stayed, _REMOVED_WHILE_WATCHED)
        ways = {"every replica had it and removed it": lack}
    earned = next((way for way, missing in ways.items() if not missing), None)
    return earned, "" if earned else f"{kind} at offset {offset}: {lack}"


def _lack_of_removal(stayed: Sequence[Fact], away: Sequence[Fact]) -> tuple[str, str]:
    """Return the way of earning ``clean`` after an outage, and what it lacks.

    A replica whose gate dropped its log and had it copied anew has to serve what the leader of that copy serves.
    """
    lack = _lack_of_any(stayed, _REMOVED_BEFORE_RETURN)
    served = {row["broker"]: row["served_digest"] for row in stayed}
    for row in away:
        leader = row.get("began_anew_from")
        if not lack and (leader is None or served.get(leader) != row["served_digest"]):
            lack = _lack_of_any([row], _SHOWS_OUTCOME)
    return "the others removed it while the replica was away", lack


def _lack_of_keeping(stayed: Sequence[Fact], away: Sequence[Fact], _control: Sequence[Fact]) -> tuple[str, str]:
    """Return the way of earning ``clean`` where nothing was removed before the replica was back, and what it lacks."""
    lack = _lack_of_any([*stayed, *away], _GUARDED)
    return "the others kept it while the replica was away, and every replica removed it afterwards", lack


def _lack_of_protection(
    by: str, stayed: Sequence[Fact], away: Sequence[Fact], control: Sequence[Fact]
) -> tuple[str, str]:
    """Return the same where gates or a guard protect: they have to be seen to hold the partition, and no other."""
    lack = _lack_of_any(stayed, _held_by(by)) or _lack_of_any([*stayed, *away], _GUARDED)
    if not lack:
        on_control = _lack_of_any(control, _REMOVED_BEFORE_RETURN)
        lack = f"on the control partition, {on_control}" if on_control else ""
    way = (
        f"the {by} held it while the replica was away, cleaners passed others, and every replica removed it afterwards"
    )
    return way, lack


def _lack_of_handover(stayed: Sequence[Fact], away: Sequence[Fact]) -> tuple[str, str]:
    """Return the way of earning ``clean`` where leadership moved in the middle of a first copy, and what it lacks.

    The leader at the snapshot and from then on had removed the record, and had no payload either: so the copy had got
    its payload from another replica, which still held both. A copy that was begun anew under the second leader has no
    payload in the end; then it has to serve what that leader serves.
    """
    leaders, others = ([row for row in stayed if row["led"] is led] for led in (True, False))
    lack = "" if leaders else "no replica led the partition from the snapshot on, in one leader epoch"
    lack = lack or _lack_of_any(leaders, _REMOVED_BEFORE_TAKEOVER)
    if not lack and not any(row["had_payload"] and row["held_critical"] for row in others):
        lack = "no other replica still held it, and the payload, for the copy to begin from"
    for row in away:
        if not lack and row["served_digest"] != leaders[0]["served_digest"]:
            lack = _lack_of_any([row], _SHOWS_OUTCOME)
    return "the copy began from a replica that still held it, and went on from a leader that had removed it", lack


def _dropped_payload(row: Fact) -> bool:
    """Whether the gate dropped a copy that had the payload and had not reached the critical record."""
    dropped_up_to = row.get("dropped_up_to")
    return dropped_up_to is not None and row["payload_offset"] < dropped_up_to <= row["critical_offset"]


_SERVED: _Conditions = (
    ("was not read over the wire after the rejoin", lambda row: row["was_served"]),
    (
        "was not read to the high watermark after the rejoin",
        lambda row: (
            row["log_end_after"] > row["critical_offset"] and row["high_watermark_after"] == row["log_end_after"]
        ),
    ),
)
_RETURNED: _Conditions = (
    ("did not have the payload when it came back", lambda row: row["had_payload"] or _dropped_payload(row)),
    (
        "was not behind: it had already been past what it should have missed",
        lambda row: (
            (not row["held_critical"] and (row["log_end_before"] or 0) <= row["critical_offset"])
            or _dropped_payload(row)
        ),
    ),
    ("did not keep its log directory", lambda row: row["same_directory"]),
    *_SERVED,
)
_SHOWS_OUTCOME: _Conditions = (
    # After a transaction is gone from a log without a trace, nothing shows whether it was hidden before.
    (
        "no longer holds the transaction, so nothing shows which outcome it assumed",
        lambda row: row["kind"] != Critical.MARKER or row["has_payload"],
    ),
)
"""Conditions for the replica that was away."""
_REMOVED: _Conditions = (
    ("was never seen to hold it", lambda row: row["seen_there"]),
    ("was not seen to remove it", lambda row: row["removed_at_ms"] is not None and not row["held_after"]),
)
_REMOVED_WHILE_WATCHED: _Conditions = (
    ("has no files of both snapshots", lambda row: row["log_end_before"] is not None and row["same_directory"]),
    *_REMOVED,
    ("was not read over the wire at the end", lambda row: row["was_served"]),
)
_REMOVED_BEFORE_RETURN: _Conditions = (
    (
        "has no files from before the return that reach it",
        lambda row: row["log_end_before"] is not None and row["log_end_before"] > row["critical_offset"],
    ),
    ("still held it when the replica came back", lambda row: not row["held_critical"]),
    *_REMOVED,
)
_REMOVED_BEFORE_TAKEOVER: _Conditions = (
    *_REMOVED_BEFORE_RETURN,
    ("still held the payload, so that the copy may have begun from it", lambda row: not row["had_payload"]),
)
_PASSED_AND_KEPT: _Conditions = (
    ("did not keep it", lambda row: row["held_critical"] and row["held_after"]),
    ("kept it, but its cleaner is not shown to have passed it after its horizon", lambda row: row["passed"]),
)
"""Conditions for the replicas that stayed."""
_GUARDED: _Conditions = (
    ("did not remove it afterwards", lambda row: not row["held_after"] and row["removed_at_ms"] is not None),
)
"""The condition for all replicas."""


def _held_by(by: str) -> _Conditions:
    """Return the conditions for replicas that stayed while a gate or the guard kept cleaners from their partition."""
    return (
        ("did not hold it any more when the replica came back", lambda row: row["held_critical"]),
        (f"was not held by the {by} while the replica was away", lambda row: row["released_at_ms"] is not None),
        (
            f"removed it before the {by} let go of the partition",
            lambda row: row["removed_at_ms"] is None or row["removed_at_ms"] >= row["released_at_ms"],
        ),
    )


def _lack_of_any(rows: Collection[Fact], conditions: _Conditions) -> str:
    """Return the first replica's missing condition, "" where all are met; no replica at all proves nothing."""
    if not rows:
        return "there is no replica to show it"
    return next((f"broker {row['broker']} {text}" for row in rows for text, holds in conditions if not holds(row)), "")
