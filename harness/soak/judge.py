"""The verdict on a round, by what its clients know; and beside it an audit that knows nothing of them.

Two judges know the clients: the checkers of runs (`checkers`, in Spark) and `harness.soak.truth`, which shares nothing
with them. A replica has a finding by the name that either gives. `UNEXPLAINED` is what has no name: a final state that
no anomaly explains, a documented guarantee that is violated where nothing else is found, a replica that one of both
judges calls wrong and the other right, an audit that accuses a right replica, and a log start or a record that nobody
asked for. A round is clean where all of it was read and nothing of that was found.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from checkers.anomalies import FINDERS
from checkers.consistency import doubts
from checkers.evidence.tables import colocated, load
from checkers.finding import UNEXPLAINED_DIVERGENCE
from checkers.guarantees import compaction_lag, control_batches, offsets, order, tombstones
from checkers.guarantees.removals import observed_removals
from checkers.replay.judged import judge
from harness.audit.disk import context_of_copies
from harness.audit.judge import assemble, judge_copies
from harness.brokers.copies.copies import find_copies
from harness.escape import to_json
from harness.judge.check import THREADS, dictionaries, each
from harness.judge.guarantees import CHECKER, guarantee_results
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, finding_of
from harness.run_folder.history import read_lines
from harness.run_folder.store import AFTER_REJOIN, STATE
from harness.soak.client_log import client_log_of, events_for_checkers
from harness.soak.naming import UNEXPLAINED, named
from harness.soak.replica_log import read_replica
from harness.soak.tally import tally
from harness.soak.truth import compare
from harness.spark.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from checkers.replay.judged import Judged
    from harness.run_folder.store import RunFolder
    from harness.soak.replica_log import Replica, ReplicaLog
    from harness.soak.round import PlayedRound
    from harness.soak.truth import Truth, Wrong

BESIDE: Final = ("unexplained", "hanging_transaction")
"""Checkers of audits alone that need no audit: a single run knows what it may find."""
GUARANTEES: Final = (order, offsets, tombstones, compaction_lag, control_batches)
"""Without last-value: final states are what both judges compare, and some are known by no client."""


def _guarantees(judged: Judged) -> DataFrame:
    observed = observed_removals(judged)
    return colocated(reduce(DataFrame.unionByName, (one.check(observed) for one in GUARANTEES)))


TABLES: Final[Mapping[str, Callable[[Judged], DataFrame]]] = {
    CHECKER: _guarantees,
    "doubts": doubts.check,
    **{name: finder.check for name, finder in FINDERS.items() if finder.in_runs or name in BESIDE},
}
WHOLE_HISTORY: Final = "history-whole.jsonl"
"""The history as it was written; ``history.jsonl`` is for the checkers, see `events_for_checkers`."""
CLIENTS, CHECKERS = "clients", "checkers"
"""The judges that a finding names."""
RETENTION_POLICY: Final = "delete"


@dataclass(frozen=True)
class Checked:
    """What the checkers of runs say of a round: findings, guarantees, contradictions, and those that raised."""

    findings: Sequence[dict[str, Any]] = ()
    guarantees: Sequence[dict[str, Any]] = ()
    doubts: Sequence[dict[str, Any]] = ()
    raised: Mapping[str, str] = field(default_factory=dict)


def truth_of(folder: RunFolder, played: PlayedRound) -> Truth:
    """Return which replicas of a round are wrong by what its clients know. Raises `UsageError` for a damaged folder."""
    whole = folder.path / WHOLE_HISTORY
    log = client_log_of(read_lines(whole if whole.exists() else folder.history_path))
    retained = {topic.name for topic in played.plan.topics if RETENTION_POLICY in _policy(topic.settings)}
    return compare(log, replicas_of(folder), retained)


def _policy(settings: Mapping[str, str]) -> str:
    return settings.get("cleanup.policy", "")


def replicas_of(folder: RunFolder) -> dict[Replica, ReplicaLog]:
    """Return what each replica of a round holds from the log start on that its broker served."""
    found: dict[Replica, ReplicaLog] = {}
    for path in sorted((folder.path / "brokers").glob(f"*/{AFTER_REJOIN}/*/")):
        broker = int(path.parts[-3])
        topic, _, partition = path.name.rpartition("-")
        served = folder.fetched_snapshot(broker, AFTER_REJOIN) / path.name / STATE
        log_start = json.loads(served.read_text())["log_start"] if served.exists() else 0
        found[broker, (topic, int(partition))] = read_replica(path, log_start)
    return found


def check(session: SparkSession, folders: Sequence[RunFolder]) -> dict[str, Checked]:
    """Run the checkers of runs over rounds, all in one job, and return what they say by run id.

    A checker that raises ends no other, and counts in every round.
    """
    for folder in folders:
        whole = folder.path / WHOLE_HISTORY
        if not whole.exists():
            folder.history_path.rename(whole)
        folder.write_lines(folder.history_path, events_for_checkers(read_lines(whole)))
    judged = judge(load(session, folders))
    with threads(session, THREADS) as pool:
        rows, raised = each(TABLES, lambda name: dictionaries(TABLES[name](judged)), using=pool.map)
    return {folder.run_id: _checked(folder.run_id, rows, raised) for folder in folders}


def _checked(run_id: str, rows: Mapping[str, list[dict[str, Any]]], raised: Mapping[str, str]) -> Checked:
    own = {name: [row for row in some if row["run"] == run_id] for name, some in rows.items()}
    contradictions = [one for one in own.get("doubts", []) if one["kind"] == doubts.CONTRADICTION]
    distrusted = [(one["topic"], one["partition"], one["broker"]) for one in contradictions]
    guarantees = guarantee_results(own.get(CHECKER), distrusted, raised.get(CHECKER, ""))
    found = [finding_of(row) for name in FINDERS for row in own.get(name, [])]
    return Checked(found, guarantees, contradictions, dict(raised))


def audit(session: SparkSession, rounds: Mapping[RunFolder, Iterable[int]]) -> dict[str, dict[str, Any]]:
    """Return the verdict of an audit of each round's disks, by run id; it knows nothing of clients.

    ``rounds``: with their brokers.
    """
    copies = [
        find_copies({b: [folder.broker_snapshot(b, AFTER_REJOIN)] for b in brokers}, ["*"], folder.run_id)
        for folder, brokers in rounds.items()
    ]
    rows = judge_copies(session, copies)
    return {one.run_id: assemble(one, rows, timings_s={}, context=context_of_copies(one)) for one in copies}


def verdict_of(
    played: PlayedRound,
    truth: Truth | None,
    checked: Checked | None,
    audited: Mapping[str, Any] | None,
    expected: Collection[str] = (),
) -> dict[str, Any]:
    """Return the content of a round's ``verdict.json``.

    ``findings``: one a replica and name, with ``found_by`` and how many things it is wrong about. ``unexplained``:
    things without a name. ``audit``: what it did against the truth, see `harness.soak.tally`. ``expected``: names that
    are tolerated: such findings are listed, and cause no anomaly.
    """
    if played.failure is not None or truth is None or checked is None or audited is None:
        return {
            "verdict": UNKNOWN, "reason": f"the round did not go to its end: {played.failure}",
            "findings": [], "unexplained": [], "guarantees": [], "audit": None,
        }  # fmt: skip
    findings, unexplained = _findings(truth, checked)
    tallied = tally(truth, audited)
    unexplained += [
        _unexplained("audit", f"the audit {what}: {to_json(one['finding'])}", **_place(one["finding"]))
        for what, some in (("accuses a right replica", tallied.wrong), ("copies from a wrong one", tallied.harmful))
        for one in some
    ]
    news = [one for one in findings if one["anomaly"] not in expected]
    reasons = [
        *(f"unexplained: {one['explanation']}" for one in unexplained),
        *(f"checker {name} raised {error}" for name, error in checked.raised.items()),
        *(f"broker {one['broker']}, {one['topic']}-{one['partition']}: {one['reason']}" for one in checked.doubts),
    ]
    replicas = len(truth.wrongs)
    verdict, reason = (
        (ANOMALY, _line(news[0]))
        if news
        else (UNKNOWN, reasons[0])
        if reasons
        else (CLEAN, f"{replicas} replicas were read whole and give what clients know")
    )
    return {
        "verdict": verdict,
        "reason": reason,
        "findings": findings,
        "unexplained": unexplained,
        "guarantees": list(checked.guarantees),
        "audit": tallied.as_json(),
        "doubts": [{name: one[name] for name in ("broker", "topic", "partition", "reason")} for one in checked.doubts],
        "checker_errors": dict(checked.raised),
    }


def _by_checkers(
    truth: Truth, names: Mapping[Replica, Mapping[str, Iterable[Wrong]]], found: Iterable[dict[str, Any]]
) -> tuple[dict[Replica, dict[str, list[dict[str, Any]]]], set[Replica]]:
    """Return what the checkers found on each replica by name, and the replicas where clients can name the nameless."""
    by_name: dict[Replica, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    agreed: set[Replica] = set()
    for one in found:
        tp, key = (one["topic"], one["partition"]), (one["key"] or {}).get("text")
        replica = (one["broker"], tp)
        if one["offset"] < truth.log_starts.get(replica, 0):
            # What is left of a transaction below the log start, whose marker was removed since, is open for nobody.
            continue
        if one["anomaly"] != UNEXPLAINED_DIVERGENCE:
            by_name[replica][one["anomaly"]].append(one)
        elif key in _named_keys(names.get(replica, {})):
            # Clients know it for an aborted delete that this replica has carried out, and cleaned away.
            agreed.add(replica)
        elif (tp, key) not in truth.unknown_keys:
            # Else a delete without an acknowledgement may have been written, and compacted away with what it deleted.
            by_name[replica][UNEXPLAINED_DIVERGENCE].append(one)
    return by_name, agreed


def _findings(truth: Truth, checked: Checked) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    names = named(truth)
    by_checkers, agreed = _by_checkers(truth, names, checked.findings)
    findings, unexplained = [], []
    for replica in sorted(names.keys() | by_checkers.keys()):
        broker, (topic, partition) = replica
        ours, theirs = names.get(replica, {}), by_checkers.get(replica, {})
        place: dict[str, Any] = {"broker": broker, "topic": topic, "partition": partition}
        for name in sorted((ours.keys() | theirs.keys()) - {UNEXPLAINED, UNEXPLAINED_DIVERGENCE}):
            wrongs, rows = ours.get(name, []), theirs.get(name, [])
            findings.append(
                {
                    "anomaly": name,
                    **place,
                    "count": max(len(wrongs), len(rows)),
                    "found_by": [*([CLIENTS] if wrongs else []), *([CHECKERS] if rows else [])],
                    "explanation": rows[0]["explanation"] if rows else _words(wrongs[0]),
                    "witness": rows[0]["witness"] if rows else vars(wrongs[0]),
                }
            )
        nameless = [(CLIENTS, _words(wrong)) for wrong in ours.get(UNEXPLAINED, [])]
        nameless += [(CHECKERS, row["explanation"]) for row in theirs.get(UNEXPLAINED_DIVERGENCE, [])]
        unexplained += [_unexplained(found_by, text, **place) for found_by, text in nameless]
        if not (ours and theirs) and replica not in agreed:
            found_by, others = (CLIENTS, "checkers find") if ours else (CHECKERS, "by what clients know there is")
            what = ", ".join(sorted(ours or theirs))
            unexplained.append(_unexplained(found_by, f"{what}, and {others} nothing wrong with this replica", **place))
    wrong_places = {(one["topic"], one["partition"]) for one in findings}
    for guarantee in checked.guarantees:
        for violation in guarantee["violations"]:
            at = _place(violation)
            if (at["topic"], at["partition"]) not in wrong_places:
                text = f"the guarantee {guarantee['guarantee']} is violated: {violation['explanation']}"
                unexplained.append(_unexplained(CHECKERS, text, **at))
    return findings, unexplained


def _named_keys(names: Mapping[str, Iterable[Wrong]]) -> set[str]:
    """Return the keys of what a replica is wrong about and that has a name."""
    return {wrong.key for name, wrongs in names.items() if name != UNEXPLAINED for wrong in wrongs}


def _unexplained(found_by: str, explanation: str, **place: Any) -> dict[str, Any]:
    return {"found_by": found_by, **place, "explanation": explanation}


def _place(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {name: finding[name] for name in ("broker", "topic", "partition")}


def _words(wrong: Any) -> str:
    at = "" if wrong.offset is None else f" at offset {wrong.offset}"
    return f"{wrong.kind}: key {wrong.key}{at}: here {wrong.here}, by clients {wrong.truth}"


def _line(finding: Mapping[str, Any]) -> str:
    where = f"broker {finding['broker']}, {finding['topic']}-{finding['partition']}"
    return f"{finding['anomaly']} on {where}: {finding['explanation']}"


def judge_rounds(
    session: SparkSession, rounds: Mapping[RunFolder, PlayedRound], expected: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Judge rounds that were played, by all three; return their verdicts by run id. Raises `UsageError` for damage.

    Several rounds at once cost little more than one: most of the time is planning.
    """
    whole = {folder: one for folder, one in rounds.items() if one.failure is None}
    verdicts = {folder.run_id: verdict_of(one, None, None, None) for folder, one in rounds.items() if one.failure}
    if whole:
        truths = {folder.run_id: truth_of(folder, one) for folder, one in whole.items()}
        checked = check(session, list(whole))
        audited = audit(session, {folder: one.plan.brokers for folder, one in whole.items()})
        for folder, one in whole.items():
            name = folder.run_id
            verdicts[name] = verdict_of(one, truths[name], checked[name], audited[name], expected)
    return verdicts
