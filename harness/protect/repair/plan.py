"""The repairs that an audit's findings allow, and those that are possible on the cluster as it is now. Pure.

A replica is rebuilt only where every disagreement of its partition is decided, and another replica is shown to be
right; the advice of audits follows the same rule. Otherwise the last right copy of a record could be removed. Where
the evidence does not decide, a person names a right replica: then every replica that disagrees with it is wrong.
Before that destroys a copy, every replica of the partition has to be saved (`check_saved`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from checkers.finding import HANGING_TRANSACTION
from harness.audit.explain.advice import NONE_RIGHT, Caution, caution_of, is_about_offsets
from harness.audit.live.cluster import REDPANDA
from harness.errors import UsageError, raised_as
from harness.json_codec import from_json
from harness.judge.finding import Finding, brokers_text, by_place, name_of
from harness.judge.verdict import UNKNOWN, Verdict
from harness.kafka_api import TopicPartition
from harness.protect.repair.live import ClusterAnswers
from harness.protect.repair.steps import RECREATED, PartitionRepair, needs_spare
from harness.run_folder.store import SCHEMA, begin_of


@dataclass(frozen=True)
class Task:
    """Replicas to rebuild, and replicas that may lead. ``why``: the evidence, in sentences.

    ``groups``: consumer groups whose offsets differ; ``commits``: the audit's commands that commit right offsets.
    """

    partition: TopicPartition
    wrong: tuple[int, ...]
    right: tuple[int, ...]
    why: tuple[str, ...]
    groups: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abort:
    """A transaction that hangs on every replica from ``offset`` on. ``caution``: the advice before it is aborted."""

    partition: TopicPartition
    producer_id: int
    offset: int
    caution: Caution = field(compare=False)


@dataclass(frozen=True)
class Undecided:
    """A partition that is not repaired, and ``why``. ``serves``: the records of each replica, in sentences."""

    partition: TopicPartition
    why: str
    serves: tuple[str, ...] = ()
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class RepairPlan:
    """The repairs of an audit. ``unknown``: partitions that it could not compare, each with the reason.

    ``topic_ids``: of the topics that the audit read, as far as they are known.
    """

    tasks: tuple[Task, ...]
    aborts: tuple[Abort, ...]
    undecided: tuple[Undecided, ...]
    unknown: tuple[tuple[str, str], ...]
    cluster_id: str | None
    audited_at: datetime | None
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with a finding, each once."""
        return sorted({part.partition for parts in (self.tasks, self.aborts, self.undecided) for part in parts})

    def task(self, partition: TopicPartition) -> Task | None:
        """Return the task of a partition; None where a person or an earlier audit began its repair."""
        return next((task for task in self.tasks if task.partition == partition), None)


def plan_of(
    verdict: Verdict, rights: Mapping[TopicPartition, int] | None = None, only: Collection[TopicPartition] = ()
) -> RepairPlan:
    """Return the repairs by the verdict of an audit.

    ``rights``: a right replica of an undecided partition, as a person decides. ``only``: the partitions of the plan;
    every partition where it is empty. Raises `UsageError` for a broker that cannot be right.
    """
    rights = rights or {}
    places = by_place(verdict.findings)
    if strangers := sorted({*rights, *only} - places.keys()):
        raise UsageError(f"{name_of(strangers[0])}: the audit has no finding on this partition")
    chosen = {place: findings for place, findings in sorted(places.items()) if not only or place in only}
    tasks: list[Task] = []
    undecided: list[Undecided] = []
    for place, findings in chosen.items():
        accusing = [finding for finding in findings if finding.anomaly != HANGING_TRANSACTION]
        if place in rights:
            tasks.append(_task_by_person(place, accusing, rights[place]))
        elif accusing and (task := _task(place, accusing)) is not None:
            tasks.append(task)
        elif accusing:
            scenarios = [scenario for scenario in verdict.scenarios if scenario.has(place)]
            compared = [replica["broker"] for scenario in scenarios for replica in scenario.exposure["replicas"]]
            undecided.append(_undecided(place, accusing, tuple(compared) or _named(accusing)))
    unclear = [scenario for scenario in verdict.scenarios if scenario.verdict == UNKNOWN]
    unknown = [(s.scenario, s.reason) for s in unclear if not only or any(map(s.has, only))]
    # An audit reports a hanging transaction on every replica. A second marker could abort the producer's next one.
    aborts = dict.fromkeys(
        Abort(place, finding.producer_id, finding.offset, caution_of(finding))
        for place, findings in chosen.items()
        for finding in findings
        if finding.anomaly == HANGING_TRANSACTION and finding.producer_id is not None
    )
    cluster_id, begin = verdict.target.get("cluster_id") or None, begin_of(verdict.run_id)
    ids = verdict.target.get("topic_ids") or {}
    return RepairPlan(tuple(tasks), tuple(aborts), tuple(undecided), tuple(unknown), cluster_id, begin, ids)


