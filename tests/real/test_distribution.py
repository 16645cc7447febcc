"""Installations by users: the wheel and the source distribution, by pipx and uvx, and the image of the harness."""

import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from docker import DockerClient
from sandbox import Sandbox

from harness.host import engine

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND_S: Final = 900
BASE, IMAGE = "compaction-harness-test/base", "compaction-harness-test/harness"
STAGE: Final = "compaction-harness.stage=build"
WRITABLE: Final = "/tmp:exec"  # noqa: S108  (in the container)

pytestmark = [pytest.mark.timeout(3 * COMMAND_S), pytest.mark.needs("git")]


def call(*command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; fails with that if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environment or {})}, text=True, timeout=COMMAND_S, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with its distributions in `dist`."""
    folder = tmp_path_factory.mktemp("project")
    names = call(
        "git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    ).split("\0")
    for name in filter(None, names):
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
        for package in ("harness", "compose")
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
        shown = call(sys.executable, "-m", "uv", "tool", "run", "--from", str(wheel), "harness", "--version")
    else:
        homes = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
        call(sys.executable, "-m", "pipx", "install", str(wheel), environment=homes)
        shown = call(str(tmp_path / "bin" / "harness"), "--version")
    assert version in shown.splitlines()[-1]


@pytest.fixture(scope="module")
def client() -> DockerClient:
    return engine.connect()


@pytest.fixture(scope="module")
def image(project: Path, client: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the image on a Debian that is made from packages; this host's certificates serve pip in it."""
    folder = tmp_path_factory.mktemp("base")
    call("debootstrap", "--variant=minbase", "bookworm", str(folder / "root"))
    certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    shutil.copy(os.environ.get("PIP_CERT", certificates), folder / "root" / "etc" / "pip-certificates.crt")
    call("tar", "--directory", str(folder / "root"), "--create", "--file", str(folder / "base.tar"), ".")
    call(
        "docker", "import", "--change", "ENV PIP_CERT=/etc/pip-certificates.crt", str(folder / "base.tar"), BASE,
    )  # fmt: skip
    try:
        call("docker", "build", "--network", "host", "--build-arg", f"BASE={BASE}", "--tag", IMAGE, ".", cwd=project)
        yield IMAGE
    finally:
        for name in (IMAGE, BASE):
            if client.images.list(name):
                client.images.remove(name, force=True)
        client.images.prune({"dangling": True, "label": STAGE})


@pytest.mark.needs("root", "debootstrap", "engine", "docker")
def test_the_image_audits_mounted_folders_without_rights(image: str, sandbox: Sandbox) -> None:
    ran = sandbox.call("run", "--target", "sim-kafka", "--anomaly", "stuck-lso", "--seed", "1")
    copies = sandbox.latest("sim-kafka", "stuck-lso") / "brokers"
    done = subprocess.run(
        ["docker", "run", "--rm", "--read-only", "--tmpfs", WRITABLE, "--network", "none",
         "--volume", f"{copies}:/copies:ro", image, "audit", "disk", "--topic", "stuck-*",
         *(word for broker in (1, 2, 3) for word in ("--broker", f"{broker}=/copies/{broker}/after-rejoin"))],
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert done.returncode == ran.code == 1, done.stderr
    assert "ANOMALY stuck-lso: broker 2, stuck-lso-0, offset 0: read_committed is frozen at 0" in done.stdout
    user = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--entrypoint", "id", image, "--user"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(user.stdout) != 0
