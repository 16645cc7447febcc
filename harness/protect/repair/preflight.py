"""The plan against the cluster as it is now: the partitions that can be repaired, and how. Pure.

Before a person's decision destroys a copy, every replica of the partition has to be saved (`check_saved`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.judge.finding import brokers_text, name_of
from harness.kafka_api import TopicPartition
from harness.protect.repair.plan import RepairPlan, Task, Undecided
from harness.protect.repair.steps import ObservedPartition, PartitionRepair, needs_spare

if TYPE_CHECKING:
    from harness.protect.repair.live import ClusterAnswers

FREE_SHARE: Final = 1.1
"""Of the bytes that copies need: clients continue to write, and compaction is paused."""


@dataclass(frozen=True)
class PreparedRepair:
    """The partitions that can be repaired, and those ``refused``. ``resumed``: unfinished repairs in the journal."""

    entries: tuple[PartitionRepair, ...]
    refused: tuple[Undecided, ...] = ()
    notes: tuple[str, ...] = ()
    resumed: tuple[PartitionRepair, ...] = ()


def check_cluster(plan: RepairPlan, cluster_id: str) -> list[str]:
    """Return a note if the audit does not name its cluster. Raises `UsageError` if it was of another cluster."""
    if plan.cluster_id is None:
        return ["the audit does not have the id of the cluster: make sure that it was of this cluster"]
    if plan.cluster_id != cluster_id:
        raise UsageError(f"the audit was of cluster {plan.cluster_id}, and the brokers are of cluster {cluster_id}")
    return []


def check_saved(saved: Path | None, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Raise `UsageError` unless ``saved`` has a segment of every replica, as ``BROKER/TOPIC-PARTITION``."""
    if not replicas:
        return
    if saved is None:
        raise UsageError(
            "--right decides where the evidence does not: save the folder of the partition of every replica first, and "
            "give --saved-folders DIR (with BROKER/TOPIC-PARTITION in it) or --saved-elsewhere"
        )
    for tp, brokers in sorted(replicas.items()):
        for folder in (saved / str(broker) / name_of(tp) for broker in brokers):
            if not any(folder.glob("*.log")):
                raise UsageError(f"--saved-folders {saved}: {folder} has no segment; save every replica first")


def prepare(
    plan: RepairPlan,
    answers: ClusterAnswers,
    audit: str,
    *,
    begun: Mapping[TopicPartition, PartitionRepair],
    spare: int | None = None,
    at_once: int = 1,
) -> PreparedRepair:
    """Return the partitions of the plan that can be repaired now.

    ``audit``: the run id of the audit. ``begun``: partitions in the journal. A repair under way continues whatever the
    cluster looks like, and a partition that the same audit had repaired is left out. ``spare``: the broker that may
    have a replica during a repair; None: any. ``at_once``: the number of partitions at a time.
    """
    entries: list[PartitionRepair] = []
    refused: list[Undecided] = []
    for task in plan.tasks:
        stored = begun.get(task.partition)
        if stored is None or (stored.audit != audit and stored.is_done):
            entry = _entry(task, answers, audit, spare)
            if isinstance(entry, PartitionRepair):
                entries.append(entry)
            else:
                refused.append(Undecided(task.partition, entry))
    full, unknown = _full_disks(entries, answers, at_once)
    notes = [f"the free disk space of {brokers_text(sorted(unknown))} is unknown"] if unknown else []
    reasons = {entry: next((full[b] for b in entry.copying if b in full), None) for entry in entries}
    refused += [Undecided(entry.partition, why) for entry, why in reasons.items() if why is not None]
    possible = tuple(entry for entry, why in reasons.items() if why is None)
    resumed = tuple(entry for entry in begun.values() if not entry.is_done)
    return PreparedRepair(possible, tuple(refused), tuple(notes), resumed)


def _entry(task: Task, answers: ClusterAnswers, audit: str, spare: int | None) -> PartitionRepair | str:
    """Return the progress to begin with, or the reason why the partition is refused."""
    observed = answers.partition(PartitionRepair(task.partition, "", (), -1, task.right, task.wrong))
    if isinstance(observed, str):
        return f"the cluster is not fit for a repair: waited for {observed}"
    wrong = tuple(broker for broker in task.wrong if broker in observed.replicas)
    right = tuple(broker for broker in observed.replicas if broker in task.right)
    takes_spare = needs_spare(observed.replicas, observed.min_insync)
    chosen = _spare(observed, spare) if takes_spare else None
    down = sorted(frozenset(wrong) - observed.online)
    refusals = {
        f"{brokers_text(task.wrong)} has no replica any more: audit again": not wrong,
        f"{brokers_text(task.right)} has no replica any more, and no other replica can be proven correct": not right,
        "another reassignment of it is under way": observed.adding or observed.removing,
        f"{brokers_text(down)} is down: start it first, or remove its replica": down,
        f"{len(observed.replicas)} replicas with min.insync.replicas={observed.min_insync}: too few would stay in sync,"
        " and no other broker can have a replica meanwhile": takes_spare and chosen is None,
    }
    if (why := next((why for why, applies in refusals.items() if applies), None)) is not None:
        return why
    return PartitionRepair(
        task.partition, observed.topic_id, observed.replicas, observed.leader, right, wrong, chosen, audit=audit
    )


def _spare(observed: ObservedPartition, chosen: int | None) -> int | None:
    """Return a broker without a replica and without an old folder of the partition."""
    free = [b for b in sorted(observed.online - frozenset(observed.replicas)) if observed.is_without_folder(b)]
    return next((broker for broker in free if chosen in {None, broker}), None)


def _full_disks(
    entries: Sequence[PartitionRepair], answers: ClusterAnswers, at_once: int
) -> tuple[dict[int, str], set[int]]:
    """Return the brokers whose disk is too small, with the reason, and those whose free space is unknown.

    A copy replaces a folder that is deleted ``file.delete.delay.ms`` later: of ``at_once`` partitions both exist.
    """
    full, unknown = {}, set()
    for broker in sorted({broker for entry in entries for broker in entry.copying}):
        growth, old = 0, []
        for entry in entries:
            if broker in entry.copying:
                observed = answers.partition(entry)
                sizes = {} if isinstance(observed, str) else observed.folders_bytes
                copy, present = max((sizes.get(b, 0) for b in entry.right), default=0), sizes.get(broker, 0)
                growth += max(copy - present, 0)
                old.append(present)
        needed = int((growth + sum(sorted(old)[-at_once:])) * FREE_SHARE)
        usable = answers.brokers[broker].usable_bytes if broker in answers.brokers else None
        if usable is None:
            unknown.add(broker)
        elif usable < needed:
            full[broker] = f"broker {broker} has {usable:,} bytes free, and the copies need {needed:,}"
    return full, unknown
