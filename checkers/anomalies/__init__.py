"""One file for each anomaly, which ends with its `Finder`; other packages offer more (`harness.plugins`).

Runs are checked for four anomalies, and audits, which have no history of clients, for three more. `checkers.replay`
derives the beliefs of brokers; `checkers.attribution` decides which replica is wrong.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from harness.schedules.catalog import PLUGINS

if TYPE_CHECKING:
    from checkers.finding import Finder

log = logging.getLogger("harness")


def _of_plugins() -> Iterator[tuple[str, Finder]]:
    for name, anomaly in PLUGINS.contents.items():
        try:
            finder = import_module(anomaly.finder).FINDER
            yield finder.name, finder
        except Exception as error:  # noqa: BLE001  (a plugin may raise anything)
            log.warning("%s of %s is not checked: %s: %s", name, PLUGINS.origin(name), type(error).__name__, error)


FINDERS: dict[str, Finder] = {
    **{module.name: import_module(f"{__name__}.{module.name}").FINDER for module in pkgutil.iter_modules(__path__)},
    **dict(_of_plugins()),
}
"""Finders by module name; finders of plugins by anomaly."""
MEANS = {finder.name: finder.means for finder in FINDERS.values() if finder.means}
"""Meanings of findings, by anomaly."""
