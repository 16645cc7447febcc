"""What to repair, from the findings of an audit. Pure: the cluster is not asked here (`repair.preflight`).

A replica is rebuilt only where every disagreement of its partition is decided, and another replica is shown to be
right; the advice of audits follows the same rule. Otherwise the last right copy of a record could be removed. Where
the evidence does not decide, a person names a right replica: then every replica that disagrees with it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from checkers.finding import HANGING_TRANSACTION
from harness.audit.explain.advice import NONE_RIGHT, is_about_offsets
from harness.errors import UsageError
from harness.json_codec import from_json
from harness.judge.finding import brokers_text, by_place, name_of
from harness.judge.verdict import UNKNOWN, Verdict
from harness.protect.repair.state import Partition  # noqa: TC001  (of a dataclass)
from harness.run_folder.store import SCHEMA, TIME_FORMAT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.judge.finding import Finding

AUDIT_RUN = "audit-"
"""What the run id of an audit begins with; the time follows."""


@dataclass(frozen=True)
class Task:
    """Replicas to rebuild. ``right``: replicas that may lead. ``why``: the evidence, in sentences.

    ``groups``: consumer groups whose offsets differ, which should be looked at after the repair, and ``commits``: the
    audit's commands that commit right offsets.
    """

    partition: Partition
    wrong: tuple[int, ...]
    right: tuple[int, ...]
    why: tuple[str, ...]
    groups: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abort:
    """A transaction that hangs: open on every replica, from this offset, though its coordinator is done with it."""

    partition: Partition
    producer_id: int
    offset: int


@dataclass(frozen=True)
class Undecided:
    """A partition that is left alone. ``serves``: what each replica serves, in sentences; ``why`` it is left."""

    partition: Partition
    why: str
    serves: tuple[str, ...] = ()
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class RepairPlan:
    """What an audit's findings allow. ``unknown``: partitions that the audit could not compare, with the reason.

    ``cluster_id``: None where the audit does not know it. ``audited_at``: None where the audit does not say so.
    """

    tasks: tuple[Task, ...]
    aborts: tuple[Abort, ...]
    undecided: tuple[Undecided, ...]
    unknown: tuple[tuple[str, str], ...]
    cluster_id: str | None
    audited_at: datetime | None

    @property
    def partitions(self) -> list[Partition]:
        """The partitions with a finding, each once."""
        of_all = (
            [one.partition for one in self.tasks],
            [one.partition for one in self.aborts],
            [one.partition for one in self.undecided],
        )
        return sorted({partition for partitions in of_all for partition in partitions})


def plan_of(
    verdict: Verdict, rights: Mapping[Partition, int] | None = None, only: Collection[Partition] = ()
) -> RepairPlan:
    """Return what to repair by the verdict of an audit.

    ``rights``: a right replica of an undecided partition, as a person decides. ``only``: the partitions to look at;
    every one where it is empty. Raises `UsageError` for a broker that cannot be right.
    """
    rights = rights or {}
    places = by_place(verdict.findings)
    if strangers := sorted({*rights, *only} - places.keys()):
        raise UsageError(f"{name_of(strangers[0])}: the audit has no finding on this partition")
    chosen = {place: findings for place, findings in sorted(places.items()) if not only or place in only}
    tasks, undecided = [], []
    for place, findings in chosen.items():
        accusing = [one for one in findings if one.anomaly != HANGING_TRANSACTION]
        if place in rights:
            tasks.append(_task_by_person(place, accusing, rights[place]))
        elif accusing:
            task = _task(place, accusing)
            if task is None:
                replicas = _compared(verdict, place) or _named(accusing)
                undecided.append(_undecided(place, accusing, replicas))
            else:
                tasks.append(task)
    unknown = [
        (one.scenario, one.reason)
        for one in verdict.scenarios
        if one.verdict == UNKNOWN and (not only or any(map(one.has, only)))
    ]
    return RepairPlan(
        tuple(tasks),
        # An audit finds it on every replica. A second marker could abort the producer's next transaction.
        tuple(
            dict.fromkeys(
                Abort(place, one.producer_id, one.offset)
                for place, findings in chosen.items()
                for one in findings
                if one.anomaly == HANGING_TRANSACTION and one.producer_id is not None
            )
        ),
        tuple(undecided),
        tuple(unknown),
        verdict.target.get("cluster_id") or None,
        _time_of(verdict.run_id),
    )


def read_audit(content: Any) -> Verdict:
    """Return the verdict of an audit from JSON. Raises `UsageError` for anything else."""
    if not isinstance(content, dict) or not {"schema", "findings", "scenarios", "target"} <= content.keys():
        raise UsageError("it is no verdict: give what `harness audit live` or `audit disk` prints with --format json")
    if content["schema"] != SCHEMA:
        raise UsageError(f"it is a verdict of schema {content['schema']}, and this version reads schema {SCHEMA}")
    try:
        verdict = from_json(Verdict, content)
    except ValueError as error:
        raise UsageError(f"it is a damaged verdict: {error}") from error
    if any(scenario.partition is None for scenario in verdict.scenarios):
        raise UsageError(
            "it is the verdict of a run: audit the cluster, which says who is wrong by evidence of its own"
        )
    return verdict


def _task(place: Partition, findings: Sequence[Finding]) -> Task | None:
    """Return the task where everything is decided and a replica is right, by the rule of `explain.advice`."""
    wrong = {finding.broker for finding in findings}
    right = {broker for finding in findings for broker in finding.right or ()} - wrong
    if not right or not all(finding.decided for finding in findings):
        return None
    why = [finding.explanation for finding in findings]
    return Task(place, tuple(sorted(wrong)), tuple(sorted(right)), tuple(why), *_groups(findings))


def _task_by_person(place: Partition, findings: Sequence[Finding], broker: int) -> Task:
    """Return the task where a person says that this broker's replica is right. Raises `UsageError`."""
    wrong: set[int] = set()
    agreeing: set[int] | None = None
    if not findings:
        raise UsageError(f"--right {name_of(place)}={broker}: its replicas do not disagree; a transaction hangs")
    for finding in findings:
        groups = [set(group.brokers) for group in finding.disagree or ()]
        own = next((group for group in groups if broker in group), None)
        if finding.decided and finding.broker == broker:
            raise UsageError(f"--right {name_of(place)}={broker}: the audit shows that this replica is wrong")
        if finding.decided:
            wrong.add(finding.broker)
        elif own is not None:
            wrong |= set().union(*groups) - own
            agreeing = own if agreeing is None else agreeing & own
        elif finding.broker != broker and not groups:
            wrong.add(finding.broker)
        else:
            raise UsageError(
                f"--right {name_of(place)}={broker}: the audit did not compare this replica at offset {finding.offset}"
            )
    if broker in wrong:
        raise UsageError(f"--right {name_of(place)}={broker}: other findings of the partition contradict it")
    right = {broker} | ((agreeing or set()) - wrong)
    why = (f"a person decided that broker {broker} is right", *(finding.explanation for finding in findings))
    return Task(place, tuple(sorted(wrong)), tuple(sorted(right)), why, *_groups(findings))


