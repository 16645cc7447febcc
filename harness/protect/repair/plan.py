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
from harness.audit.explain.advice import NONE_RIGHT
from harness.audit.explain.knowledge import brokers_text, by_place, name_of
from harness.audit.explain.record_advice import is_about_offsets
from harness.errors import UsageError
from harness.judge.verdict import UNKNOWN
from harness.protect.repair.state import Partition  # noqa: TC001  (of a dataclass)
from harness.run_folder.store import SCHEMA, TIME_FORMAT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.audit.explain.knowledge import Row

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
    verdict: Mapping[str, Any], rights: Mapping[Partition, int] | None = None, only: Collection[Partition] = ()
) -> RepairPlan:
    """Return what to repair by the verdict of an audit.

    ``rights``: a right replica of an undecided partition, as a person decides. ``only``: the partitions to look at;
    every one where it is empty. Raises `UsageError` where the verdict is not an audit's, and for a broker that cannot
    be right.
    """
    check(verdict)
    rights = rights or {}
    places = by_place(verdict["findings"])
    if strangers := sorted({*rights, *only} - places.keys()):
        raise UsageError(f"{name_of(strangers[0])}: the audit has no finding on this partition")
    chosen = {place: found for place, found in sorted(places.items()) if not only or place in only}
    tasks, undecided = [], []
    for place, found in chosen.items():
        accusing = [one for one in found if one["anomaly"] != HANGING_TRANSACTION]
        if place in rights:
            tasks.append(_task_by_person(place, accusing, rights[place]))
        elif accusing:
            task = _task(place, accusing)
            if task is None:
                replicas = _replicas(verdict, place) or _named(accusing)
                undecided.append(_undecided(place, accusing, replicas))
            else:
                tasks.append(task)
    unknown = [
        (one["scenario"], one["reason"])
        for one in verdict["scenarios"]
        if one["verdict"] == UNKNOWN and (not only or (one["topic"], one["partition"]) in only)
    ]
    return RepairPlan(
        tuple(tasks),
        # An audit finds it on every replica. A second marker could abort the producer's next transaction.
        tuple(
            dict.fromkeys(
                Abort(place, one["producer_id"], one["offset"])
                for place, found in chosen.items()
                for one in found
                if one["anomaly"] == HANGING_TRANSACTION
            )
        ),
        tuple(undecided),
        tuple(unknown),
        verdict["target"].get("cluster_id") or None,
        _time_of(verdict.get("run_id", "")),
    )


def check(verdict: Mapping[str, Any]) -> None:
    """Raise `UsageError` where this is not the verdict of an audit."""
    is_verdict = isinstance(verdict, dict) and {"schema", "findings", "scenarios", "target"} <= verdict.keys()
    if not is_verdict:
        raise UsageError("it is no verdict: give what `harness audit live` or `audit disk` prints with --format json")
    if verdict["schema"] != SCHEMA:
        raise UsageError(f"it is a verdict of schema {verdict['schema']}, and this version reads schema {SCHEMA}")
    if any("partition" not in one for one in verdict["scenarios"]) or any(
        "decided" not in one for one in verdict["findings"]
    ):
        raise UsageError(
            "it is the verdict of a run: audit the cluster, which says who is wrong by evidence of its own"
        )


def _task(place: Partition, found: Sequence[Row]) -> Task | None:
    """Return the task where everything is decided and a replica is right, by the rule of `explain.advice`."""
    wrong = {one["broker"] for one in found}
    right = {broker for one in found for broker in one.get("right", ())} - wrong
    if not right or not all(one["decided"] for one in found):
        return None
    why = [one["explanation"] for one in found]
    return Task(place, tuple(sorted(wrong)), tuple(sorted(right)), tuple(why), *_groups(found))


def _task_by_person(place: Partition, found: Sequence[Row], broker: int) -> Task:
    """Return the task where a person says that this broker's replica is right. Raises `UsageError`."""
    wrong: set[int] = set()
    agreeing: set[int] | None = None
    if not found:
        raise UsageError(f"--right {name_of(place)}={broker}: its replicas do not disagree; a transaction hangs")
    for one in found:
        groups = [set(group["brokers"]) for group in one.get("disagree", ())]
        own = next((group for group in groups if broker in group), None)
        if one["decided"] and one["broker"] == broker:
            raise UsageError(f"--right {name_of(place)}={broker}: the audit shows that this replica is wrong")
        if one["decided"]:
            wrong.add(one["broker"])
        elif own is not None:
            wrong |= set().union(*groups) - own
            agreeing = own if agreeing is None else agreeing & own
        elif one["broker"] != broker and not groups:
            wrong.add(one["broker"])
        else:
            raise UsageError(
                f"--right {name_of(place)}={broker}: the audit did not compare this replica at offset {one['offset']}"
            )
    if broker in wrong:
        raise UsageError(f"--right {name_of(place)}={broker}: other findings of the partition contradict it")
    right = {broker} | ((agreeing or set()) - wrong)
    why = (f"a person decided that broker {broker} is right", *(one["explanation"] for one in found))
    return Task(place, tuple(sorted(wrong)), tuple(sorted(right)), why, *_groups(found))


def _undecided(place: Partition, found: Sequence[Row], replicas: tuple[int, ...]) -> Undecided:
    open_ = [one for one in found if not one["decided"]]
    why = open_[0]["explanation"] if open_ else f"{NONE_RIGHT}: {found[0]['explanation']}"
    serves = [
        f"offset {one['offset']}: {brokers_text(group['brokers'])}: {group['serves']}"
        for one in (open_ or found)
        for group in one.get("disagree", ())
    ]
    return Undecided(place, why, tuple(serves), replicas)


def _replicas(verdict: Mapping[str, Any], place: Partition) -> tuple[int, ...]:
    """Return the replicas that the audit compared."""
    scenarios = [one for one in verdict["scenarios"] if (one["topic"], one["partition"]) == place]
    return tuple(replica["broker"] for one in scenarios for replica in one["exposure"]["replicas"])


def _named(found: Sequence[Row]) -> tuple[int, ...]:
    """Return the brokers that findings name, where the audit read no replica."""
    groups = [group["brokers"] for one in found for group in one.get("disagree", ())]
    answers = [one.get("witness", {}).get("decided_on", ()) for one in found]
    return tuple(sorted({one["broker"] for one in found}.union(*groups, *answers)))


def _groups(found: Sequence[Row]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    about = [one for one in found if is_about_offsets(one)]
    groups = {one["record"]["key"]["group"] for one in about if "key" in one["record"]}
    commits = {one["record"]["commit"] for one in about if "commit" in one["record"]}
    return tuple(sorted(groups)), tuple(sorted(commits))


def _time_of(run_id: str) -> datetime | None:
    """Return when an audit began, by its run id."""
    text = run_id.removeprefix(AUDIT_RUN)
    try:
        return datetime.strptime(text.rpartition("-")[0], TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
