"""Runs in containers, on an engine of this machine: their findings, and that nothing remains of them."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from sandbox import DATA, PAYLOADS, Sandbox, long_timers, wait_until

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_FAILED, EXIT_UNKNOWN, EXIT_USAGE, UsageError
from harness.host import engine
from harness.schedules.catalog import Anomaly, scenarios_for
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.targets import find_target

pytestmark = pytest.mark.needs("engine", "compose")

TARGET = "kafka-3.9"
GONE_S = 30


@pytest.fixture(scope="session", autouse=True)
def _images(client: DockerClient, make_sandbox: Callable[[str], Sandbox]) -> None:
    assert client.ping()
    sandbox = make_sandbox("images")
    for target in (TARGET, "kafka-4.4"):
        ran = sandbox.call("images", "build", target, code=EXIT_CLEAN)
        assert "compaction-harness/kafka:" in ran.stdout


@pytest.fixture(autouse=True)
def _nothing_is_left(client: DockerClient) -> Any:
    yield
    wait_until(lambda: not everything(client), GONE_S, "the engine to have nothing of any run")


def everything(client: DockerClient) -> list[str]:
    mine: dict[str, str | list[str] | bool] = {"label": engine.LABEL}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    networks, volumes = client.networks.list(filters=mine), client.volumes.list(filters=mine)
    return [str(thing.id) for thing in (*containers, *networks, *volumes)]


@pytest.mark.parametrize(("target", "nemesis"), [
    ("kafka-3.9", "kill"), ("kafka-4.4", "kill"), ("kafka-3.9", "partition"), ("kafka-4.4", "pause"),
    pytest.param("kafka-3.9", "one-way", marks=pytest.mark.needs("iptables")), ("kafka-4.4", "join"),
])  # fmt: skip
def test_every_anomaly_in_containers(sandbox: Sandbox, target: str, nemesis: str) -> None:
    chosen = ("--runtime", "docker", "--anomaly", DATA, "--nemesis", nemesis, "--format", "json")
    ran = sandbox.run(target, *chosen).end(EXIT_ANOMALY)
    assert {(one["topic"], one["broker"]) for one in ran.verdict["findings"]} == {(topic, 2) for topic in PAYLOADS}
    folder = sandbox.latest(target, DATA)
    runtime = json.loads((folder / "manifest.json").read_text())["runtime"]
    assert runtime["name"] == "docker"
    assert runtime["image"]["id"].startswith("sha256:")
    assert all("started" in (folder / "logs" / str(b) / "server.log").read_text() for b in (1, 2, 3))


@pytest.mark.parametrize(("target", "nemesis"), [("kafka-3.9", "kill"), ("kafka-4.4", "join")])
def test_groups_in_containers(sandbox: Sandbox, target: str, nemesis: str) -> None:
    chosen = ("--runtime", "docker", "--anomaly", "groups", "--nemesis", nemesis, "--format", "json")
    ran = sandbox.run(target, *chosen).end(EXIT_ANOMALY)
    scenarios = scenarios_for("groups", find_target(target).group_protocols)
    assert {(one["topic"], one["partition"], one["broker"]) for one in ran.verdict["findings"]} == {
        (CONSUMER_OFFSETS, partition, 2) for partition in range(len(scenarios))
    }
    harmless = {s.name for s in scenarios if s.anomaly == Anomaly.COMMITTED_TO_ABORTED}
    names = {n: one["scenario"] for one in ran.verdict["scenarios"] for n in one["partitions"] if one["anomaly"]}
    suffering = {names[one["partition"]] for one in ran.verdict["findings"] if one.get("consequence")}
    assert suffering == {scenario.name for scenario in scenarios} - harmless


def test_a_healthy_run_in_containers_is_clean(sandbox: Sandbox) -> None:
    sandbox.run("kafka-4.4", "--runtime", "auto", "--anomaly", DATA, "--nemesis", "none").end(EXIT_CLEAN)
    manifest = json.loads((sandbox.latest("kafka-4.4", DATA) / "manifest.json").read_text())
    assert manifest["runtime"]["name"] == "docker", "auto takes containers where there is an image"


def test_killed_in_mid_outage(sandbox: Sandbox, client: DockerClient) -> None:
    # auto takes containers where the engine has the image.
    going = sandbox.run(TARGET, "--runtime", "auto", "--anomaly", "stuck-lso", "--nemesis", "pause")
    going.wait_for_stage("clean")
    assert len(everything(client)) >= 7, "three containers, three volumes and a network"
    going.process.kill()
    assert going.end().code == -signal.SIGKILL
    sandbox.wait_until_nothing_is_left()


def test_clean_finds_by_label_what_a_crash_left(sandbox: Sandbox, client: DockerClient) -> None:
    going = sandbox.run(TARGET, "--runtime", "docker", "--anomaly", "stuck-lso")
    going.wait_for_stage("clean")
    for process in sandbox.processes():
        process.kill()
    going.process.wait()
    assert everything(client)
    ran = sandbox.call("clean", code=EXIT_CLEAN)
    assert f"removed {sandbox.latest(TARGET, 'stuck-lso').name}" in ran.stdout


def third(client: DockerClient, run: Path) -> list[Container]:
    """Return the container of broker 3 while it runs."""
    labels = [f"{engine.LABEL}={run.name}", "com.docker.compose.service=broker-3"]
    return client.containers.list(filters={"label": labels})


@pytest.mark.commit
def test_a_container_that_is_killed_by_somebody_else(sandbox: Sandbox, client: DockerClient) -> None:
    going = sandbox.run(TARGET, "--runtime", "docker", "--anomaly", "stuck-lso")
    going.wait_for_stage("boot")
    folder = sandbox.latest(TARGET, "stuck-lso")
    wait_until(lambda: third(client, folder), GONE_S, "broker 3 to run")
    third(client, folder)[0].kill()
    ran = going.end(EXIT_FAILED)
    assert "broker 3 ended by itself (exit code 137)" in ran.stderr


def test_a_container_that_runs_out_of_memory(sandbox: Sandbox, client: DockerClient) -> None:
    # The critical records are not removed for minutes: the window is open until the container ends.
    slow = ("--anomaly", "tombstone-divergence", "--set", "topic.delete.retention.ms=600000")
    going = sandbox.run("kafka-4.4", "--runtime", "docker", *slow, "--format", "json")
    going.wait_for_stage("clean")
    folder = sandbox.latest("kafka-4.4", "tombstone-divergence")
    squeeze(*third(client, folder))
    ran = going.end(EXIT_UNKNOWN)
    assert "broker 3 ended by itself (out of memory)" in ran.verdict["reason"]
    assert (folder / "history.jsonl").stat().st_size > 0
    assert (folder / "observations.jsonl").stat().st_size > 0


def squeeze(container: Container) -> None:
    """Allow a container no more memory than it has: the next page that it takes is one too many."""
    for limit_mib in range(64, 1024, 2):
        # An engine refuses less than is in use (version 1 of cgroups), or ends the process at once.
        with suppress(APIError):
            container.update(mem_limit=f"{limit_mib}m", memswap_limit=f"{limit_mib}m")
            return
    pytest.fail("no limit was taken")


def test_a_run_in_containers_that_is_cut_off_in_its_window_goes_on(sandbox: Sandbox, client: DockerClient) -> None:
    going = sandbox.run(TARGET, "--runtime", "docker", "--anomaly", "stuck-lso", *long_timers())
    going.wait_for_stage("clean")
    folder = sandbox.latest(TARGET, "stuck-lso")
    going.kill()
    mine = {"label": f"{engine.LABEL}={folder.name}"}
    wait_until(lambda: not client.containers.list(filters=dict(mine)), GONE_S, "the containers to be ended")
    assert len(client.containers.list(all=True, filters=dict(mine))) == 3
    resumed = sandbox.call("run", "--resume", str(folder), "--format", "json", code=EXIT_ANOMALY)
    assert {finding["topic"] for finding in resumed.verdict["findings"]} == {"stuck-lso"}
    sandbox.wait_until_nothing_is_left()


@pytest.fixture
def own_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerClient]:
    """Start a separate engine with a single subnet; commands use it, and nothing of the host's engine."""
    host = f"unix://{tmp_path}/e.sock"
    folders = ("--data-root", tmp_path / "data", "--exec-root", tmp_path / "exec", "--pidfile", tmp_path / "pid")
    network = ("--bridge", "none", "--iptables=false", "--ip6tables=false")
    pool = ("--default-address-pool", "base=10.201.7.0/24,size=24")
    # In a separate network namespace: without a bridge it would remove `docker0` of the host's engine.
    command = ("unshare", "--net", "dockerd", "--host", host, *folders, *network, *pool)
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        monkeypatch.setenv("DOCKER_HOST", host)

        def answers() -> bool:
            assert daemon.poll() is None, (tmp_path / "log").read_text()
            with suppress(UsageError):
                return bool(engine.connect())
            return False

        wait_until(answers, GONE_S, "an engine of our own")
        yield engine.connect()
    finally:
        daemon.terminate()
        daemon.wait(timeout=GONE_S)


