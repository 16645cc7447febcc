"""Whom do audits accuse? Real brokers under random traffic and outages, where clients know the truth.

    python bench/blame.py run --target kafka-3.9 --target kafka-4.4 --rounds 5 --seed 1 --evidence DIR
    python bench/blame.py again --evidence DIR          audits the stored folders once more, by the code of today

Each round boots three brokers, takes one or two of them away under random traffic, brings each back, and then audits
four times: ``live`` while the brokers run (with ``--load`` also while clients write), ``live, metadata log`` with
``--controllers``, ``disk`` with their whole log directories, and ``disk, no metadata log`` without
``__cluster_metadata``. Which replicas are wrong is read from their
files, without the checkers (`harness.soak.judge.truth`), and held against what a consumer of each broker is served. A
finding that does not say whether it is decided counts as an accusation. ``right by luck``: the accused broker missed a
marker, and the next marker says the same, so the broker serves the right records. ``called clean`` and ``nothing
wrong`` are partitions. Exits 1 where an accusation is wrong, or where the commands of a finding have a replica copied
from one that is wrong where it is right itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from random_outages import BROKERS, Round, played
from random_traffic import load_client_log
from rich.console import Console
from rich.table import Table

from harness.audit.judge_copies import assemble, judge_copies
from harness.broker_files.copies.copies import find_copies
from harness.clients import ClientError
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, HarnessError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.json_codec import from_json, to_json
from harness.judge.sessions import CHECKS
from harness.judge.verdict import CLEAN, Verdict
from harness.run_folder.store import new_run_id
from harness.soak.evidence.replica_log import final_state, read_replica
from harness.soak.judge.audit_tally import tally
from harness.soak.judge.truth import Truth, compare
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from served_states import Served

    from harness.soak.evidence.replica_log import Replica, ReplicaLog

BUSY, LIVE, DISK, DISK_ALONE = "live, under load", "live", "disk", "disk, no metadata log"
LIVE_WITH_LOG = "live, metadata log"
FILES = {
    BUSY: "busy.json",
    LIVE: "live.json",
    LIVE_WITH_LOG: "live-with-log.json",
    DISK: "disk.json",
    DISK_ALONE: "disk-alone.json",
}
TOPICS = "blame-*"
AUDITED = {EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN}


def audit_live(bootstrap: str, *options: str) -> dict[str, Any]:
    """Run ``harness audit live`` and return its verdict. Raises `HarnessError`."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", TOPICS, "--format", "json", *options]
    command = [sys.executable, "-m", "harness.cli.main", "audit", "live", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in AUDITED:
        raise HarnessError(f"harness audit live ended with {done.returncode}:\n{done.stderr}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def audit_under_load(folder: Path, bootstrap: str) -> None:
    """Audit a cluster that is being written to, and store the verdict."""
    store(folder, BUSY, audit_live(bootstrap))


def audit_disk(folders: Sequence[Path]) -> None:
    """Audit the log directories of stored rounds, with the metadata log and without, and store both verdicts.

    As ``harness audit disk`` does, but in one Spark session, and with one reading of the logs for both.
    """
    found = [
        find_copies({broker: [folder / "brokers" / str(broker)] for broker in BROKERS}, [TOPICS], folder.name)
        for folder in folders
    ]
    run_id = f"blame-{new_run_id()}"
    with (
        Workspace(run_id, Path.cwd()) as workspace,
        session_of(workspace, find_java(), SparkOptions(), [], CHECKS, outlives_jobs=True) as session,
    ):
        rows = judge_copies(session, found)
    for folder, copies in zip(folders, found, strict=True):
        for mode, given in ((DISK, copies), (DISK_ALONE, replace(copies, metadata=None))):
            store(folder, mode, to_json(assemble(given, rows, timings_s={})))


def store(folder: Path, mode: str, verdict: Mapping[str, Any]) -> None:
    """Write down a verdict with the commit that it is of."""
    (folder / FILES[mode]).write_text(json.dumps({**verdict, "commit": commit()}, indent=1))


def replicas_of(folder: Path) -> dict[Replica, ReplicaLog]:
    """Return what each replica of a stored round holds."""
    replicas = {}
    for broker in BROKERS:
        for path in (folder / "brokers" / str(broker)).glob(TOPICS):
            topic, _, partition = path.name.rpartition("-")
            replicas[broker, (topic, int(partition))] = read_replica(path)
    return replicas


def raise_if_served_otherwise(served: Mapping[Replica, Served], replicas: Mapping[Replica, ReplicaLog]) -> None:
    """Raise `HarnessError` where a consumer was served another state than is read from the files: then no truth is."""
    for replica, one in served.items():
        read = final_state([held for held in replicas[replica].records if held.offset < one.last_stable_offset])
        if one.state != read:
            raise HarnessError(f"{replica}: a consumer is served {one.state}, and the files say {read}")


def commit() -> str:
    """Return the checkout's commit, with a mark where it was changed since."""
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).resolve().parent), "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def results_of(evidence: Path) -> list[dict[str, Any]]:
    """Return a row for each stored round and way to audit: round, mode, commit and tally."""
    rows = []
    for path in sorted(evidence.glob("*/round.json")):
        folder, played_ = path.parent, json.loads(path.read_text())
        truth = compare(load_client_log(folder / "clients.json"), replicas_of(folder))
        for mode, name in FILES.items():
            if (folder / name).exists():
                verdict = json.loads((folder / name).read_text())
                row = {key: played_[key] for key in ("target", "version", "seed", "partitions", "steps")}
                rows.append(
                    {
                        **row,
                        "mode": mode,
                        "commit": verdict["commit"],
                        **to_json(tally(truth, from_json(Verdict, verdict))),
                        **of_healthy(truth, verdict),
                    }
                )
    return rows


