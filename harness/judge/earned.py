"""The ways to earn ``clean``: sets of facts about every replica, which depend on the kind of run.

The facts are rows of `checkers.consistency.exposure`. Each way to earn ``clean`` is a list of conditions, and each
condition has the text for where it is not met. `ProtectionRecord` adds the facts about the gates of a run's brokers, or
about the guard: from ``gate.jsonl`` (schema in `harness.protect.gate.events`) or ``guard.jsonl``
(`harness.run_folder.guard_events`), and from the time in the history at which brokers came back.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.protect.gate.events import BEGAN_ANEW, HELD, RELEASED
from harness.run_folder.guard_events import GuardEventKind
from harness.schedules.scenario import Critical

Fact: TypeAlias = Mapping[str, Any]
"""A row of `checkers.consistency.exposure`."""
_Conditions: TypeAlias = tuple[tuple[str, Callable[[Fact], bool]], ...]
"""Conditions for a replica, each with the text for a replica that does not meet the condition."""
_Way: TypeAlias = tuple[str, str]
"""A sentence about a way to earn ``clean``, and the first condition that is not met: "" if all are met."""

_HOLDS: Final = {HELD, GuardEventKind.PAUSED}
_RELEASES: Final = {RELEASED, GuardEventKind.RELEASED}
_COME_BACK: Final = '"f": "come back"'


def earn(
    scenario: Mapping[str, Any],
    facts: Sequence[Fact],
    control: Sequence[Fact],
    *,
    absent: Sequence[int],
    hands_over: bool = False,
    protected_by: str | None = None,
) -> tuple[str | None, str]:
    """Return how ``clean`` is earned and "", or None and the missing proof. Each partition has to earn ``clean``.

    ``facts``: one row per replica (and kind of critical record), with the facts of `ProtectionRecord`. ``absent``: the
    brokers that were absent; none in a run without a fault. ``hands_over``: leadership moved while the absent brokers
    copied, so that the records of each leader count. ``protected_by``: "gate" or "guard": a record that was not removed
    is then evidence only where the partition was held.
    """
    several = len(scenario["replicas"]) > 1
    earned = []
    for partition, brokers in scenario["replicas"].items():
        for kind in scenario["critical"]:
            of_record = (row for row in facts if (row["partition"], row["kind"]) == (int(partition), kind))
            by_broker = {row["broker"]: row for row in of_record}
            rows = list(by_broker.values())
            stayed = [row for row in rows if row["broker"] not in absent]
            returned = [row for row in rows if row["broker"] in absent]
            on_control = [row for row in control if row["kind"] == kind]
            if kind == Critical.SUPERSEDED and rows:
                compacted = [row for row in rows if row["critical_offset"] is not None] or on_control
                if missing := _missing(rows, _KNOWN) or _missing(compacted, _COMPACTED):
                    return None, f"partition {partition}: {missing}" if several else missing
                earned.append("compaction removed a superseded record, and all that a consumer is delivered is right")
                continue
            way, missing = None, _unknown(kind, brokers, by_broker)
            if not missing and returned:
                missing = _missing(returned, _RETURNED)
            if not missing:
                ways = [("every replica had it and removed it", _missing(stayed, _REMOVED_WHILE_WATCHED))]
                if returned:
                    ways = _ways_of_return(stayed, returned, on_control, protected_by, hands_over=hands_over)
                way = next((way for way, unmet in ways if not unmet), None)
                missing = f"{kind} at offset {by_broker[brokers[0]]['critical_offset']}: {ways[0][1]}"
            if way is None:
                return None, f"partition {partition}: {missing}" if several else missing
            earned.append(way)
    return "; ".join(dict.fromkeys(earned)), ""


def _unknown(kind: str, brokers: Sequence[int], rows: Mapping[int, Fact]) -> str:
    """Return which fact about the critical record is unknown; "" if none is."""
    unknown = sorted(set(brokers) - set(rows))
    if unknown:
        return f"nothing is known of the {kind} that should have been removed, on brokers {unknown}"
    if rows[brokers[0]]["critical_offset"] is None:
        return f"the {kind} that should have been removed was never seen on any replica"
    return ""


def _ways_of_return(
    stayed: Sequence[Fact],
    returned: Sequence[Fact],
    control: Sequence[Fact],
    protected_by: str | None,
    *,
    hands_over: bool,
) -> list[_Way]:
    """Return the ways after an outage; the first way's missing proof is the one to report."""
    first = _handed_over(stayed, returned) if hands_over else _removed(stayed, returned)
    last = _removed_afterwards(stayed, returned, control, protected_by)
    if any(row.get("released_at_ms") for row in stayed) and all(row["held_critical"] for row in stayed):
        first, last = last, first
    passed = "the others kept it though their cleaners had passed it, and removed it on the control partition"
    return [first, (passed, _missing(stayed, _PASSED_AND_KEPT) or _missing(control, _REMOVED_BEFORE_RETURN)), last]


def _removed(stayed: Sequence[Fact], returned: Sequence[Fact]) -> _Way:
    """Return the way where the replicas that stayed removed the record during the outage.

    A replica whose gate dropped its log and copied it again from the start has to serve the batches of that leader.
    """
    served = {row["broker"]: row["served_digest"] for row in stayed}
    others = [
        row
        for row in returned
        if (leader := row.get("began_anew_from")) is None or served.get(leader) != row["served_digest"]
    ]
    missing = _missing(stayed, _REMOVED_BEFORE_RETURN) or (_missing(others, _SHOWS_OUTCOME) if others else "")
    return "the others removed it while the replica was absent", missing


