"""Known bugs of Kafka, shown on real brokers: on a version that has the bug, and on one that has its fix.

    python bench/known_bugs.py show KAFKA-13194 --version 3.0.2
    python bench/known_bugs.py show all --record results/track-record.jsonl

Prints a line of JSON for each version: whether the bug was seen, the evidence, and how long it took, from nothing to
the answer, brokers booted and stopped included. The page is docs/explanation/track-record.md.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import known_bugs_cleaner as cleaner
import known_bugs_groups as groups
import known_bugs_transactions as transactions

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class KnownBug:
    """A bug, with an affected and a fixed version. ``show``: returns whether a version shows the bug, and how."""

    issue: str
    affected: str
    fixed: str
    show: Callable[[str], tuple[bool, str]]


BUGS = (
    KnownBug("KAFKA-13194", "3.0.2", "3.1.2", cleaner.uncommitted_supersedes_committed),
    KnownBug("KAFKA-13727", "3.1.0", "3.1.2", cleaner.partial_pass_loses_aborts),
    KnownBug("KAFKA-17306", "3.9.2", "4.0.2", groups.tombstones_first),
    KnownBug("KAFKA-20254", "4.2.0", "4.2.1", groups.offsets_before_streams_group),
    KnownBug("KAFKA-19367", "4.0.0", "4.0.2", transactions.epoch_bumped_twice),
)
BY_ISSUE = {bug.issue: bug for bug in BUGS}
ALL = "all"


@click.group()
def main() -> None:
    """Show known bugs of Kafka on real brokers."""


@main.command()
@click.argument("issue", type=click.Choice([*BY_ISSUE, ALL]))
@click.option("--version", help="Another version than the affected one and the fixed one.")
@click.option("--record", type=click.Path(path_type=Path), help="A file to append the lines to.")
def show(issue: str, version: str | None, record: Path | None) -> None:
    """Show a bug on its affected and on its fixed version; exit with 1 where it was seen anywhere."""
    any_seen = False
    for bug in BUGS if issue == ALL else (BY_ISSUE[issue],):
        for one in (version,) if version else (bug.affected, bug.fixed):
            began_s = time.monotonic()
            seen, evidence = bug.show(one)
            took_s = round(time.monotonic() - began_s, 1)
            any_seen |= seen
            line = json.dumps(
                {"issue": bug.issue, "version": one, "seen": seen, "took_s": took_s, "evidence": evidence}
            )
            click.echo(line)
            if record:
                with record.open("a", encoding="utf-8") as lines:
                    lines.write(f"{line}\n")
    raise SystemExit(EXIT_ANOMALY if any_seen else EXIT_CLEAN)


if __name__ == "__main__":
    main()