def _undecided(place: Partition, findings: Sequence[Finding], replicas: tuple[int, ...]) -> Undecided:
    undecided = [finding for finding in findings if not finding.decided]
    why = undecided[0].explanation if undecided else f"{NONE_RIGHT}: {findings[0].explanation}"
    serves = [
        f"offset {finding.offset}: {brokers_text(group.brokers)}: {group.serves}"
        for finding in (undecided or findings)
        for group in finding.disagree or ()
    ]
    return Undecided(place, why, tuple(serves), replicas)


def _compared(verdict: Verdict, place: Partition) -> tuple[int, ...]:
    """Return the replicas that the audit compared."""
    scenarios = [scenario for scenario in verdict.scenarios if scenario.has(place)]
    return tuple(replica["broker"] for scenario in scenarios for replica in scenario.exposure["replicas"])


def _named(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return the brokers that findings name, where the audit read no replica."""
    groups = [group.brokers for finding in findings for group in finding.disagree or ()]
    answers = [finding.witness.get("decided_on", ()) for finding in findings]
    return tuple(sorted({finding.broker for finding in findings}.union(*groups, *answers)))


def _groups(findings: Sequence[Finding]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the consumer groups whose offsets findings are about, and the commands that commit right offsets."""
    records = [finding.record for finding in findings if finding.record is not None and is_about_offsets(finding)]
    groups = {record.key["group"] for record in records if record.key is not None}
    commits = {record.commit for record in records if record.commit is not None}
    return tuple(sorted(groups)), tuple(sorted(commits))


def _time_of(run_id: str) -> datetime | None:
    """Return when an audit began, by its run id."""
    text = run_id.removeprefix(AUDIT_RUN)
    try:
        return datetime.strptime(text.rpartition("-")[0], TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
