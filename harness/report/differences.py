"""What differs between a run and the previous one of the same kind: verdicts, findings and settings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.escape import to_json
from harness.judge.protected import protection_of
from harness.report.headlines import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.report.stored.runs import StoredRun

_INCIDENTAL: Final = frozenset({"command", "evidence", "owner", "run_id", "timings_s"})
"""Fields of a manifest that differ between any two runs."""

_JARS: Final = "jars."


@dataclass(frozen=True)
class ComparedText:
    """A verdict, a finding or a setting in both runs, as text; "" where a run does not have it."""

    name: str
    before: str
    after: str

    @property
    def is_change(self) -> bool:
        """Whether the runs differ here."""
        return self.before != self.after


@dataclass(frozen=True)
class RunDifference:
    """A run compared with an earlier one. ``settings``: of the manifests, only those that differ."""

    before: StoredRun
    after: StoredRun
    verdicts: Sequence[ComparedText]
    findings: Sequence[ComparedText]
    settings: Sequence[ComparedText]


def previous_runs(runs: Sequence[StoredRun]) -> dict[str, StoredRun]:
    """Return the previous run of the same target, anomaly, nemesis and client, with the same protection, by its name.

    ``runs``: oldest first.
    """
    previous: dict[str, StoredRun] = {}
    last: dict[tuple[str, ...], StoredRun] = {}
    for run in runs:
        names = ("anomaly", "nemesis", "client")
        protection = protection_of(run.manifest)
        kind = run.manifest["target"]["name"], *(run.manifest[name] for name in names), protection or ""
        if kind in last:
            previous[run.name] = last[kind]
        last[kind] = run
    return previous


def difference(before: StoredRun, after: StoredRun) -> RunDifference:
    """Compare two runs."""

    def changes(texts: Callable[[StoredRun], Mapping[str, str]]) -> list[ComparedText]:
        old, new = texts(before), texts(after)
        return [ComparedText(name, old.get(name, ""), new.get(name, "")) for name in dict.fromkeys([*new, *old])]

    # Each version has jars of its own.
    are_of_one_version = before.manifest["target"]["version"] == after.manifest["target"]["version"]
    settings = [
        change
        for change in changes(_settings)
        if change.is_change and (are_of_one_version or not change.name.startswith(_JARS))
    ]
    return RunDifference(before, after, changes(_verdicts), changes(_findings), settings)


def _verdicts(run: StoredRun) -> dict[str, str]:
    return {scenario.scenario: scenario.verdict for scenario in run.verdict.scenarios}


def _findings(run: StoredRun) -> dict[str, str]:
    sentences: dict[str, list[str]] = defaultdict(list)
    for finding in run.verdict.findings:
        name = f"{finding.anomaly} on broker {finding.broker}, {finding.topic}-{finding.partition}"
        sentences[name].append(headline(finding))
    return {name: "; ".join(of_name) for name, of_name in sentences.items()}


def _settings(run: StoredRun) -> dict[str, str]:
    return dict(_flat({name: value for name, value in run.manifest.items() if name not in _INCIDENTAL}))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of nested objects, with its names joined by dots."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value if isinstance(value, str) else to_json(value)
