"""Causes, which give findings of rounds their names: one file each, which declares ``CAUSE``; and tolerated names."""

import pkgutil
from collections.abc import Iterable
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from harness.errors import UsageError
from harness.soak.causes.cause import Cause, Diagnosis, RoundEvidence, Symptom
from harness.suggest import known_name
from harness.toml_tables import expect_entries


def declared_in(modules: Iterable[object]) -> dict[str, Cause]:
    """Return the causes that modules declare, by name, each after every cause that is declared to come before it.

    Raises ValueError for a circle, and KeyError for an unknown name in `Cause.before`.
    """
    causes = {module.CAUSE.name: module.CAUSE for module in modules if hasattr(module, "CAUSE")}
    order = TopologicalSorter[str]({name: [] for name in sorted(causes)})
    for name, cause in sorted(causes.items()):
        for later in sorted(cause.before - {name}):
            order.add(causes[later].name, name)
    return {name: causes[name] for name in order.static_order()}


CAUSES = declared_in(import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
"""Every cause by its name, in the order in which they are asked."""
NAMES = tuple(sorted(name for name, cause in CAUSES.items() if cause.is_anomaly))
"""The names of findings."""


def diagnose(evidence: RoundEvidence, symptoms: Iterable[Symptom]) -> dict[Symptom, Diagnosis]:
    """Return the first cause that explains each symptom. A symptom that none explains is left out."""
    diagnoses: dict[Symptom, Diagnosis] = {}
    rest = list(symptoms)
    for name, cause in CAUSES.items():
        diagnoses |= {symptom: Diagnosis(name, str(words)) for symptom, words in cause.explain(evidence, rest).items()}
        rest = [symptom for symptom in rest if symptom not in diagnoses]
    return diagnoses


def read_expected(path: Path) -> dict[str, str]:
    """Return why each finding is tolerated, by its name, from a file for ``--expect``, in TOML.

    Entries ``[[expect]]``, each with ``findings``, a list of names, and ``why``. Raises `UsageError` for other content.
    """
    expected: dict[str, str] = {}
    for entry, place in expect_entries(path, str(path)):
        names, why = entry.get("findings"), entry.get("why")
        if set(entry) != {"findings", "why"} or not isinstance(names, list) or not isinstance(why, str) or not why:
            raise UsageError(f"{place}: give findings, a list of names, and why they are tolerated")
        for name in names:
            expected[known_name("finding", str(name), NAMES, f"{place}: ")] = why
    return expected
