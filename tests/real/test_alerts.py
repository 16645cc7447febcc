"""The alert rules of `harness guard`, by Prometheus' own promtool."""

import shutil
import subprocess
from pathlib import Path

import pytest
from sandbox import completed

import compose.guard

pytestmark = pytest.mark.needs("promtool")

RULES = Path(compose.guard.__file__).parent
BOUND_S = 120


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Find promtool, or take it from Debian's package without installing that: no service begins."""
    if installed := shutil.which("promtool"):
        return installed
    folder = tmp_path_factory.mktemp("promtool")
    subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, timeout=BOUND_S, capture_output=True)
    (package,) = folder.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", str(package), "."], cwd=folder, check=True, timeout=BOUND_S)
    return str(folder / "usr/bin/promtool")


@pytest.mark.parametrize("words", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts-test.yaml")])
def test_the_alert_rules_are_valid_and_fire_as_they_should(promtool: str, words: tuple[str, ...]) -> None:
    done = completed(promtool, *words, cwd=RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_a_rule_that_does_not_fire_is_found(promtool: str, tmp_path: Path) -> None:
    for name in ("alerts.yaml", "alerts-test.yaml"):
        text = (RULES / name).read_text()
        (tmp_path / name).write_text(text.replace("paused_seconds > 3600", "paused_seconds > 36000"))
    assert completed(promtool, "test", "rules", "alerts-test.yaml", cwd=tmp_path).returncode != 0
