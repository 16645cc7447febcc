"""A mutant in place of a module, with all judging modules loaded again around it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mutants import Mutant
from pyspark import cloudpickle

PACKAGE: Final = "checkers"
JUDGES: Final = ("harness.judge.check", "harness.audit.judge_copies")


@dataclass(frozen=True)
class Code:
    """The modules that judge runs and copies, and all of theirs by name."""

    runs: Any
    copies: Any
    modules: dict[str, ModuleType]


@contextmanager
def in_place(mutant: Mutant) -> Iterator[Code]:
    """Load all checkers and their callers with the mutant in place of its module; then restore the modules.

    Spark's Python workers receive the code of all checkers: a checker that a worker imports would have no mutant.
    """
    kept = _taken_out()
    by_value: Any = cloudpickle
    checkers = import_module(PACKAGE)
    by_value.register_pickle_by_value(checkers)
    try:
        _put(mutant)
        runs, copies = map(import_module, JUDGES)
        yield Code(runs, copies, {name: module for name, module in sys.modules.items() if _is_ours(name)})
    finally:
        by_value.unregister_pickle_by_value(checkers)
        _taken_out()
        sys.modules.update(kept)
        for name, module in kept.items():
            above, _, last = name.rpartition(".")
            if above:
                setattr(sys.modules[above], last, module)


def _put(mutant: Mutant) -> None:
    module = ModuleType(mutant.module)
    module.__file__ = mutant.code.co_filename
    sys.modules[mutant.module] = module
    above, _, last = mutant.module.rpartition(".")
    # Before its package, which may collect what its modules define: its neighbours are imported without the package.
    if is_first := above not in sys.modules:
        sys.modules[above] = empty = ModuleType(above)
        empty.__path__ = [str(Path(mutant.code.co_filename).parent)]
    exec(mutant.code, module.__dict__)  # noqa: S102  (the code of the project itself, but for one change)
    if is_first:
        del sys.modules[above]
    import_module(above)
    setattr(sys.modules[above], last, module)


def _is_ours(name: str) -> bool:
    return name in JUDGES or name.partition(".")[0] == PACKAGE


def _taken_out() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
