"""Random outages of real brokers with the gate: does any replica diverge? Rounds as those of `blame`, and resumable.

    python bench/gate_outages.py --target kafka-4.4 --outages 50 --minutes 6 --evidence DIR

Each round boots three brokers with the gate, takes one or two of them away under random traffic (SIGKILL or SIGSTOP),
brings each back, and holds every replica against what clients know (`harness.soak.judge.truth`). Rounds that have a
result in the folder are counted and not played again; no round begins once the minutes are over. The log directories of
a round with a wrong replica are kept. Exits 1 where there is one.
"""

from __future__ import annotations

import json
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

import click
from blame import raise_if_served_otherwise, replicas_of
from random_outages import Round, played
from random_traffic import load_client_log

from harness.clients import ClientError
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, HarnessError
from harness.host.clock import RealClock
from harness.soak.judge.truth import compare

OUTAGE = ("kill ", "pause ")
"""The first words of a step that takes a broker down."""
RESULT = "result.json"


def play(round_: Round, folder: Path) -> dict[str, Any]:
    """Play a round and return its result. Raises `HarnessError` and `ClientError` where it does not count."""
    with played(round_, folder) as one:
        pass
    replicas = replicas_of(folder)
    raise_if_served_otherwise(one.served, replicas)
    truth = compare(load_client_log(folder / "clients.json"), replicas)
    wrong = {
        f"broker {b}, {topic}-{n}": list(map(str, found)) for (b, (topic, n)), found in truth.wrongs.items() if found
    }
    return {
        "target": round_.target, "version": one.version, "seed": round_.seed, "partitions": round_.partitions,
        "outages": sum(step.startswith(OUTAGE) for step in one.steps), "steps": one.steps, "wrong": wrong,
    }  # fmt: skip


@click.command()
@click.option("--target", default="kafka-4.4", show_default=True)
@click.option("--outages", default=50, show_default=True, help="Outages over all rounds.")
@click.option("--minutes", default=60.0, show_default=True, help="No round begins after that.")
@click.option("--seed", default=1, show_default=True, help="Of the first round.")
@click.option("--partitions", default=48, show_default=True)
@click.option("--without-gate", is_flag=True, help="The same outages without the gate, for comparison.")
@click.option("--evidence", type=click.Path(path_type=Path), required=True, help="Folder that keeps the rounds.")
def main(  # noqa: PLR0917
    target: str,
    outages: int,
    minutes: float,
    seed: int,
    partitions: int,
    without_gate: bool,  # noqa: FBT001
    evidence: Path,
) -> None:
    """Play rounds until there are so many outages, and print the counts."""
    clock = RealClock()
    end_s, played_, wrong = clock.now_s() + 60 * minutes, 0, 0
    for number in count(seed):
        folder = (evidence / f"{target}-{number}").absolute()
        path = folder / RESULT
        if not path.exists():
            if clock.now_s() >= end_s:
                break
            shutil.rmtree(folder, ignore_errors=True)  # of a round that was cut off
            try:
                result = play(Round(target, number, partitions, is_gated=not without_gate), folder)
            except (HarnessError, ClientError) as error:
                print(f"{folder.name}: this round does not count: {error}", file=sys.stderr, flush=True)
                continue
            if not result["wrong"]:
                shutil.rmtree(folder / "brokers")
            path.write_text(json.dumps(result, indent=1))
        result = json.loads(path.read_text())
        played_ += result["outages"]
        wrong += len(result["wrong"])
        for where, found in result["wrong"].items():
            print(f"WRONG {folder.name}, {where}: {found[0]}")
        print(f"{folder.name}: {'; '.join(result['steps'])}", flush=True)
        if played_ >= outages:
            break
    print(f"{target}: {played_} of {outages} outages, {wrong} replicas wrong")
    sys.exit(EXIT_ANOMALY if wrong else EXIT_CLEAN if played_ >= outages else EXIT_UNKNOWN)


if __name__ == "__main__":
    main()
