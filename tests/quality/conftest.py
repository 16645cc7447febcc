"""Which cases are generated: fixed ones, unless asked for others."""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path

import pytest
from generate import KINDS, LEGAL

# Mutants are held against the literal histories, too.
sys.path.append(str(Path(__file__).parents[1] / "unit"))

_LEGAL_RUNS = 600
_PLANTED_RUNS = 60
_FIRST = 6
"""What part of all is judged by itself."""


def _seeds(config: pytest.Config) -> dict[str, range]:
    first, runs = config.getoption("--quality-seed"), config.getoption("--quality-runs")
    kinds = config.getoption("--quality-kind") or KINDS
    return {kind: range(first, first + (runs or (_LEGAL_RUNS if kind == LEGAL else _PLANTED_RUNS))) for kind in kinds}


def _parts(seeds: dict[str, range]) -> dict[str, dict[str, range]]:
    """Divide seeds in two, so that the commit tier can do with the first part; one seed is not divided."""
    first = {kind: one[: ceil(len(one) / _FIRST)] for kind, one in seeds.items()}
    rest = {kind: one[len(first[kind]) :] for kind, one in seeds.items()}
    return {name: part for name, part in {"first": first, "rest": rest}.items() if any(part.values())}


@pytest.fixture(scope="session")
def all_seeds(part: str, request: pytest.FixtureRequest) -> dict[str, range]:
    """Every kind's seeds of one part."""
    return _parts(_seeds(request.config))[part]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give ``part`` and ``kind``, and ``seeds`` to the tests that go through whole kinds: one test a kind."""
    seeds = _seeds(metafunc.config)
    if "seeds" not in metafunc.fixturenames and "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", list(seeds))
    if "seeds" in metafunc.fixturenames:
        metafunc.parametrize(("kind", "seeds"), list(seeds.items()), ids=list(seeds))
    if "part" in metafunc.fixturenames:
        metafunc.parametrize("part", list(_parts(seeds)), scope="session")
