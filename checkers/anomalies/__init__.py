"""One file for each anomaly, which ends with its `Finder`; other packages offer more (`harness.plugins`)."""

import logging
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from checkers.finding import Finder
from harness.schedules.catalog import PLUGINS

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
