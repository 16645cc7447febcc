"""Installations by users: the wheel and the source distribution, by pipx and uvx, and the image of the harness."""

import os
import re
import shutil
import ssl
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
import yaml
from chart import helm, pods_of
from docker import DockerClient
from kept import kept_cluster
from sandbox import Sandbox, completed, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND_S: Final = 900
BASE, IMAGE = "compaction-harness-test/base", "compaction-harness-test/harness"
STAGE: Final = "compaction-harness.stage=build"
BOUND_S: Final = 300
MOST_GUARD_BYTES: Final = 250_000_000
WRITABLE: Final = "/tmp:exec"  # noqa: S108  (in the container)

pytestmark = [pytest.mark.timeout(3 * COMMAND_S), pytest.mark.needs("git")]


def call(*command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; fails with that if it fails."""
    done = completed(*command, timeout_s=COMMAND_S, cwd=cwd, env={**os.environ, **(environment or {})})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with its distributions in `dist`."""
    folder = tmp_path_factory.mktemp("project")
    git = ("git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, call(*git, cwd=ROOT).split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    call(sys.executable, "-m", "build", "--outdir", "dist", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(project: Path) -> Path:
    (found,) = (project / "dist").glob("*.whl")
    return found


def test_distributions_are_fit_to_be_published(project: Path, wheel: Path) -> None:
    files = [str(path) for path in (project / "dist").iterdir()]
    assert len(files) == 2
    call(sys.executable, "-m", "twine", "check", "--strict", *files)
    call(sys.executable, "-m", "check_wheel_contents", str(wheel), cwd=ROOT)


def test_the_wheel_has_all_that_is_no_python(project: Path, wheel: Path) -> None:
    packaged = {
        str(path.relative_to(project))
        for package in ("checkers", "compose", "harness", "nemesis", "workloads")
        for path in (project / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert len(packaged) > 20
    assert packaged - set(zipfile.ZipFile(wheel).namelist()) == set()
    (source,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert packaged - names == set()


@pytest.mark.parametrize("tool", ["pipx", "uvx"])
def test_one_command_installs_it(tool: str, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    if tool == "uvx":
        uvx = (sys.executable, "-m", "uv", "tool", "run", "--from", str(wheel))
        shown = call(*uvx, "harness", "--version")
        options = call(*uvx, "--with", "pytest", "pytest", "--help", cwd=tmp_path)
        assert "--compaction-target" in options, "no plugin for pytest"
    else:
        homes = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
        call(sys.executable, "-m", "pipx", "install", str(wheel), environment=homes)
        shown = call(str(tmp_path / "bin" / "harness"), "--version")
    assert version in shown.splitlines()[-1]


@pytest.fixture(scope="module")
def images(project: Path, client: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Build the images, by target, on a Debian made from packages; this host's certificates serve pip and uv."""
    folder = tmp_path_factory.mktemp("base")
    call("debootstrap", "--variant=minbase", "trixie", str(folder / "root"))
    shutil.rmtree(folder / "root" / "var" / "cache" / "apt")
    shutil.rmtree(folder / "root" / "var" / "lib" / "apt" / "lists")
    certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    shutil.copy(os.environ.get("PIP_CERT", certificates), folder / "root" / "etc" / "pip-certificates.crt")
    call("tar", "--directory", str(folder / "root"), "--create", "--file", str(folder / "base.tar"), ".")
    variables = [f"--change=ENV {name}=/etc/pip-certificates.crt" for name in ("PIP_CERT", "SSL_CERT_FILE")]
    call("docker", "import", *variables, str(folder / "base.tar"), BASE)
    dockerfile = project / "Dockerfile"
    text, count = re.subn(r"debian:trixie-slim@sha256:[0-9a-f]{64}", BASE, dockerfile.read_text())
    assert count == 1
    dockerfile.write_text(text)
    names = {target: f"{IMAGE}:{target}" for target in ("guard", "complete")}
    try:
        for target, name in names.items():
            call("docker", "build", "--network", "host", "--target", target, "--tag", name, ".", cwd=project)
        yield names
    finally:
        # By the command: gigabytes take longer to remove than the client waits.
        if made := [name for name in (*names.values(), BASE) if client.images.list(name)]:
            call("docker", "image", "rm", "--force", *made)
        call("docker", "image", "prune", "--force", "--filter", f"label={STAGE}")


IN_CONTAINERS = pytest.mark.needs("root", "debootstrap", "engine", "docker")


@IN_CONTAINERS
def test_the_image_of_the_guard_is_small(images: dict[str, str], client: DockerClient) -> None:
    assert client.images.get(images["guard"]).attrs["Size"] <= MOST_GUARD_BYTES


@IN_CONTAINERS
def test_the_image_audits_mounted_folders_without_rights(images: dict[str, str], sandbox: Sandbox) -> None:
    ran = sandbox.call("run", "--target", "sim-kafka", "--anomaly", "stuck-lso", "--seed", "1")
    copies = sandbox.latest("sim-kafka", "stuck-lso") / "brokers"
    container = ("docker", "run", "--rm", "--read-only", "--tmpfs", WRITABLE, "--network", "none")
    audit = (f"{copies}:/copies:ro", images["complete"], "audit", "disk", "--topic", "stuck-*")
    brokers = [word for broker in (1, 2, 3) for word in ("--broker", f"{broker}=/copies/{broker}/after-rejoin")]
    done = completed(*container, "--volume", *audit, *brokers)
    assert done.returncode == ran.code == 1, done.stderr
    assert "ANOMALY      stuck-lso: stuck-lso-0: broker 2 is wrong" in done.stdout


@contextmanager
def container(client: DockerClient, image: str, pod: Mapping[str, Any], folders: Mapping[str, Path]) -> Iterator[Any]:
    """Start a pod's container as a node would: its user, arguments and limits; ``folders``: its volumes by name."""
    (spec,) = pod["containers"]
    security = spec["securityContext"]
    paths = {mount["name"]: (mount["mountPath"], mount.get("readOnly", False)) for mount in spec["volumeMounts"]}
    started = client.containers.run(
        image,
        spec["args"],
        detach=True,
        user=f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}",
        read_only=security["readOnlyRootFilesystem"],
        cap_drop=security["capabilities"]["drop"],
        security_opt=["no-new-privileges"],
        mem_limit=spec["resources"]["limits"]["memory"].removesuffix("i"),
        tmpfs={paths.pop("tmp")[0]: "exec"},
        volumes={
            str(folders[name]): {"bind": path, "mode": "ro" if is_read_only else "rw"}
            for name, (path, is_read_only) in paths.items()
        },
        network_mode="host",
    )
    try:
        yield started
    finally:
        started.remove(force=True)


def answer(port: int, path: str) -> str | None:
    """Return the text of an endpoint's page; None where it does not answer 200."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return str(reply.read().decode())
    return None


@pytest.mark.needs("helm")
@IN_CONTAINERS
def test_chart_as_containers(images: dict[str, str], client: DockerClient, sandbox: Sandbox, tmp_path: Path) -> None:
    folders = {"client": tmp_path / "client", "state": tmp_path / "state"}
    for folder in folders.values():
        folder.mkdir()
    (folders["client"] / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    os.chown(folders["state"], 10001, 10001)
    tmp_path.chmod(0o755)
    with kept_cluster(sandbox, "kafka-4.4", "stuck-lso") as kept:
        topics = {"topics": ["stuck-*"]}
        values = {
            "bootstrapServers": kept.bootstrap, "clientSecret": "login", "guard": topics, "watch": topics,
            "audit": {"enabled": True, **topics},
        }  # fmt: skip
        pods = pods_of(filter(None, yaml.safe_load_all(helm(values, "1.33").stdout)))
        with container(client, images["guard"], pods["guard"], folders) as guard:
            wait_until(lambda: '"leads": true' in (answer(9464, "/health") or ""), BOUND_S, "a healthy guard that acts")
            guard.stop(timeout=60)
            assert guard.wait()["StatusCode"] == 0, guard.logs().decode()
        with container(client, images["complete"], pods["audit"], folders) as audit:
            assert audit.wait(timeout=BOUND_S)["StatusCode"] == 1, audit.logs().decode()
            assert "ANOMALY" in audit.logs().decode()
        found = 'compaction_watch_diverged_partitions{anomaly="stuck-lso"} 1.0'
        with container(client, images["complete"], pods["watch"], folders) as watch:
            wait_until(lambda: found in (answer(9465, "/metrics") or ""), BOUND_S, "the watch's finding")
            watch.stop(timeout=60)
            assert watch.wait()["StatusCode"] == 0, watch.logs().decode()
        assert any(folders["state"].rglob("*"))
        values["watch"] = {**topics, "checksOnly": True}
        pods = pods_of(filter(None, yaml.safe_load_all(helm(values, "1.33").stdout)))
        suspected = 'compaction_watch_suspicions{anomaly="stuck-lso"} 1.0'
        with container(client, images["guard"], pods["watch"], folders) as checks:
            wait_until(lambda: suspected in (answer(9465, "/metrics") or ""), BOUND_S, "the suspicion of the checks")
            checks.stop(timeout=60)
            assert checks.wait()["StatusCode"] == 0, checks.logs().decode()
