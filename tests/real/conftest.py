"""Sandboxes for real runs, a cluster for audits, and the jars that brokers need."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import needs
import pytest
from audited import Audited, running
from docker import DockerClient
from playwright.sync_api import Browser, sync_playwright
from sandbox import DATA, Run, Sandbox, harness_command

from harness.host import engine

FETCH_S = 900


@pytest.fixture(scope="session")
def make_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sandbox]:
    def make(name: str) -> Sandbox:
        sandbox = Sandbox(tmp_path_factory.mktemp(name))
        sandbox.tmp.mkdir()
        return sandbox

    return make


@pytest.fixture
def sandbox(make_sandbox: Callable[[str], Sandbox]) -> Sandbox:
    return make_sandbox("sandbox")


@pytest.fixture(scope="session")
def run_of(make_sandbox: Callable[[str], Sandbox]) -> Callable[[str, str], Run]:
    """Give the one run of all anomalies per (target, nemesis); the first to ask waits for it."""
    runs: dict[tuple[str, str], Run] = {}

    def run(target: str, nemesis: str) -> Run:
        if (target, nemesis) not in runs:
            sandbox = make_sandbox(f"{target}-{nemesis}")
            ran = sandbox.run(target, "--anomaly", DATA, "--nemesis", nemesis, "--format", "json").end()
            runs[target, nemesis] = Run(ran, sandbox, sandbox.latest(target, DATA))
        return runs[target, nemesis]

    return run


@pytest.fixture(scope="module", params=["kafka-3.9", "kafka-4.4"])
def audited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    with running(request.param, tmp_path_factory.mktemp("audited")) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options: Any = {"executable_path": needs.browser(), "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**options) as launched:
        yield launched


@pytest.fixture(scope="session")
def client() -> DockerClient:
    """Connect to the engine, which must be up: a missing engine fails."""
    return engine.connect()


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Let commands be interrupted also where the tests run in a shell's background, which ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _jars() -> None:
    """Fetch the jars where nobody has yet, so that no test's own bound has to allow for it."""
    arguments = ("doctor", "--fetch", "kafka-3.9", "--fetch", "kafka-4.4")
    done = subprocess.run(harness_command(*arguments), capture_output=True, text=True, timeout=FETCH_S, check=False)
    assert "jars in" in done.stderr, done.stdout + done.stderr
