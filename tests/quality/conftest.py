"""Which cases are generated: fixed ones, unless asked for others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from generate import KINDS, LEGAL

# Mutants are held against the literal histories, too.
sys.path.append(str(Path(__file__).parents[1] / "unit"))

_LEGAL_RUNS = 600
_PLANTED_RUNS = 60


def _seeds(config: pytest.Config) -> dict[str, range]:
    first, runs = config.getoption("--quality-seed"), config.getoption("--quality-runs")
    kinds = config.getoption("--quality-kind") or KINDS
    return {kind: range(first, first + (runs or (_LEGAL_RUNS if kind == LEGAL else _PLANTED_RUNS))) for kind in kinds}


@pytest.fixture(scope="session")
def all_seeds(request: pytest.FixtureRequest) -> dict[str, range]:
    """Every kind's seeds."""
    return _seeds(request.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give ``kind``, and ``seeds`` to the tests that go through whole kinds: one test a kind."""
    seeds = _seeds(metafunc.config)
    if "seeds" not in metafunc.fixturenames and "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", list(seeds))
    if "seeds" in metafunc.fixturenames:
        metafunc.parametrize(("kind", "seeds"), list(seeds.items()), ids=list(seeds))
