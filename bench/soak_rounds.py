"""Rounds of `harness soak` an hour on real brokers, operations a second while faults go on, and memory in all.

    python bench/soak_rounds.py --target kafka-4.4 --minutes 30 --seed 1
    python bench/soak_rounds.py --target kafka-4.4 --minutes 30 --seed 1 --gate
    python bench/soak_rounds.py --target kafka-4.3+CLASSES --minutes 30 --seed 1

Needs a machine on which nothing else runs. Prints a line for each round, and the figures; exits as the soak does. A
soak whose process ends by a signal is resumed: librdkafka does that now and then, by an assertion or a double free.
Python says then what each of its threads was doing.
``--record`` appends a line for each round to a file: ``results/soaks.jsonl`` adds up the hours of many soaks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from peak import Peak

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN = resources.files("harness.nightly") / "known.toml"
SOAKS = "*/soak/*"


def recorded(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what is kept of each round of a soak: of reasons the first line, without where the soak lies."""
    names = ("seed", "verdict", "reason", "findings", "unexplained", "operations", "gates", "took_s")
    # Of a build of one's own, the name that it has in results, and not where it lies.
    target = Path(content["folder"]).parents[1].name
    common = {"date": datetime.now(UTC).date().isoformat(), "target": target, "gate": content["gate"]}
    for one in content["rounds"]:
        reason = one["reason"].partition("\n")[0].replace(f"{content['folder']}/", "")
        yield {**common, **{name: one[name] for name in names}, "reason": reason}


def run(*arguments: str) -> tuple[int, bytes, float]:
    """Soak; return the exit code, the output, and the peak memory in all, in GiB."""
    command = [sys.executable, "-m", "harness.cli.main", "soak", *arguments, "--format", "json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONFAULTHANDLER": "1"})
    peak = Peak(running.pid)
    printed, _ = running.communicate()
    return running.returncode, printed, peak.stop_gib()


@click.command()
@click.option("--target", default="kafka-4.4", show_default=True)
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--gate", is_flag=True)
@click.option("--rate", default=330.0, show_default=True, help="Operations a second that are asked for.")
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--record", type=click.Path(path_type=Path), help="Append a line for each round there.")
def main(  # noqa: PLR0917
    target: str,
    minutes: float,
    seed: int,
    gate: bool,  # noqa: FBT001
    rate: float,
    results: Path,
    record: Path | None,
) -> None:
    """Soak, and measure it."""
    # A build with the gate's rules is expected to show no known anomaly, either.
    given = ["--gate"] if gate else [] if "+" in target else ["--expect", str(KNOWN)]
    known = set(results.glob(SOAKS))
    code, printed, peak_gib = run(
        "--target", target, "--runtime", "local", "--minutes", str(minutes), "--seed", str(seed), "--rate", str(rate),
        *given, "--results", str(results),
    )  # fmt: skip
    while code < 0:
        print(f"the soak ended by signal {-code}, and is resumed")
        (folder,) = set(results.glob(SOAKS)) - known
        code, printed, more_gib = run("--resume", str(folder))
        peak_gib = max(peak_gib, more_gib)
    content = json.loads(printed)
    ended = [one for one in content["rounds"] if one["groups"] is not None]
    for one in content["rounds"]:
        print(f"{one['name']} (seed {one['seed']}): {one['verdict']}: {one['reason'][:160]}")
    per_s = sum(one["operations"] for one in ended) / max(sum(one["took_s"]["play"] for one in ended), 1)
    print(f"{len(content['rounds'])} rounds, {len(ended)} to their end, in {content['took_s'] / 60:.1f} minutes")
    print(f"{len(content['rounds']) / content['took_s'] * 3600:.0f} rounds an hour, {per_s:.0f} operations a second")
    print(f"findings: {content['findings']}, unexplained: {content['unexplained']}, audit: {content['audit']}")
    print(f"gates: {content['gates']}; groups: {content['groups']}")
    print(f"memory: {peak_gib:.1f} GiB; {content['folder']}")
    if record is not None:
        with record.open("a") as lines:
            lines.writelines(json.dumps(line) + "\n" for line in recorded(content))
    sys.exit(code)


if __name__ == "__main__":
    main()
