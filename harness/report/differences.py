"""The differences between a run and the previous run of the same kind: verdicts, findings and settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.escape import to_json
from harness.report.headlines import headline
from harness.run_folder.store import protection_of

if TYPE_CHECKING:
    from harness.report.stored import StoredRun

_INCIDENTAL: Final = frozenset({"command", "evidence", "owner", "run_id", "timings_s"})
"""Fields of a manifest that differ between any two runs."""


@dataclass(frozen=True)
class ComparedText:
    """A verdict, a finding or a setting in both runs, as text; "" where a run does not have it."""

    name: str
    before: str
    after: str


def previous_runs(runs: Sequence[StoredRun]) -> dict[str, StoredRun]:
    """Return the previous run of the same target, test and protection, by run name. ``runs``: oldest first."""
    previous: dict[str, StoredRun] = {}
    last: dict[tuple[str, ...], StoredRun] = {}
    for run in runs:
        names = (run.manifest[name] for name in ("anomaly", "nemesis", "client"))
        kind = run.manifest["target"]["name"], *names, protection_of(run.manifest) or ""
        if kind in last:
            previous[run.name] = last[kind]
        last[kind] = run
    return previous


def difference(before: StoredRun, after: StoredRun) -> dict[str, list[ComparedText]]:
    """Compare ``verdicts``, ``findings`` and ``settings`` of two runs; of settings only the different ones."""

    def compare(texts: Callable[[StoredRun], Mapping[str, str]]) -> list[ComparedText]:
        old, new = texts(before), texts(after)
        return [ComparedText(name, old.get(name, ""), new.get(name, "")) for name in dict.fromkeys([*new, *old])]

    def settings(run: StoredRun) -> dict[str, str]:
        return dict(_flat({name: value for name, value in run.manifest.items() if name not in _INCIDENTAL}))

    # Each version has different jars.
    is_same_version = before.manifest["target"]["version"] == after.manifest["target"]["version"]
    changes = [text for text in compare(settings) if text.before != text.after]
    return {
        "verdicts": compare(lambda run: {scenario.scenario: scenario.verdict for scenario in run.verdict.scenarios}),
        "findings": compare(_findings),
        "settings": [change for change in changes if is_same_version or not change.name.startswith("jars.")],
    }


def _findings(run: StoredRun) -> dict[str, str]:
    sentences: dict[str, list[str]] = defaultdict(list)
    for finding in run.verdict.findings:
        name = f"{finding.anomaly} on broker {finding.broker}, {finding.topic}-{finding.partition}"
        sentences[name].append(headline(finding))
    return {name: "; ".join(of_name) for name, of_name in sentences.items()}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of nested objects, with its names joined by dots."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value if isinstance(value, str) else to_json(value)