@pytest.mark.needs("root", "dockerd")
def test_an_engine_without_a_free_subnet(sandbox: Sandbox, own_engine: DockerClient) -> None:
    sandbox.call("images", "build", TARGET, code=EXIT_CLEAN)
    own_engine.networks.create("takes-the-only-one")
    ran = sandbox.run(TARGET, "--runtime", "docker", "--anomaly", "stuck-lso").end(EXIT_FAILED)
    assert ran.stdout == ""
    (error,) = [line for line in ran.stderr.splitlines() if line.startswith("harness: ")]
    assert "the engine has no free subnet for the run's network: remove networks that nobody uses" in error
    assert (sandbox.latest(TARGET, "stuck-lso") / "manifest.json").exists()
    assert everything(own_engine) == []
    sandbox.wait_until_nothing_is_left()


@pytest.mark.commit
@pytest.mark.parametrize(("arguments", "expected"), [
    (("kafka-4.1", "--image", "compaction-harness/kafka:none"), "`harness images build kafka-4.1`"),
    (("kafka-4.4", "--nemesis", "clock-skew"), "containers share the clock of their host; use --runtime local"),
    (("kafka-4.4", "--nemesis", "disk-full"), "containers share the disk of the engine; use --runtime local"),
    (("kafka-4.4", "--nemesis", "power-failure"), "containers run without the agent that records syncs"),
    (("kafka-4.4", "--nemesis", "crash-in-cleaning"), "the files of a container can only be copied"),
], ids=["no image", "no clock", "no disk", "no agent", "no files"])  # fmt: skip
def test_what_is_missing_is_said_before_a_start(sandbox: Sandbox, arguments: tuple[str, ...], expected: str) -> None:
    ran = sandbox.run(*arguments, "--runtime", "docker", "--anomaly", "stuck-lso").end(EXIT_USAGE)
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not sandbox.results.exists()


def test_two_runs_in_containers_at_once(sandbox: Sandbox) -> None:
    chosen = ("--runtime", "docker", "--anomaly", "stuck-lso", "--nemesis")
    both = [sandbox.run("kafka-3.9", *chosen, "kill"), sandbox.run("kafka-4.4", *chosen, "partition")]
    for going in both:
        going.end(EXIT_ANOMALY)
