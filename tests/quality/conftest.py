"""Which cases are generated: fixed ones, unless asked for others."""

import sys
from math import ceil
from pathlib import Path

import pytest
from generate import KINDS, LEGAL

# Mutants are held against the literal histories, too.
sys.path.append(str(Path(__file__).parents[1] / "unit"))

_LEGAL_RUNS = 600
_PLANTED_RUNS = 60
_SAMPLE = 40
"""The commit tier judges one case of so many."""


def _seeds(config: pytest.Config) -> dict[str, range]:
    first, runs = config.getoption("--quality-seed"), config.getoption("--quality-runs")
    kinds = config.getoption("--quality-kind") or KINDS
    return {kind: range(first, first + (runs or (_LEGAL_RUNS if kind == LEGAL else _PLANTED_RUNS))) for kind in kinds}


def _parts(seeds: dict[str, range]) -> dict[str, dict[str, range]]:
    """Divide seeds into the sample of the commit tier and the rest; one seed is not divided."""
    sample = {kind: of_kind[: ceil(len(of_kind) / _SAMPLE)] for kind, of_kind in seeds.items()}
    rest = {kind: of_kind[len(sample[kind]) :] for kind, of_kind in seeds.items()}
    return {name: part for name, part in {"sample": sample, "rest": rest}.items() if any(part.values())}


@pytest.fixture(scope="session")
def all_seeds(part: str, request: pytest.FixtureRequest) -> dict[str, range]:
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