def read_audit(content: Any) -> Verdict:
    """Return the verdict of an audit from JSON. Raises `UsageError` for any other content."""
    if not isinstance(content, dict) or not {"schema", "findings", "scenarios", "target"} <= content.keys():
        raise UsageError("not a verdict: give the output of `harness audit live` or `audit disk` with --format json")
    if content["schema"] != SCHEMA:
        raise UsageError(f"a verdict of schema {content['schema']}: this version reads schema {SCHEMA}")
    with raised_as(UsageError, "a damaged verdict", ValueError):
        verdict = from_json(Verdict, content)
    if any(scenario.partition is None for scenario in verdict.scenarios):
        raise UsageError("the verdict of a run: audit the cluster, as only an audit decides which replica is wrong")
    return verdict


def _task(place: TopicPartition, findings: Sequence[Finding]) -> Task | None:
    """Return the task if all findings are decided and a replica is right, by the rule of `explain.advice`."""
    wrong = {finding.broker for finding in findings}
    right = {broker for finding in findings for broker in finding.right or ()} - wrong
    if not right or not all(finding.decided for finding in findings):
        return None
    return _sorted_task(place, wrong, right, [finding.explanation for finding in findings], findings)


def _task_by_person(place: TopicPartition, findings: Sequence[Finding], broker: int) -> Task:
    option = f"--right {name_of(place)}={broker}"
    wrong: set[int] = set()
    if not findings:
        raise UsageError(f"{option}: its replicas do not disagree; a transaction hangs")
    for finding in findings:
        groups = [set(group.brokers) for group in finding.disagree or ()]
        same = next((group for group in groups if broker in group), None)
        if finding.decided and finding.broker == broker:
            raise UsageError(f"{option}: the audit shows that this replica is wrong")
        if finding.decided:
            wrong.add(finding.broker)
        elif same is not None:
            wrong |= set().union(*groups) - same
        elif finding.broker != broker and not groups:
            wrong.add(finding.broker)
        else:
            raise UsageError(f"{option}: the audit did not compare this replica at offset {finding.offset}")
    if broker in wrong:
        raise UsageError(f"{option}: other findings of the partition contradict it")
    why = [f"a person decided that broker {broker} is right", *(finding.explanation for finding in findings)]
    # Other replicas may differ from this one where findings are not listed.
    return _sorted_task(place, wrong, {broker}, why, findings)


def _sorted_task(
    place: TopicPartition, wrong: set[int], right: set[int], why: Sequence[str], findings: Sequence[Finding]
) -> Task:
    records = [finding.record for finding in findings if finding.record is not None and is_about_offsets(finding)]
    groups = sorted({record.key["group"] for record in records if record.key is not None})
    commits = sorted({record.commit for record in records if record.commit is not None})
    return Task(place, tuple(sorted(wrong)), tuple(sorted(right)), tuple(why), tuple(groups), tuple(commits))


def _undecided(place: TopicPartition, findings: Sequence[Finding], replicas: tuple[int, ...]) -> Undecided:
    undecided = [finding for finding in findings if not finding.decided]
    why = undecided[0].explanation if undecided else f"{NONE_RIGHT}: {findings[0].explanation}"
    serves = [
        f"offset {finding.offset}: {brokers_text(group.brokers)}: {group.serves}"
        for finding in (undecided or findings)
        for group in finding.disagree or ()
    ]
    return Undecided(place, why, tuple(serves), replicas)


