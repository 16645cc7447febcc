"""Causes that give a finding of a round its name: one file each, which declares ``CAUSE``."""

from __future__ import annotations

import pkgutil
from graphlib import TopologicalSorter
from importlib import import_module
from typing import TYPE_CHECKING

from harness.soak.causes.cause import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.soak.causes.cause import Cause, RoundEvidence, Symptom


def declared_in(modules: Iterable[object]) -> dict[str, Cause]:
    """Return the causes that modules declare, by name, each after every cause that is declared to come before it.

    Raises ValueError for a circle, and KeyError for an unknown name in `Cause.before`.
    """
    causes = {module.CAUSE.name: module.CAUSE for module in modules if hasattr(module, "CAUSE")}
    order = TopologicalSorter[str]({name: [] for name in sorted(causes)})
    for name, cause in sorted(causes.items()):
        for later in cause.before - {name}:
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