def of_healthy(truth: Truth, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many partitions did not diverge, how many of them are clean, and why the others are not."""
    healthy = [
        scenario
        for scenario in verdict["scenarios"]
        if (scenario["topic"], scenario["partition"]) not in truth.diverged
    ]
    reasons = [scenario["reason"] for scenario in healthy if scenario["verdict"] != CLEAN]
    return {
        "healthy": len(healthy),
        "healthy clean": len(healthy) - len(reasons),
        "reasons": reasons,
        "timings_s": verdict["timings_s"],
    }


@click.group()
def main() -> None:
    """Whom do audits accuse, and rightly?"""


evidence_option = click.option(
    "--evidence", type=click.Path(path_type=Path), required=True, help="Folder that keeps the rounds."
)
format_option = click.option(
    "--format", "output", type=click.Choice(("text", "json")), default="text", show_default=True
)


@main.command()
@click.option("--target", "targets", multiple=True, default=("kafka-3.9", "kafka-4.4"), show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Number of rounds of each target, by as many seeds.")
@click.option("--seed", default=1, show_default=True, help="The first one.")
@click.option("--partitions", default=48, show_default=True)
@click.option("--load", default=0, help="Audit also while so many records a second are written.")
@click.option("--load-keys", default=20, show_default=True, help="Number of keys of the load in each partition.")
@evidence_option
@format_option
def run(  # noqa: PLR0917
    targets: tuple[str, ...],
    rounds: int,
    seed: int,
    partitions: int,
    load: int,
    load_keys: int,
    evidence: Path,
    output: str,
) -> None:
    """Play the rounds that have no folder yet, audit each, and print what came of all of them.

    A round counts once it has its ``round.json``, which is written last.
    """
    for number in range(seed, seed + rounds):
        for target in targets:
            folder = (evidence / f"{target}-{number}").absolute()
            if folder.exists():
                continue
            try:
                drawn = Round(target, number, partitions, load_records_s=load, load_keys=load_keys)
                with played(drawn, folder, partial(audit_under_load, folder)) as round_:
                    store(folder, LIVE, audit_live(round_.bootstrap))
                    with_log = audit_live(round_.bootstrap, "--controllers", round_.controllers)
                    store(folder, LIVE_WITH_LOG, with_log)
                raise_if_served_otherwise(round_.served, replicas_of(folder))
                actual = {"target": target, "version": round_.version, "seed": number, "partitions": partitions}
                (folder / "round.json").write_text(json.dumps({**actual, "steps": round_.steps}, indent=1))
            except (HarnessError, ClientError) as error:
                print(f"{folder.name}: this round does not count: {error}", file=sys.stderr, flush=True)
    finish(evidence, output)


@main.command()
@evidence_option
@format_option
def again(evidence: Path, output: str) -> None:
    """Audit the stored log directories of every round again; verdicts on live clusters are not changed."""
    finish(evidence, output)


def finish(evidence: Path, output: str) -> None:
    """Audit all rounds on disk, print all results and exit by them."""
    folders = [path.parent.absolute() for path in sorted(evidence.glob("*/round.json"))]
    if not folders:
        raise click.UsageError(f"{evidence} has no whole round: there is nothing to audit")
    audit_disk(folders)
    rows = results_of(evidence)
    if output == "json":
        print(json.dumps(rows, indent=1))
    else:
        show(rows)
    sys.exit(EXIT_ANOMALY if any(row["wrong"] or row["harmful"] for row in rows) else EXIT_CLEAN)


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table by target and mode, and each wrong accusation."""
    console = Console(width=160)
    names = list(rows[0]["counts"])
    by_cell: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_cell[f"{row['target']}\n{row['mode']}\n{row['commit']}"].append({**row, **row["counts"], "rounds": 1})
    table = Table("", *sorted(by_cell))
    for name in ("rounds", "healthy", "healthy clean", *names):
        table.add_row(name, *(str(sum(row[name] for row in by_cell[cell])) for cell in sorted(by_cell)))
    console.print(table)
    for row in rows:
        place = f"{row['target']}-{row['seed']}, {row['mode']}"
        if row["mode"] == BUSY:
            console.print(f"{place}: {row['steps'][-1]}; {sum(row['timings_s'].values()):.0f} s", markup=False)
        for reason in row["reasons"]:
            console.print(f"not clean ({place}): {reason}", markup=False, soft_wrap=True)
        for name in ("wrong", "harmful"):
            for one in row[name]:
                console.print(f"{name.upper()} ({place}): {json.dumps(one)}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
