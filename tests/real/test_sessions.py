"""Every page as a session: its commands run in order in one shell, and each output is compared with the page's.

Commands that take a cluster of the reader's own get one of ours, which diverged: the placeholders on pages are
replaced in commands, outputs and files. Pages that change the cluster get one for themselves. A command that goes on
until a signal gets one after a while. A block whose first line names a TOML or properties file becomes that file.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from documentation import PAGES, ROOT, Command, commands, matches
from kept import kept_cluster
from markdown_it import MarkdownIt
from sandbox import DATA, Sandbox, completed, copy_live_disk

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE
from harness.targets import find_target
from harness.targets.jars import jars_for

PAGE_S: Final = 1500
MARK: Final = "--- end of command"
SESSIONS: Final = {page: found for page in PAGES if (found := [one for one in commands(page) if not one.not_run])}
SERVERS: Final = {f"kafka-{broker}:9092": broker for broker in (1, 2, 3)}
COPY, NFS, TOPICS, LIBS = "/copy/", "/nfs/", "'orders-*'", "/opt/kafka/libs"
"""The placeholders on pages for a reader's cluster."""
NEEDS: Final = {ROOT / "docs/how-to/containers.md": ("engine", "compose")}
CHANGING: Final = {ROOT / "docs/how-to" / name for name in ("guard.md", "repair.md")}
UNTIL_SIGNAL: Final = re.compile(r"harness (?:watch|guard) (?!status|release)")
INTERRUPTED: Final = "timeout --preserve-status --signal=INT 20"

pytestmark = pytest.mark.timeout(PAGE_S + 300)


@dataclass(frozen=True)
class Done:
    """A command that has run: its exit code, and its stdout and stderr."""

    command: Command
    code: int
    output: str


@contextmanager
def diverged(sandbox: Sandbox) -> Iterator[Mapping[str, str]]:
    """Give what stands for the placeholders: a cluster that diverged, and copies of its log directories."""
    with kept_cluster(sandbox, "kafka-4.4", DATA) as kept:
        copies = sandbox.root / "copies"
        for broker, log_dir in kept.log_dirs.items():
            copy_live_disk(log_dir, copies / f"broker-{broker}")
            (copies / str(broker)).symlink_to(copies / f"broker-{broker}")
        servers = {name: kept.addresses[broker] for name, broker in SERVERS.items()}
        yield {**servers, COPY: f"{copies}/", NFS: f"{copies}/", TOPICS: "'*'"}


@pytest.fixture(scope="module")
def stand_ins(make_sandbox: Callable[[str], Sandbox]) -> Iterator[Mapping[str, str]]:
    with diverged(make_sandbox("documented")) as found:
        yield found


@pytest.fixture
def stand_ins_of_one_page(make_sandbox: Callable[[str], Sandbox]) -> Iterator[Mapping[str, str]]:
    with diverged(make_sandbox("changed")) as found:
        yield found


@pytest.fixture(scope="module")
def libs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of jars of an installation of Kafka."""
    folder = tmp_path_factory.mktemp("libs")
    for jar in jars_for(find_target("kafka-4.4")).classpath.split(os.pathsep):
        (folder / Path(jar).name).symlink_to(jar)
    return folder


def play(session: Sequence[Command], folder: Path) -> list[Done]:
    """Run commands in one shell, each with its streams together; they see this environment's `harness` first."""
    texts = [UNTIL_SIGNAL.sub(lambda found: f"{INTERRUPTED} {found[0]}", one.text) for one in session]
    script = "\n".join(f"{{ {text}\n}} 2>&1 </dev/null\nprintf '\\n%s %d\\n' '{MARK}' $?" for text in texts)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TMPDIR": str(folder / "tmp"), "PYTHONSAFEPATH": "1"}
    (folder / "tmp").mkdir()
    done = completed("bash", timeout_s=PAGE_S, input=script, cwd=folder, env=environment)
    parts = re.split(rf"\n{MARK} (\d+)\n", done.stdout)
    return [Done(one, int(code), output) for one, output, code in zip(session, parts[::2], parts[1::2], strict=False)]


def replaced(text: str, stand_ins: Mapping[str, str]) -> str:
    for placeholder, value in stand_ins.items():
        text = text.replace(placeholder, value)
    return text


def codes(done: Done) -> set[int]:
    """Return the exit codes with which a command may end: any verdict's; 254 where the page shows a rejection.

    `harness doctor` ends with 254, too, if a package is missing on the machine.
    """
    is_rejected = "harness: " in done.command.output or "harness doctor" in done.command.text
    return {EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN, *([EXIT_USAGE] if is_rejected else [])}


@pytest.mark.parametrize("page", [
    pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.needs(*NEEDS.get(page, ())))
    for page in SESSIONS
])  # fmt: skip
def test_a_page_does_what_it_says(page: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    shown = "".join(f"{one.text}\n{one.output}\n" for one in SESSIONS[page])
    needs_cluster = any(name in shown for name in (*SERVERS, COPY, NFS, TOPICS))
    of_cluster = "stand_ins_of_one_page" if page in CHANGING else "stand_ins"
    stand_ins: Mapping[str, str] = {
        **(request.getfixturevalue(of_cluster) if needs_cluster else {}),
        **({LIBS: str(request.getfixturevalue("libs"))} if LIBS in shown else {}),
    }
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence" and (name := re.match(r"# (\S+\.(?:toml|properties))\n", token.content)):
            (tmp_path / name[1]).write_text(replaced(token.content, stand_ins))
    texts = [(one, replaced(one.text, stand_ins), replaced(one.output, stand_ins)) for one in SESSIONS[page]]
    session = [replace(one, text=text, output=output) for one, text, output in texts]
    done = play(session, tmp_path)
    assert len(done) == len(session), f"{session[len(done)].name} did not end"
    failed = [f"{one.command.name}: exit code {one.code}\n{one.output}" for one in done if one.code not in codes(one)]
    assert not failed, "\n".join(failed)
    others = [
        f"{one.command.name}: the page shows\n{one.command.output}\nand the command printed\n{one.output}"
        for one in done
        if one.command.output and not matches(one.command.output, one.output)
    ]
    assert not others, "\n".join(others)
