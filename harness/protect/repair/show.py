"""Plans and results of repairs, for people and as JSON."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from harness.audit.explain.advice import Shell
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.host.clock import duration_text
from harness.json_codec import to_json
from harness.judge.finding import brokers_text, name_of
from harness.judge.verdict import CLEAN, Verdict
from harness.kafka_api import TopicPartition
from harness.protect.repair.plan import PreparedRepair, RepairPlan, Undecided
from harness.protect.repair.run import RepairResult
from harness.protect.repair.steps import PartitionRepair
from harness.terminal import Table, Terminal

MINUTE_S: Final = 60
AGREE, DIFFER, UNDECIDED = "agree", "differ", "undecided"
STATE: Final = {"clean": AGREE, "anomaly": DIFFER, "unknown": "unknown"}
"""The state of a partition by its verdict."""


def age_text(audited_at: datetime | None, now: datetime | None = None) -> str:
    """Return a sentence on the age of an audit."""
    if audited_at is None:
        return "the audit does not have the time of its begin"
    age_s = max(((now or datetime.now(UTC)) - audited_at).total_seconds(), 0)
    return f"the audit began {duration_text(age_s)} ago"


def plan_json(plan: RepairPlan, prepared: PreparedRepair) -> dict[str, Any]:
    """Return a plan as JSON."""
    return {
        "cluster_id": plan.cluster_id,
        "audited_at": plan.audited_at.isoformat() if plan.audited_at else None,
        "repairs": [_entry_json(entry, plan) for entry in prepared.entries],
        "resumed": [_entry_json(entry, plan) for entry in prepared.resumed],
        "aborts": [
            {**_place(a.partition), "producer_id": a.producer_id, "offset": a.offset, "first": a.caution.text}
            for a in plan.aborts
        ],
        "refused": [_undecided_json(undecided) for undecided in prepared.refused],
        "undecided": [_undecided_json(undecided) for undecided in plan.undecided],
        "unknown": [{"partition": name, "reason": reason} for name, reason in plan.unknown],
        "notes": list(prepared.notes),
    }


def _entry_json(entry: PartitionRepair, plan: RepairPlan) -> dict[str, Any]:
    task = plan.task(entry.partition)
    return {
        **_place(entry.partition),
        **{name: to_json(getattr(entry, name)) for name in ("replicas", "right", "wrong", "spare")},
        **{name: [] if task is None else list(getattr(task, name)) for name in ("why", "groups", "commits")},
    }


def _undecided_json(undecided: Undecided) -> dict[str, Any]:
    return {**_place(undecided.partition), "why": undecided.why, "serves": list(undecided.serves)}


def _place(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition[0], "partition": partition[1]}


def show_plan(out: Terminal, plan: RepairPlan, prepared: PreparedRepair) -> None:
    """Print a plan."""
    out.line(age_text(plan.audited_at))
    for note in prepared.notes:
        out.line(f"note: {note}")
    for entry in prepared.resumed:
        out.line(f"RESUME {_entry_text(entry)}")
    for entry in prepared.entries:
        out.line(f"REPAIR {_entry_text(entry)}")
        task = plan.task(entry.partition)
        for why in () if task is None else task.why:
            out.line(f"  {why}")
    for abort in plan.aborts:
        place = f"{name_of(abort.partition)}, offset {abort.offset}"
        word = "NOT ABORTED:" if abort.caution.may_be_committed else "ABORT"
        out.line(f"{word} the hanging transaction of producer {abort.producer_id} in {place}")
        out.line(f"  {abort.caution.text}")
    for refused in prepared.refused:
        out.line(f"REFUSED {name_of(refused.partition)}: {refused.why}")
    for undecided in plan.undecided:
        name = name_of(undecided.partition)
        out.line(f"UNDECIDED {name}: {undecided.why}")
        for text in undecided.serves:
            out.line(f"  {text}")
        out.line(f"  to decide: save {name} of every replica, then add --right {name}=BROKER and --saved-folders DIR")
    for name, reason in plan.unknown:
        out.line(f"UNKNOWN {name}: {reason}")


def _entry_text(entry: PartitionRepair) -> str:
    spare = "" if entry.spare is None else f", with a replica on broker {entry.spare} meanwhile"
    copied = f"copied from {' or '.join(f'broker {b}' for b in entry.right)}"
    return f"{name_of(entry.partition)}: the replica of {brokers_text(entry.wrong)} is removed and {copied}{spare}"


def result_json(plan: RepairPlan, result: RepairResult, before: Verdict) -> dict[str, Any]:
    """Return a result as JSON, with ``before`` and the verdict of the last audit."""
    return {
        "plan": plan_json(plan, result.prepared),
        "partitions": [{**asdict(row), **_place(row.partition)} for row in rows(plan, result)],
        "repairs": [{**asdict(outcome), **_place(outcome.partition)} for outcome in result.outcomes],
        "aborted": [{**_place(aborted.abort.partition), "why": aborted.why} for aborted in result.aborted],
        "figures": figures(result),
        "before": to_json(before),
        "after": to_json(result.after),
    }


def figures(result: RepairResult) -> dict[str, float | None]:
    """Return duration, partitions per minute, and the share of copied bytes; None without a copy."""
    done = sum(outcome.why is None for outcome in result.outcomes)
    copied = sum(outcome.copied_bytes for outcome in result.outcomes)
    replicas = sum(outcome.replica_bytes for outcome in result.outcomes)
    return {
        "took_s": round(result.took_s, 3),
        "partitions_per_minute": round(done * MINUTE_S / result.took_s, 2) if done and result.took_s else None,
        "copied_bytes": copied,
        "copied_bytes_per_replica_byte": round(copied / replicas, 3) if replicas else None,
    }


@dataclass(frozen=True)
class RepairedPartition:
    """A partition's state before and after. ``why``: the reason why it was not repaired; None where it was."""

    partition: TopicPartition
    before: str
    after: str
    why: str | None


