"""The plan against the cluster as it is now: what of it can be done, and how. Pure; `check` has what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.judge.finding import brokers_text
from harness.protect.repair.plan import Undecided
from harness.protect.repair.state import PartitionRepair, needs_spare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.protect.repair.live import Answers
    from harness.protect.repair.plan import RepairPlan, Task
    from harness.protect.repair.state import ObservedPartition, Partition

FREE_SHARE: Final = 1.1
"""Of the bytes that copies need: clients go on to write, and compaction is paused."""


@dataclass(frozen=True)
class PreparedRepair:
    """``entries``: what can be repaired. ``refused``: partitions that are left, each with the reason."""

    entries: tuple[PartitionRepair, ...]
    refused: tuple[Undecided, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """``spare``: the broker that may get a replica for the time of a repair; None: any. ``at_once``: partitions."""

    spare: int | None = None
    at_once: int = 1


def check_cluster(plan: RepairPlan, cluster_id: str | None) -> list[str]:
    """Return notes on whether the audit was of this cluster. Raises `UsageError` where it was of another one."""
    if plan.cluster_id is None:
        return ["the audit does not know the id of the cluster: make sure that it was of this one"]
    if plan.cluster_id != cluster_id:
        raise UsageError(f"the audit was of cluster {plan.cluster_id}, and the brokers are of cluster {cluster_id}")
    return []


def prepare(
    plan: RepairPlan,
    answers: Answers,
    usable_bytes: Mapping[int, int | None],
    audit: str,
    *,
    limits: Limits,
    begun: Mapping[Partition, PartitionRepair],
) -> PreparedRepair:
    """Return what of the plan can be done now.

    ``usable_bytes``: the free disk of each broker, None where it is unknown. ``audit``: the run id of the audit.
    ``begun``: partitions in the journal. Those whose repair is under way are gone on with whatever the cluster looks
    like, and those that the same audit had repaired are left out.
    """
    entries: list[PartitionRepair] = []
    refused: list[Undecided] = []
    for task in plan.tasks:
        stored = begun.get(task.partition)
        if stored is not None and (stored.audit == audit or not stored.is_done):
            continue
        found = _entry(task, answers, audit, limits)
        if isinstance(found, PartitionRepair):
            entries.append(found)
        else:
            refused.append(Undecided(task.partition, found))
    lacking, unknown = _lacking(entries, answers, usable_bytes, limits.at_once)
    notes = [f"the free disk space of {brokers_text(sorted(unknown))} is unknown"] if unknown else []
    kept = []
    for entry in entries:
        short = next((broker for broker in _copying(entry) if broker in lacking), None)
        if short is None:
            kept.append(entry)
        else:
            refused.append(Undecided(entry.partition, lacking[short]))
    return PreparedRepair(tuple(kept), tuple(refused), tuple(notes))


def _entry(task: Task, answers: Answers, audit: str, limits: Limits) -> PartitionRepair | str:
    """Return the progress to begin with, or why the partition is left."""
    bare = PartitionRepair(task.partition, "", (), -1, task.right, task.wrong)
    seen = answers.seen(bare)
    if isinstance(seen, str):
        return f"the cluster is not fit for a repair: waited for {seen}"
    wrong = tuple(broker for broker in task.wrong if broker in seen.replicas)
    right = tuple(broker for broker in seen.replicas if broker in task.right)
    spare = _spare(seen, limits.spare) if needs_spare(seen.replicas, seen.min_insync) else None
    down = sorted(frozenset(wrong) - seen.online)
    refusals = {
        f"{brokers_text(task.wrong)} has no replica any more: audit again": not wrong,
        f"{brokers_text(task.right)} has no replica any more, and no other one is shown to be right": not right,
        "another reassignment of it is under way": seen.adding or seen.removing,
        f"{brokers_text(down)} is down: start it first, or remove its replica": down,
        f"{len(seen.replicas)} replicas with min.insync.replicas={seen.min_insync}: too few would be left in sync, and "
        "no other broker can take a replica meanwhile": spare is None and needs_spare(seen.replicas, seen.min_insync),
    }
    for why, applies in refusals.items():
        if applies:
            return why
    return PartitionRepair(task.partition, seen.topic_id, seen.replicas, seen.leader, right, wrong, spare, audit=audit)


def _spare(seen: ObservedPartition, chosen: int | None) -> int | None:
    """Return a broker without a replica and without an old folder of it."""
    free = [b for b in sorted(seen.online - frozenset(seen.replicas)) if seen.is_without_folder(b)]
    if chosen is not None:
        return chosen if chosen in free else None
    return next(iter(free), None)


def _copying(entry: PartitionRepair) -> Sequence[int]:
    return (*entry.wrong, *(() if entry.spare is None else (entry.spare,)))


def _lacking(
    entries: Sequence[PartitionRepair], answers: Answers, usable_bytes: Mapping[int, int | None], at_once: int
) -> tuple[dict[int, str], set[int]]:
    """Return the brokers whose disk is too small, with the reason, and those whose free space is unknown.

    A copy takes the place of a folder that is deleted ``file.delete.delay.ms`` later: of ``at_once`` partitions both
    are there.
    """
    lacking, unknown = {}, set()
    for broker in sorted({broker for entry in entries for broker in _copying(entry)}):
        growth, old = 0, []
        for entry in entries:
            if broker not in _copying(entry):
                continue
            seen = answers.seen(entry)
            sizes = {} if isinstance(seen, str) else seen.folders_bytes
            copy, present = max((sizes.get(b, 0) for b in entry.right), default=0), sizes.get(broker, 0)
            growth += max(copy - present, 0)
            old.append(present)
        needed = int((growth + sum(sorted(old)[-at_once:])) * FREE_SHARE)
        usable = usable_bytes.get(broker)
        if usable is None:
            unknown.add(broker)
        elif usable < needed:
            lacking[broker] = f"broker {broker} has {usable:,} bytes free, and the copies need {needed:,}"
    return lacking, unknown
