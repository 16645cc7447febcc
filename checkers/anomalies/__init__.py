"""One anomaly a file, which ends with its `Finder`: which rows of the evidence show it, and what a finding says.

The four of a run, and three more of audits, which know of no client. What a broker believes is in `checkers.replay`;
who is wrong is decided in `checkers.attribution`.
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
"""By the names of their modules."""
MEANS = {finder.name: finder.means for finder in FINDERS.values() if finder.means}
"""What findings mean, by the names of anomalies."""
