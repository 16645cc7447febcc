"""The judges of a round: those that know what its clients know, and beside them an audit that knows nothing of them.

Two judges know the clients: the checkers of runs (`checkers`, in Spark) and `harness.soak.judge.truth`, which shares
nothing with them. A third one, `harness.soak.judge.group_truth`, judges what brokers have of groups' offsets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from checkers.anomalies import FINDERS
from checkers.consistency import doubts
from checkers.evidence.tables import load
from checkers.guarantees import all_guarantees, last_value
from checkers.replay.judged import judge
from harness.audit.audit_verdict import assemble
from harness.audit.copies.disk import context_of_copies
from harness.audit.copy_checks import judge_copies
from harness.broker_files.copies.copies import find_copies
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.broker_files.metadata_log.join import read_metadata_logs
from harness.judge.check import THREADS, collected, doubt_of, each
from harness.judge.finding import finding_of
from harness.judge.guarantees import CHECKER, guarantee_results
from harness.models.world.groups import DROPS_PENDING, NEW, OLD
from harness.run_folder.history import read_lines
from harness.run_folder.store import AFTER_REJOIN, GATE, SKIPPED_MARKERS, WHOLE_HISTORY
from harness.schedules.groups import CONSUMER
from harness.soak.causes.reopened_transaction import reopened_of
from harness.soak.evidence.client_log import client_log_of, events_for_checkers
from harness.soak.evidence.group_log import group_log_of
from harness.soak.evidence.losses import TRANSACTION_STATE, losses_of, unclean_leaders
from harness.soak.evidence.replica_log import read_replica, served_replicas
from harness.soak.judge.gate_evidence import judge_gates, late_cleaners, of_last_topics, outages_of, removable_of
from harness.soak.judge.group_truth import GroupTruth, compare_groups
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.judge.truth import compare
from harness.soak.play.internal import metadata_folders, views_of
from harness.spark.threads import threads
from harness.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from checkers.replay.judged import Judged
    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.judge.finding import CheckerRow
    from harness.judge.soak_verdict import RoundVerdict
    from harness.judge.verdict import Verdict
    from harness.run_folder.store import RunFolder
    from harness.soak.evidence.replica_log import Replica, ReplicaLog
    from harness.soak.judge.gate_evidence import GateEvidence
    from harness.soak.judge.truth import Truth
    from harness.soak.play.round import PlayedRound

BESIDE: Final = ("unexplained", "hanging_transaction")
"""Checkers of audits alone that need no audit: a single run knows what it may find."""
GUARANTEES: Final = tuple(one for one in all_guarantees.GUARANTEES if one is not last_value)
"""Without last-value: final states are what both judges compare, and some are known by no client."""

TABLES: Final[Mapping[str, Callable[[Judged], DataFrame]]] = {
    CHECKER: partial(all_guarantees.check, guarantees=GUARANTEES),
    "doubts": doubts.check,
    **{name: finder.check for name, finder in FINDERS.items() if finder.in_runs or name in BESIDE},
}
RETENTION_POLICY: Final = "delete"


def _whole_history(folder: RunFolder) -> Sequence[Mapping[str, Any]]:
    whole = folder.path / WHOLE_HISTORY
    return read_lines(whole if whole.exists() else folder.history_path)


def truth_of(folder: RunFolder, played: PlayedRound) -> Truth:
    """Return which replicas of a round are wrong by what its clients know. Raises `UsageError` for a damaged folder."""
    log = client_log_of(_whole_history(folder))
    retained = {topic.name for topic in played.plan.topics if RETENTION_POLICY in _policy(topic.settings)}
    return compare(log, replicas_of(folder), retained)


def _policy(settings: Mapping[str, str]) -> str:
    return settings.get("cleanup.policy", "")


def replicas_of(folder: RunFolder) -> dict[Replica, ReplicaLog]:
    """Return what each replica of a round holds from the log start on that its broker served."""
    return {one: read_replica(path, state.get("log_start", 0)) for one, path, state in served_replicas(folder)}


def check(session: SparkSession, folders: Sequence[RunFolder]) -> dict[str, CheckedRound]:
    """Run the checkers of runs over rounds, all in one job, and return their results by run id.

    A checker that raises ends no other, and counts in every round.
    """
    for folder in folders:
        whole = folder.path / WHOLE_HISTORY
        if not whole.exists():
            folder.history_path.rename(whole)
        folder.write_lines(folder.history_path, events_for_checkers(read_lines(whole)))
    judged = judge(load(session, folders))
    with threads(session, THREADS) as pool:
        rows, raised = each(TABLES, lambda name: collected(TABLES[name](judged)), using=pool.map)
    return {folder.run_id: _checked(folder.run_id, rows, raised) for folder in folders}


def _checked(run_id: str, rows: Mapping[str, Sequence[CheckerRow]], raised: Mapping[str, str]) -> CheckedRound:
    of_round = {name: [row for row in table if row["run"] == run_id] for name, table in rows.items()}
    contradictions = [doubt_of(row) for row in of_round.get("doubts", []) if row["kind"] == doubts.CONTRADICTION]
    distrusted = [(*doubt.place, doubt.broker) for doubt in contradictions]
    guarantees = guarantee_results(of_round.get(CHECKER), distrusted, raised.get(CHECKER, ""))
    findings = [finding_of(row) for name in FINDERS for row in of_round.get(name, [])]
    return CheckedRound(findings, guarantees, contradictions, raised)


def audit(session: SparkSession, rounds: Mapping[RunFolder, Iterable[int]]) -> dict[str, Verdict]:
    """Return the verdict of an audit of each round's disks, by run id; it knows nothing of clients.

    ``rounds``: with their brokers.
    """
    copies = [find_copies(_copied(folder, brokers), ["*"], folder.run_id) for folder, brokers in rounds.items()]
    rows = judge_copies(session, copies)
    return {one.run_id: assemble(one, rows, timings_s={}, context=context_of_copies(one)) for one in copies}


def _copied(folder: RunFolder, brokers: Iterable[int]) -> dict[int, list[Path]]:
    """Return the folders of each broker that an audit gets: replicas, and the metadata log, by which it decides."""
    metadata = metadata_folders(folder)
    return {
        broker: [
            folder.broker_snapshot(broker, AFTER_REJOIN),
            *([metadata[broker]] if broker in metadata else []),
        ]
        for broker in brokers
    }


def groups_of(folder: RunFolder, played: PlayedRound, events: Sequence[Mapping[str, Any]]) -> GroupTruth:
    """Return which brokers are wrong about groups' offsets. Raises `UsageError` for a damaged folder."""
    log = group_log_of(events)
    drops_pending = CONSUMER in find_target(played.schedule.target).group_protocols
    views = views_of(folder, drops_pending=DROPS_PENDING[NEW if drops_pending else OLD])
    return compare_groups(log, views)


