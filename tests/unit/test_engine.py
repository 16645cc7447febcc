"""The container engine: the message for one that cannot be used, and what of a run is removed."""

import socket
from pathlib import Path
from unittest.mock import MagicMock

import docker
import pytest
from docker.errors import APIError, DockerException, NotFound
from fakes.containers import FakeCollection, FakeEngine, FakeResource
from requests.exceptions import ReadTimeout

from harness.errors import HarnessError, UsageError
from harness.host import commands, engine

NOWHERE = Path()
RUN_ID = "2026-11-21T22-00-00Z-abcd"


def test_a_missing_engine_and_one_on_another_host_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    with pytest.raises(UsageError, match="no container engine can be used: none is running"):
        engine.connect()
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(f"{tmp_path}/engine.sock")
    with pytest.raises(UsageError, match="no container engine can be used: it is not running"):
        engine.connect()
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(UsageError, match=r"DOCKER_HOST is tcp://10\.0\.0\.1:2375: .* use a local engine"):
        engine.connect()


def test_a_forbidden_socket_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client's error; root may use any socket, so a test cannot cause it.
    reason = (
        "Error while fetching server API version: ('Connection aborted.', PermissionError(13, 'Permission denied'))"
    )
    monkeypatch.setattr(docker, "from_env", MagicMock(side_effect=DockerException(reason)))
    with pytest.raises(UsageError, match="add it to the group docker"):
        engine.connect()


@pytest.mark.parametrize(("programs", "expected"), [
    ({"docker": "true", "docker-compose": "true"}, ("docker", "compose")),
    ({"docker": "exit 1", "docker-compose": "true"}, ("docker-compose",)),
    ({"docker-compose": "true"}, ("docker-compose",)),
    ({"docker": "exit 1"}, None),
], ids=["the plugin", "no plugin", "no command line", "neither"])  # fmt: skip
def test_either_version_of_compose_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], expected: tuple[str, ...] | None
) -> None:
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setitem(commands.ENVIRONMENT, "PATH", str(tmp_path))
    if expected:
        assert engine.find_compose() == expected
    else:
        with pytest.raises(UsageError, match="neither `docker compose` nor `docker-compose` works here"):
            engine.find_compose()


@pytest.mark.parametrize(("error", "kind", "expected"), [
    (NotFound("404", explanation="No such container: x"), engine.MissingError, "x is lost: No such container: x"),
    (APIError("500", explanation="no space left"), HarnessError, "x is lost: no space left"),
    (ReadTimeout("..."), HarnessError, "x is lost: the container engine does not answer (ReadTimeout)"),
], ids=["not there", "refused", "silent"])  # fmt: skip
def test_errors_of_the_engine_become_one_sentence(error: Exception, kind: type[HarnessError], expected: str) -> None:
    with pytest.raises(HarnessError) as raised, engine.errors_as("x is lost"):
        raise error
    assert type(raised.value) is kind
    assert str(raised.value) == expected


def furnish(monkeypatch: pytest.MonkeyPatch, refusal: Exception | None = None) -> list[str]:
    """Connect to an engine with a container, a network and a volume for each of two runs; return the removed names."""
    removed: list[str] = []
    fake = FakeEngine()
    for kind, why in (("container", refusal), ("network", None), ("volume", None)):
        collection: FakeCollection = getattr(fake, f"{kind}s")
        collection.resources += [FakeResource(f"{kind} of {run}", run, removed, why) for run in (RUN_ID, "other")]
    monkeypatch.setattr(engine, "connect", lambda: fake)
    return removed


def test_only_resources_of_the_run_are_removed_and_containers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = furnish(monkeypatch)
    assert engine.runs_with_containers() == {RUN_ID, "other"}
    monkeypatch.setattr(engine, "owner", lambda: "another host, user or TMPDIR")
    assert engine.runs_with_containers() == set()
    assert engine.remove(NOWHERE, RUN_ID) == 1
    assert removed == [f"{kind} of {RUN_ID}" for kind in ("container", "network", "volume")]


@pytest.mark.parametrize(
    "refusal",
    [NotFound("404"), APIError("409", explanation="removal of container x is already in progress")],
    ids=["gone", "going"],
)
def test_resources_that_others_remove_are_no_error(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    removed = furnish(monkeypatch, refusal)
    engine.remove(NOWHERE, RUN_ID)
    assert removed == [f"{kind} of {RUN_ID}" for kind in ("network", "volume")]


def test_a_failed_removal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(monkeypatch, APIError("500", explanation="device or resource busy"))
    with pytest.raises(HarnessError, match=f"the containers of {RUN_ID} cannot be removed: device or resource busy"):
        engine.remove(NOWHERE, RUN_ID)
