"""The expected result of an audit of copied log directories, and the names that the cases share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checker_cases.case import DIVERGED, HIDDEN, POISON, Finding
from copied import Copy, copy
from literal import Entry

from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN

ANY = (DIVERGED, POISON, HIDDEN)
HANGING, UNEXPLAINED = "hanging-transaction", "unexplained-divergence"


def undecided(*place: Any, **more: Any) -> Finding:
    """Return a finding that accuses nobody; its broker is the described broker."""
    return replace(Finding(*place, **more), decided=False)


@dataclass(frozen=True)
class Case:
    """Copies of one partition, and all that an audit must say of them; ``says`` is in the partition's reason.

    ``spoil`` changes files in the folder of log directories, for which ``says`` has ``{top}``.
    """

    name: str
    copies: tuple[Copy, ...]
    verdict: str
    findings: tuple[Finding, ...] = ()
    says: str = ""
    spoil: Callable[[Path], None] = lambda _: None


def both(*log: Entry, **fields: Any) -> tuple[Copy, Copy]:
    """Return two replicas with the same log."""
    return copy(1, *log, **fields), copy(2, *log, **fields)


def clean(name: str, *copies: Copy, **more: Any) -> Case:
    return Case(name, copies, CLEAN, **{"says": f"{len(copies)} replicas were read to offset", **more})


def unknown(name: str, *copies: Copy, says: str, **more: Any) -> Case:
    return Case(name, copies, UNKNOWN, says=says, **more)


def anomaly(name: str, *copies_and_findings: Copy | Finding) -> Case:
    copies = tuple(copied for copied in copies_and_findings if isinstance(copied, Copy))
    findings = tuple(finding for finding in copies_and_findings if isinstance(finding, Finding))
    return Case(name, copies, ANOMALY, findings, findings[0].says)
