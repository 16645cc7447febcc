"""The plugin of pytest: clusters as fixtures. All else is imported by the fixtures, so that it costs nothing unused."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.api.clusters import LocalCluster

MARKER = "compaction_cluster"
INI = "compaction_target"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, and its default in the configuration file."""
    group = parser.getgroup("compaction-harness")
    group.addoption("--compaction-target", metavar="NAME", help="target of clusters (`harness targets`)")
    parser.addini(INI, "target of clusters (default: the newest Kafka)", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}(target, **options): arguments of harness.local_cluster")


def _booted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalCluster]":
    """Boot a cluster of the parameter's target, or as the marker, the option or the configuration file says."""
    from harness.api.clusters import NEWEST, local_cluster  # noqa: PLC0415  (see above)

    marker, config = request.node.get_closest_marker(MARKER), request.config
    arguments, options = (marker.args, marker.kwargs) if marker else ((), {})
    targets = (getattr(request, "param", None), *arguments, config.getoption("--compaction-target"), config.getini(INI))
    target = next(filter(None, targets), NEWEST)
    with local_cluster(target, tmp_path_factory.mktemp("compaction-cluster"), **options) as cluster:
        yield cluster


compaction_cluster = pytest.fixture(_booted, name="compaction_cluster")
compaction_session_cluster = pytest.fixture(_booted, scope="session", name="compaction_session_cluster")
"""A cluster for one test, and for all tests of a process."""
