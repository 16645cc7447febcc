"""Plans and results of repairs, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.json_codec import to_json
from harness.judge.finding import brokers_text, name_of
from harness.judge.verdict import CLEAN
from harness.protect.repair.run import AGREE, DIFFER, UNDECIDED
from harness.terminal import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.verdict import Verdict
    from harness.protect.repair.plan import RepairPlan, Undecided
    from harness.protect.repair.run import Look, Result
    from harness.protect.repair.state import Partition, PartitionRepair
    from harness.terminal import Terminal

MINUTE_S: Final = 60
HOUR_S: Final = 3600


def age_text(audited_at: datetime | None, now: datetime | None = None) -> str:
    """Return how old an audit is, in words."""
    if audited_at is None:
        return "the audit does not say when it was made"
    age_s = max(int(((now or datetime.now(UTC)) - audited_at).total_seconds()), 0)
    hours, minutes = age_s // HOUR_S, age_s % HOUR_S // MINUTE_S
    return f"the audit began {f'{hours} h ' if hours else ''}{minutes} min ago"


def plan_json(plan: RepairPlan, look: Look) -> dict[str, Any]:
    """Return a plan as JSON."""
    return {
        "cluster_id": plan.cluster_id,
        "audited_at": plan.audited_at.isoformat() if plan.audited_at else None,
        "repairs": [_entry_json(entry, plan) for entry in look.prepared.entries],
        "resumed": [_entry_json(entry, plan) for entry in look.begun.values()],
        "aborts": [
            {**_place(abort.partition), "producer_id": abort.producer_id, "offset": abort.offset}
            for abort in plan.aborts
        ],
        "refused": [_left_json(one) for one in look.prepared.refused],
        "undecided": [_left_json(one) for one in plan.undecided],
        "unknown": [{"partition": name, "reason": reason} for name, reason in plan.unknown],
        "notes": list(look.notes),
    }


def _entry_json(entry: PartitionRepair, plan: RepairPlan) -> dict[str, Any]:
    task = next((one for one in plan.tasks if one.partition == entry.partition), None)
    return {
        **_place(entry.partition),
        "replicas": list(entry.replicas),
        "right": list(entry.right),
        "wrong": list(entry.wrong),
        "spare": entry.spare,
        "why": [] if task is None else list(task.why),
        "groups": [] if task is None else list(task.groups),
        "commits": [] if task is None else list(task.commits),
    }


def _left_json(one: Undecided) -> dict[str, Any]:
    return {**_place(one.partition), "why": one.why, "serves": list(one.serves)}


def _place(partition: Partition) -> dict[str, Any]:
    return {"topic": partition[0], "partition": partition[1]}


def show_plan(out: Terminal, plan: RepairPlan, look: Look) -> None:
    """Print a plan."""
    out.line(age_text(plan.audited_at))
    for note in look.notes:
        out.line(f"note: {note}")
    for entry in look.begun.values():
        out.line(f"RESUME {_entry_text(entry)}")
    for entry in look.prepared.entries:
        out.line(f"REPAIR {_entry_text(entry)}")
        for why in next((task.why for task in plan.tasks if task.partition == entry.partition), ()):
            out.line(f"  {why}")
    for abort in plan.aborts:
        out.line(
            f"ABORT the hanging transaction of producer {abort.producer_id} in {name_of(abort.partition)}, "
            f"offset {abort.offset}"
        )
    for one in look.prepared.refused:
        out.line(f"REFUSED {name_of(one.partition)}: {one.why}")
    show_undecided(out, plan.undecided)
    for name, reason in plan.unknown:
        out.line(f"UNKNOWN {name}: {reason}")


def _entry_text(entry: PartitionRepair) -> str:
    spare = "" if entry.spare is None else f", with a replica on broker {entry.spare} meanwhile"
    copied = f"copied from {' or '.join(f'broker {b}' for b in entry.right)}"
    return f"{entry.name}: the replica of {brokers_text(entry.wrong)} is removed and {copied}{spare}"


def show_undecided(out: Terminal, undecided: Sequence[Undecided]) -> None:
    """Print what each replica of undecided partitions serves, and how to go on."""
    for one in undecided:
        name = name_of(one.partition)
        out.line(f"UNDECIDED {name}: {one.why}")
        for text in one.serves:
            out.line(f"  {text}")
        out.line(f"  to decide: save {name} of every replica, then add --right {name}=BROKER and --saved-folders DIR")


def result_json(plan: RepairPlan, result: Result, before: Verdict) -> dict[str, Any]:
    """Return a result as JSON: before and after by partition, the figures, and the verdict of the last audit."""
    return {
        "plan": plan_json(plan, result.look),
        "partitions": [
            {**_place(partition), "before": was, "after": is_, "why": why}
            for partition, was, is_, why in rows(plan, result)
        ],
        "repairs": [
            {**{k: v for k, v in asdict(one).items() if k != "partition"}, **_place(one.partition)}
            for one in result.outcomes
        ],
        "aborted": [{**_place(one.abort.partition), "why": one.why} for one in result.aborted],
        "figures": figures(result),
        "before": to_json(before),
        "after": to_json(result.after),
    }


def figures(result: Result) -> dict[str, float | None]:
    """Return partitions a minute, and bytes copied per byte of replica; None where nothing was copied."""
    done = [one for one in result.outcomes if one.why is None]
    copied = sum(one.copied_bytes for one in result.outcomes)
    replicas = sum(one.replica_bytes for one in result.outcomes)
    return {
        "took_s": round(result.took_s, 3),
        "partitions_per_minute": round(len(done) * MINUTE_S / result.took_s, 2) if done and result.took_s else None,
        "copied_bytes": copied,
        "copied_bytes_per_replica_byte": round(copied / replicas, 3) if replicas else None,
    }


def rows(plan: RepairPlan, result: Result) -> list[tuple[Partition, str, str, str | None]]:
    """Return each partition's state before and after, and why it is not repaired."""
    undecided = {one.partition: one.why for one in plan.undecided}
    whys = {one.partition: one.why for one in (*plan.undecided, *result.look.prepared.refused)}
    whys |= {one.abort.partition: one.why for one in result.aborted if one.why}
    whys |= {one.partition: one.why for one in result.outcomes if one.why}
    found = []
    for partition in sorted({*plan.partitions, *(one.partition for one in result.outcomes)}):
        after = result.state_after(partition)
        if partition in undecided and after != AGREE:
            after = UNDECIDED
        found.append((partition, UNDECIDED if partition in undecided else DIFFER, after, whys.get(partition)))
    return found