def _named(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return the brokers that findings name, where the audit read no replica."""
    groups = [group.brokers for finding in findings for group in finding.disagree or ()]
    answers = [finding.witness.get("decided_on", ()) for finding in findings]
    return tuple(sorted({finding.broker for finding in findings}.union(*groups, *answers)))


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
    """Return a note if the audit does not name its cluster. Raises `UsageError` for another cluster, or Redpanda."""
    if cluster_id.startswith(REDPANDA):
        raise UsageError("a repair relies on rules of Apache Kafka, and this is a Redpanda cluster: it is not repaired")
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
    """Return the partitions of the plan that can be repaired now, ``at_once`` of them at a time.

    ``audit``: the run id of the audit. ``begun``: partitions in the journal: a repair under way continues whatever the
    cluster looks like, and no partition is repaired twice by an audit. ``spare``: the spare broker; None: any.

    The plan replaces a repair under way that copies from a replica which is wrong by this plan, unless the evidence of
    the plan is older than that repair. Raises `UsageError` for a repair that cannot be replaced.
    """
    entries: list[PartitionRepair] = []
    refused: list[Undecided] = []
    notes: list[str] = []
    for task in plan.tasks:
        stored = begun.get(task.partition)
        if stored is None or stored.contradicts(task.wrong) or (stored.is_done and stored.audit != audit):
            outdated = None if stored is None else _why_outdated(stored, task, audit)
            entry = outdated or _entry(task, answers, audit, spare, plan.topic_ids.get(task.partition[0]))
            if stored is not None and not stored.is_done and isinstance(entry, PartitionRepair):
                is_whole = {*entry.replicas} == {*stored.replicas}
                whole = replace(entry, replicas=stored.replicas, leader=stored.leader)
                entry = whole if is_whole else f"first assign its replicas to {brokers_text(stored.replicas)} again"
            if isinstance(entry, PartitionRepair):
                entries.append(entry)
            else:
                refused.append(Undecided(task.partition, entry))
        elif stored.is_done:
            notes.append(f"the repair of {name_of(task.partition)} by this audit has ended before")
        elif left := {*task.wrong} - {*stored.wrong}:
            first = f"the repair of {name_of(task.partition)} by audit {stored.audit} is resumed first"
            notes.append(f"{first}: afterwards, run this command again for {brokers_text(sorted(left))}")
    full, unknown = _full_disks(entries, answers, at_once)
    notes += [f"the free disk space of {brokers_text(sorted(unknown))} is unknown"] if unknown else []
    reasons = {entry: next((full[b] for b in entry.copying if b in full), None) for entry in entries}
    refused += [Undecided(entry.partition, why) for entry, why in reasons.items() if why is not None]
    possible = tuple(entry for entry, why in reasons.items() if why is None)
    replaced = {entry.partition for entry in possible}
    resumed = tuple(e for e in begun.values() if not e.is_done and e.partition not in replaced)
    for stored in resumed:
        if why := next((r.why for r in refused if r.partition == stored.partition), None):
            raise UsageError(
                f"{name_of(stored.partition)}: a repair by audit {stored.audit} is under way, and copies from"
                f" {brokers_text(stored.right)}, which is wrong by this plan; it cannot be replaced: {why}"
            )
    return PreparedRepair(possible, tuple(refused), tuple(notes), resumed)


def _why_outdated(stored: PartitionRepair, task: Task, audit: str) -> str | None:
    """Return why the evidence for a task is older than a repair of its partition; None where it is not."""
    if stored.is_newer_than(audit):
        return f"it is repaired by audit {stored.audit}, which is later than this audit: audit again"
    overwritten = {*stored.copying[: len(stored.rebuilt) + 1]}
    if stored.audit == audit and (stored.is_done or not overwritten.isdisjoint(task.right)):
        return f"{brokers_text(overwritten)} may already have a copy of {brokers_text(stored.right)}: audit again"
    return None


def _entry(
    task: Task, answers: ClusterAnswers, audit: str, spare: int | None, topic_id: str | None
) -> PartitionRepair | str:
    observed = answers.partition(PartitionRepair(task.partition, "", (), -1, task.right, task.wrong))
    if isinstance(observed, str):
        return f"the cluster is not fit for a repair: waited for {observed}"
    wrong = tuple(broker for broker in task.wrong if broker in observed.replicas)
    right = tuple(broker for broker in observed.replicas if broker in task.right)
    takes_spare = needs_spare(observed.replicas, observed.min_insync)
    free = [b for b in sorted(observed.online - frozenset(observed.replicas)) if observed.is_without_folder(b)]
    chosen = next((broker for broker in free if spare in {None, broker}), None) if takes_spare else None
    down = sorted(frozenset(wrong) - observed.online)
    refusals = {
        RECREATED: topic_id not in {None, observed.topic_id},
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
