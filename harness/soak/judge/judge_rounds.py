"""The judges of a round: checkers and `truth`, independent of each other, `group_truth`, and an audit of replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from checkers import guarantees
from checkers.anomalies import FINDERS
from checkers.consistency import doubts
from checkers.evidence.tables import load
from checkers.replay.judged import Judged, judge
from harness.audit.judge_copies import assemble, judge_copies
from harness.broker_files.copies.copies import find_copies
from harness.broker_files.copies.selection import listed
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.broker_files.metadata_log.join import read_metadata_logs
from harness.errors import UsageError
from harness.json_codec import from_json
from harness.judge.check import THREADS, collected, each
from harness.judge.finding import CheckerRow, finding_of, name_of
from harness.judge.guarantees import CHECKER, guarantee_results
from harness.judge.verdict import Doubt, RoundVerdict, Verdict
from harness.run_folder.history import read_lines
from harness.run_folder.store import AFTER_REJOIN, GATE, OFFSETS, SKIPPED_MARKERS, WHOLE_HISTORY, RunFolder
from harness.schedules.operations import VisitGroup
from harness.schedules.scenario import CONSUMER
from harness.soak.causes.cause import RoundEvidence
from harness.soak.causes.lost_unsynced import TRANSACTION_STATE, losses_of, unclean_leaders
from harness.soak.causes.reopened_transaction import reopened_of
from harness.soak.evidence.client_log import client_log_of, events_for_checkers
from harness.soak.evidence.internal_topics import metadata_folders, views_of
from harness.soak.evidence.offsets import open_again
from harness.soak.evidence.replica_log import Replica, ReplicaLog, read_replica, served_replicas
from harness.soak.judge.gate_evidence import evidence_of_gates
from harness.soak.judge.group_truth import compare_groups, group_log_of
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.judge.truth import Truth, compare
from harness.spark.jobs import threads
from harness.targets import find_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from harness.soak.play.round import PlayedRound

WITHOUT_AUDIT: Final = ("unexplained", "hanging_transaction")
"""Checkers of audits that need no audit: in a run, they find the same."""
GUARANTEES: Final = tuple(name for name in guarantees.GUARANTEES if name != guarantees.LAST_VALUE)
"""Without last-value: both judges compare final states, and some are known by no client."""
TABLES: Final[Mapping[str, Callable[[Judged], DataFrame]]] = {
    CHECKER: partial(guarantees.check, names=GUARANTEES),
    "doubts": doubts.check,
    **{name: finder.check for name, finder in FINDERS.items() if finder.in_runs or name in WITHOUT_AUDIT},
}


def judge_rounds(
    session: SparkSession, rounds: Mapping[RunFolder, PlayedRound], expected: Collection[str] = ()
) -> dict[str, RoundVerdict]:
    """Judge rounds together, as planning takes most of the time; return verdicts by run id. Raises `UsageError`."""
    complete = {folder: played for folder, played in rounds.items() if played.failure is None}
    truths = {folder: truth_of(folder, played) for folder, played in complete.items()}
    checked = _check(session, list(complete)) if complete else {}
    audited = _audit(session, complete) if complete else {}
    verdicts = {}
    for folder, played in rounds.items():
        results = None
        if folder in complete:
            events = _complete_history(folder)
            topics = {*(topic.name for topic in played.plan.topics), TRANSACTION_STATE, CONSUMER_OFFSETS}
            metadata = read_metadata_logs(metadata_folders(folder), topics).metadata
            joined = {it.protocol for it in played.schedule.operations if isinstance(it, VisitGroup)}
            drops_pending = CONSUMER in {*find_target(played.schedule.target).group_protocols, *joined}
            losses = losses_of(events, unclean_leaders(metadata))
            skipped = _lines(folder, SKIPPED_MARKERS) or ()
            results = JudgeResults(
                RoundEvidence(truths[folder], played.plan.brokers, losses, skipped, open_again(folder.path / OFFSETS)),
                checked[folder.run_id],
                audited[folder.run_id],
                compare_groups(group_log_of(events), views_of(folder, drops_pending=drops_pending)),
                evidence_of_gates(_lines(folder, GATE), events, metadata, {it.name for it in played.plan.topics}),
                reopened_of(folder),
            )
        verdicts[folder.run_id] = verdict_of(played, results, expected)
    return verdicts


def truth_of(folder: RunFolder, played: PlayedRound) -> Truth:
    """Return which replicas of a round are wrong by what its clients know. Raises `UsageError` for a damaged folder."""
    replicas = replicas_of(folder)
    places = ((broker, tp) for tp, brokers in played.plan.replicas.items() for broker in brokers)
    if missing := [f"broker {broker} of {name_of(tp)}" for broker, tp in places if (broker, tp) not in replicas]:
        raise UsageError(f"the run folder is damaged: {folder.path} has no copy of the replicas of {listed(missing)}")
    retained = {topic.name for topic in played.plan.topics if "delete" in topic.settings.get("cleanup.policy", "")}
    return compare(client_log_of(_complete_history(folder)), replicas, retained)


def replicas_of(folder: RunFolder) -> dict[Replica, ReplicaLog]:
    """Return the log of each replica of a round, from the log start on that its broker served."""
    return {place: read_replica(path, state.get("log_start", 0)) for place, path, state in served_replicas(folder)}


def _lines(folder: RunFolder, name: str) -> Sequence[Mapping[str, Any]] | None:
    path = folder.path / name
    return read_lines(path) if path.exists() else None


def _complete_history(folder: RunFolder) -> Sequence[Mapping[str, Any]]:
    """Return the history of a round; once `_check` has replaced it by one for the checkers, the original."""
    return _lines(folder, WHOLE_HISTORY) or read_lines(folder.history_path)


def _check(session: SparkSession, folders: Sequence[RunFolder]) -> dict[str, CheckedRound]:
    """Run the checkers of runs over rounds in one job; return results by run id. An error ends no other."""
    for folder in folders:
        complete = folder.path / WHOLE_HISTORY
        if not complete.exists():
            folder.history_path.rename(complete)
        folder.write_lines(folder.history_path, events_for_checkers(read_lines(complete)))
    judged = judge(load(session, folders))
    with threads(session, THREADS) as pool:
        rows, raised = each(TABLES, lambda name: collected(TABLES[name](judged), name), using=pool.map)
    return {folder.run_id: _checked(folder.run_id, rows, raised) for folder in folders}


def _checked(run_id: str, rows: Mapping[str, Sequence[CheckerRow]], raised: Mapping[str, str]) -> CheckedRound:
    of_round = {name: [row for row in table if row["run"] == run_id] for name, table in rows.items()}
    contradictions = [
        from_json(Doubt, row) for row in of_round.get("doubts", []) if row["kind"] == doubts.CONTRADICTION
    ]
    distrusted = [(*doubt.place, doubt.broker) for doubt in contradictions]
    guarantees = guarantee_results(of_round.get(CHECKER), distrusted, raised.get(CHECKER, ""))
    findings = [finding_of(row) for name in FINDERS for row in of_round.get(name, [])]
    return CheckedRound(findings, guarantees, contradictions, raised)


def _audit(session: SparkSession, rounds: Mapping[RunFolder, PlayedRound]) -> dict[str, Verdict]:
    """Return the verdict of an audit of each round's disks, by run id: of replicas, and of the metadata log."""
    copies = []
    for folder, played in rounds.items():
        metadata = metadata_folders(folder)
        paths = {
            broker: [folder.broker_snapshot(broker, AFTER_REJOIN), *([metadata[broker]] if broker in metadata else [])]
            for broker in played.plan.brokers
        }
        copies.append(find_copies(paths, ["*"], folder.run_id))
    rows = judge_copies(session, copies)
    return {audited.run_id: assemble(audited, rows, timings_s={}) for audited in copies}