def show_result(out: Terminal, plan: RepairPlan, result: Result, code: int) -> None:
    """Print what a repair did."""
    table = [(name_of(partition), was, is_, why or "") for partition, was, is_, why in rows(plan, result)]
    if table:
        out.table(Table(("partition", "before", "after", "why"), table))
    repaired = {one.partition for one in result.outcomes if one.why is None}
    for task in plan.tasks:
        if task.partition in repaired and task.groups:
            out.line(f"{name_of(task.partition)}: look at the offsets of groups {', '.join(task.groups)}")
            for command in task.commits:
                out.line(f"  {command}")
    numbers = figures(result)
    if numbers["partitions_per_minute"] is not None:
        ratio = numbers["copied_bytes_per_replica_byte"]
        copied = f", {ratio} bytes copied per byte of replica" if ratio is not None else ""
        out.line(f"{numbers['partitions_per_minute']} partitions a minute{copied}")
    out.line(f"(exit code {code})")


def exit_code_of_plan(plan: RepairPlan, look: Look) -> int:
    """Return 0 where everything that differs can be repaired, 2 where something is left."""
    return EXIT_UNKNOWN if plan.undecided or look.prepared.refused or plan.unknown else EXIT_CLEAN


def exit_code(plan: RepairPlan, result: Result) -> int:
    """Return 0 where all agree, 1 where something still differs, 2 where only undecided or unknown ones are left."""
    states = [after for _, _, after, _ in rows(plan, result)]
    failed = [one.why for one in result.outcomes if one.why] + [one.why for one in result.aborted if one.why]
    if failed or result.look.prepared.refused or DIFFER in states:
        return EXIT_ANOMALY
    scenarios = () if result.after is None else result.after.scenarios
    clean = {one.scenario for one in scenarios if one.verdict == CLEAN}
    is_known = all(name in clean for name, _ in plan.unknown)
    return EXIT_CLEAN if is_known and all(after == AGREE for after in states) else EXIT_UNKNOWN