def _removed_afterwards(
    stayed: Sequence[Fact], returned: Sequence[Fact], control: Sequence[Fact], protected_by: str | None
) -> _Way:
    """Return the way where no replica removed the record before the return, and every replica did afterwards.

    Gates or a guard have to be seen to hold the partition, and no other partition.
    """
    conditions = _KEPT if protected_by is None else _held_by(protected_by)
    missing = _missing(stayed, conditions) or _missing([*stayed, *returned], _GUARDED)
    if protected_by is None:
        return "the others kept it while the replica was absent, and every replica removed it afterwards", missing
    if not missing and (on_control := _missing(control, _REMOVED_BEFORE_RETURN)):
        missing = f"on the control partition, {on_control}"
    way = f"the {protected_by} held it while the replica was absent, cleaners passed others"
    return f"{way}, and every replica removed it afterwards", missing


def _handed_over(stayed: Sequence[Fact], returned: Sequence[Fact]) -> _Way:
    """Return the way where leadership moved in the middle of a first copy.

    The broker that led at the snapshot and afterwards had removed the record and the payload: the copy had its payload
    from another replica, which still had both. A copy that the second leader began again from the start has no payload
    in the end, and has to serve the batches of that leader.
    """
    leaders, others = ([row for row in stayed if row["led"] is led] for led in (True, False))
    missing = "" if leaders else "no replica led the partition from the snapshot on, in one leader epoch"
    missing = missing or _missing(leaders, _REMOVED_BEFORE_TAKEOVER)
    if not missing and not any(row["had_payload"] and row["held_critical"] for row in others):
        missing = "no other replica still held it, and the payload, for the copy to begin from"
    if not missing:
        copies = [row for row in returned if row["served_digest"] != leaders[0]["served_digest"]]
        missing = _missing(copies, _SHOWS_OUTCOME) if copies else ""
    return "the copy began from a replica that still held it, and continued from a leader that had removed it", missing


def _dropped_payload(row: Fact) -> bool:
    """Return whether the gate dropped a copy that had the payload and had not reached the critical record."""
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
"""Conditions for the replica that returns."""
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
_KNOWN: _Conditions = (
    ("has records whose outcome no client knows", lambda row: not row["undecided"]),
    ("delivered records that no client is known to have written", lambda row: not row["unknown"]),
)
_COMPACTED: _Conditions = (
    ("still delivers the superseded record: compaction was not seen", lambda row: row["is_delivered"] is False),
)
"""Conditions for a run that is judged by what clients are served; the second ones are the control's for a partition
without a superseded record."""
_KEPT: _Conditions = (("did not hold it any more when the replica came back", lambda row: row["held_critical"]),)
_GUARDED: _Conditions = (
    ("did not remove it afterwards", lambda row: not row["held_after"] and row["removed_at_ms"] is not None),
)


def _held_by(by: str) -> _Conditions:
    """Return the conditions for replicas that stayed while a gate or the guard kept cleaners from their partition."""
    return (
        *_KEPT,
        (f"was not held by the {by} while the replica was absent", lambda row: row["released_at_ms"] is not None),
        (
            f"removed it before the {by} released the partition",
            lambda row: row["removed_at_ms"] is None or row["removed_at_ms"] >= row["released_at_ms"],
        ),
    )


def _missing(rows: Collection[Fact], conditions: _Conditions) -> str:
    """Return the first condition that a replica does not meet, "" if all are met; no replica proves nothing."""
    if not rows:
        return "no replica shows it"
    return next((f"broker {row['broker']} {text}" for row in rows for text, holds in conditions if not holds(row)), "")


@dataclass(frozen=True)
class ProtectionRecord:
    """The events of gates or the guard, and the time at which brokers began to come back: None if none came back.

    ``by``: "gate", whose events are of one replica each, or "guard", whose events are of a topic. None for a build that
    has the gate's rules itself: its events have no times, and only the events of copies that began again count.
    """

    by: str | None
    events: Sequence[Mapping[str, Any]] = ()
    came_back_ms: int | None = None

    def facts(self, row: Fact) -> Fact:
        """Return a row of `checkers.consistency.exposure` with the facts about the protection of that replica.

        released_at_ms: when the gate or guard released a partition that it held while brokers came back.
        began_anew_from: the leader from which the replica was copied from its first record on, after its gate had
        dropped its log, and dropped_up_to: the end of the log that was dropped first; None if no log was dropped.
        """
        place = {name: row[name] for name in ("broker", "topic", "partition")}.items()
        events = [event for event in self.events if all(event.get(name, value) == value for name, value in place)]
        copies = [event for event in events if event["event"] == BEGAN_ANEW]
        return {
            **row,
            "released_at_ms": self._released_at_ms(events) if self.by else None,
            "began_anew_from": copies[-1]["leader"] if copies else None,
            "dropped_up_to": copies[0]["dropped_up_to"] if copies else None,
        }

    def _released_at_ms(self, events: Iterable[Mapping[str, Any]]) -> int | None:
        held_at_ms: int | None = None
        for event in events:
            if event["event"] in _HOLDS and held_at_ms is None:
                held_at_ms = event["time_ms"]
            elif event["event"] in _RELEASES and held_at_ms is not None and self.came_back_ms is not None:
                released_at_ms: int = event["time_ms"]
                if held_at_ms <= self.came_back_ms <= released_at_ms:
                    return released_at_ms
                held_at_ms = None
        return None


def came_back_at_ms(history: Path) -> int | None:
    """Return when the nemesis began to bring brokers back. The history's lines were checked when they were judged."""
    with history.open() as lines:
        events = [json.loads(line) for line in lines if _COME_BACK in line]
    return next((event["time_ms"] for event in events if event["type"] == "invoke"), None)