def rows(plan: RepairPlan, result: RepairResult) -> list[RepairedPartition]:
    """Return the state of each partition before and after."""
    undecided = {partition.partition for partition in plan.undecided}
    whys = {undone.partition: undone.why for undone in (*plan.undecided, *result.prepared.refused)}
    whys |= {aborted.abort.partition: aborted.why for aborted in result.aborted if aborted.why}
    whys |= {outcome.partition: outcome.why for outcome in result.outcomes if outcome.why}
    by_partition = []
    for partition in sorted({*plan.partitions, *(outcome.partition for outcome in result.outcomes)}):
        after = next((STATE[s.verdict] for s in result.scenarios if s.has(partition)), "not audited")
        before = UNDECIDED if partition in undecided else DIFFER
        if partition in undecided and after != AGREE:
            after = UNDECIDED
        by_partition.append(RepairedPartition(partition, before, after, whys.get(partition)))
    return by_partition


def show_result(out: Terminal, plan: RepairPlan, result: RepairResult, code: int, shell: Shell) -> None:
    """Print the result of a repair. ``shell``: for the commands that commit offsets."""
    if table := [(name_of(row.partition), row.before, row.after, row.why or "") for row in rows(plan, result)]:
        out.table(Table(("partition", "before", "after", "why"), table))
    repaired = {outcome.partition for outcome in result.outcomes if outcome.why is None}
    for task in plan.tasks:
        if task.partition in repaired and task.groups:
            out.line(f"{name_of(task.partition)}: check the offsets of groups {', '.join(task.groups)}")
            for command in (*shell.variables(), *task.commits) if task.commits else ():
                out.line(f"  {command}")
    if repaired:
        out.line(f"repaired {len(repaired)} partition{'s' * (len(repaired) > 1)} in {result.took_s:.1f} s")
    out.line(f"(exit code {code})")


def exit_code_of_plan(plan: RepairPlan, prepared: PreparedRepair) -> int:
    """Return 0 if everything that differs can be repaired, else 2."""
    is_left = any(abort.caution.may_be_committed for abort in plan.aborts)
    return EXIT_UNKNOWN if is_left or plan.undecided or prepared.refused or plan.unknown else EXIT_CLEAN


def exit_code(plan: RepairPlan, result: RepairResult) -> int:
    """Return 0 if all agree, 1 if something still differs, 2 if only undecided or unknown partitions remain."""
    states = {row.after for row in rows(plan, result)}
    has_failed = any(part.why for parts in (result.outcomes, result.aborted) for part in parts)
    if has_failed or result.prepared.refused or DIFFER in states:
        return EXIT_ANOMALY
    clean = {scenario.scenario for scenario in result.scenarios if scenario.verdict == CLEAN}
    return EXIT_CLEAN if states <= {AGREE} and all(name in clean for name, _ in plan.unknown) else EXIT_UNKNOWN
