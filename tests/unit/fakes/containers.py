"""A fake container engine: the containers of a run, their networks and volumes, and images."""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound, NotFound

from harness.host import commands, engine
from harness.runtimes.base import ClusterSpec
from harness.runtimes.docker import DockerRuntime
from harness.runtimes.recipe import recipe_for, service
from harness.targets import find_target, images

RUN_ID = "2026-A-Run"
PORTS = (19001, 19002, 19003, 19004)
LOG = b"[12:00:00] INFO started\n[12:00:01] ERROR no space left\n"


def packed(files: Mapping[str, bytes], folder: str) -> bytes:
    """Return a folder as the engine gives it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        top = tarfile.TarInfo(folder)
        top.type = tarfile.DIRTYPE
        tar.addfile(top)
        for name, data in files.items():
            images.add_file(tar, f"{folder}/{name}", data)
    return content.getvalue()


@dataclass
class FakeResource:
    """A container, a network or a volume of a run; ``refusal`` is raised when it is removed."""

    name: str
    run_id: str = RUN_ID
    removed: list[str] = field(default_factory=list)
    refusal: Exception | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    owner: str = field(default_factory=engine.owner)

    def __post_init__(self) -> None:
        self.attrs["Labels"] = self.labels

    @property
    def labels(self) -> dict[str, str]:
        return {engine.LABEL: self.run_id, engine.OWNER_LABEL: self.owner}

    def remove(self, **_: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.removed.append(self.name)


@dataclass
class FakeContainer(FakeResource):
    """A container of the service of that name. ``calls`` has the requests it received, ``uploads`` its files.

    ``archives``: its successive answers by path, of which the last is repeated; None if the path does not exist.
    """

    archives: dict[str, list[bytes | None]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    status: str = "running"
    logs: Callable[..., bytes | Iterator[bytes]] = lambda **_: LOG

    @property
    def id(self) -> str:
        return f"id-{self.name}"

    @property
    def labels(self) -> dict[str, str]:
        return {**super().labels, "com.docker.compose.service": self.name}

    def get_archive(self, path: str, chunk_size: int) -> tuple[Iterator[bytes], None]:
        answers = self.archives.get(path, [None])
        content = answers.pop(0) if len(answers) > 1 else answers[0]
        if content is None:
            raise NotFound("404", explanation=f"Could not find the file {path}")
        return iter([content[:chunk_size], content[chunk_size:]]), None

    def put_archive(self, path: str, data: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                self.uploads[f"{path}/{member.name}"] = content.read()

    def reload(self) -> None:
        self.calls.append("reload")

    def start(self) -> None:
        self.calls.append("start")

    def pause(self) -> None:
        self.calls.append("pause")

    def kill(self) -> None:
        self.calls.append("kill")

    def wait(self, *, timeout: float) -> None:
        assert timeout
        self.calls.append("wait")


@dataclass
class FakeCollection:
    """All resources of a kind."""

    resources: list[FakeResource] = field(default_factory=list)

    def list(self, *, filters: Mapping[str, str], **_: Any) -> list[FakeResource]:
        name, _equals, run_id = filters["label"].partition("=")
        assert name == engine.LABEL
        return [resource for resource in self.resources if run_id in {"", resource.labels[engine.LABEL]}]


class FakeImages:
    """An engine's images, and a registry's."""

    def __init__(self, references: Iterable[str], registry: Iterable[str] = ()) -> None:
        self.references, self.registry = set(references), set(registry)

    def get(self, reference: str) -> Any:
        name = reference.partition(":")[0]
        if name != name.lower():
            raise APIError("400", explanation="invalid reference format")
        if reference not in self.references:
            raise ImageNotFound(reference)
        return SimpleNamespace(id=f"sha256:{reference}", attrs={"RepoDigests": [f"{reference}@sha256:1"]})

    def pull(self, reference: str) -> None:
        if reference not in self.registry:
            raise APIError("500", explanation="dial tcp: lookup failed")
        self.references.add(reference)


@dataclass
class FakeEngine:
    """The parts of an engine that a client shows."""

    containers: FakeCollection = field(default_factory=FakeCollection)
    networks: FakeCollection = field(default_factory=FakeCollection)
    volumes: FakeCollection = field(default_factory=FakeCollection)
    images: FakeImages = field(default_factory=lambda: FakeImages([]))
    api: Any = None


class ContainerCluster:
    """A runtime whose three brokers are fake containers.

    ``composed``: words and variables of each call of compose. The runtime's time is ``now_s``.
    """

    def __init__(
        self, target: str, path: Path, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], **spec: Any
    ) -> None:
        row = find_target(target)
        self.brokers = {broker: FakeContainer(service(broker)) for broker in (1, 2, 3)}
        self.composed: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self.now_s = 0.0
        containers = FakeCollection([*self.brokers.values()])
        client: Any = FakeEngine(containers, images=FakeImages([]), api=SimpleNamespace(containers=self._states))
        monkeypatch.setattr(commands, "run", self._compose)
        run = ClusterSpec(RUN_ID, path, path / "logs", settings, ports=PORTS, **spec)
        self.runtime = DockerRuntime(
            run, client, ("compose",), image="sha256:1", recipe=recipe_for(row), now_s=lambda: self.now_s
        )

    def _states(self, **_: Any) -> list[dict[str, str]]:
        return [
            {"Id": broker.id, "State": broker.status} for broker in self.brokers.values() if broker.status != "gone"
        ]

    def _compose(self, *words: str, timeout_s: float, variables: dict[str, str]) -> str:
        assert timeout_s > 0
        self.composed.append((words, variables))
        return ""