def gates_of(
    folder: RunFolder, played: PlayedRound, events: Sequence[Mapping[str, Any]], metadata: ClusterMetadata | None
) -> GateEvidence | None:
    """Return what gates held of what was exposed; None for a round without gates. Raises `UsageError` for damage."""
    logged = _logged(folder.path / GATE)
    if logged is None:
        return None
    outages = outages_of(metadata, {topic.name for topic in played.plan.topics})
    ended_ms = max((event["time_ms"] for event in events), default=None)
    return judge_gates(outages, removable_of(events), of_last_topics(logged, events), ended_ms, late_cleaners(events))


def _logged(path: Path) -> Sequence[Mapping[str, Any]] | None:
    return read_lines(path) if path.exists() else None


def metadata_of(folder: RunFolder, played: PlayedRound) -> ClusterMetadata | None:
    """Return what the controllers wrote of a round's topics and of internal ones; None where nothing is kept."""
    topics = {*(topic.name for topic in played.plan.topics), TRANSACTION_STATE, CONSUMER_OFFSETS}
    return read_metadata_logs(metadata_folders(folder), topics).metadata


def judge_rounds(
    session: SparkSession, rounds: Mapping[RunFolder, PlayedRound], expected: Collection[str] = ()
) -> dict[str, RoundVerdict]:
    """Judge rounds that were played, and return their verdicts by run id. Raises `UsageError` for a damaged folder.

    Several rounds at once cost little more than one: most of the time is planning.
    """
    whole = {folder: one for folder, one in rounds.items() if one.failure is None}
    verdicts = {folder.run_id: verdict_of(one, None) for folder, one in rounds.items() if one.failure}
    if whole:
        truths = {folder.run_id: truth_of(folder, one) for folder, one in whole.items()}
        checked = check(session, list(whole))
        audited = audit(session, {folder: one.plan.brokers for folder, one in whole.items()})
        for folder, one in whole.items():
            name = folder.run_id
            events, metadata = _whole_history(folder), metadata_of(folder, one)
            groups, gates = groups_of(folder, one, events), gates_of(folder, one, events, metadata)
            losses = losses_of(events, unclean_leaders(metadata))
            results = JudgeResults(
                truths[name],
                checked[name],
                audited[name],
                groups,
                gates,
                losses,
                reopened_of(folder),
                _logged(folder.path / SKIPPED_MARKERS) or (),
            )
            verdicts[name] = verdict_of(one, results, expected)
    return verdicts
