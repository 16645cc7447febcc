"""One file for each anomaly, which ends with its `Finder`.

Runs are checked for four anomalies, and audits, which have no history of clients, for three more. `checkers.replay`
derives the beliefs of brokers; `checkers.attribution` decides which replica is wrong.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkers.finding import Finder

FINDERS: dict[str, Finder] = {
    module.name: import_module(f"{__name__}.{module.name}").FINDER for module in pkgutil.iter_modules(__path__)
}
"""Finders by module name."""
MEANS = {finder.name: finder.means for finder in FINDERS.values() if finder.means}
"""Meanings of findings, by anomaly."""
