"""The machine that the harness runs on: its commands, its network, and what its processes leave behind."""

import json
import sys
from pathlib import Path

from harness.errors import HarnessError


class FakeHost:
    """Knows the links and namespaces that the commands left, and fails where the test asks for it."""

    def __init__(self, namespaces: Path) -> None:
        self.commands: list[str] = []
        self.links = {"lo", "eth0"}
        self.namespaces = namespaces
        self.routes: list[dict[str, str]] = [{"dst": "default"}, {"dst": "192.0.2.0/24"}]
        self.refused = "nothing"
        self.error: type[BaseException] = HarnessError

    def run(self, *command: str) -> str:
        line = " ".join(command)
        self.commands.append(line)
        if self.refused in line:
            raise self.error(f"`{line}`: Operation not permitted")
        match command[1:]:
            case ("link", "add", name, *_):
                self.links.add(name)
            case ("link", "delete", name):
                self.links.remove(name)
            case ("netns", "add", name):
                (self.namespaces / name).touch()
            case ("netns", "delete", name):
                (self.namespaces / name).unlink()
            case ("-4", "-json", "address"):
                # The output of ip for interfaces that it omits, and for the others.
                return json.dumps([{}, {"addr_info": [{"local": "192.0.2.2", "prefixlen": 24}]}])
            case ("-4", "-json", "route", *_):
                return json.dumps(self.routes)
        return ""

    @property
    def state(self) -> tuple[set[str], set[str]]:
        """Links and namespaces next to the host's."""
        return self.links - {"lo", "eth0"}, {path.name for path in self.namespaces.iterdir()}


def write_java(folder: Path, version: str) -> Path:
    """Write a ``java`` that only prints its version on stderr, like the real program."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!{sys.executable}\nimport sys\nprint('openjdk version \"{version}\"', file=sys.stderr)\n")
    java.chmod(0o755)
    return java


def append_half_a_line(path: Path) -> None:
    """Leave a file as a process leaves it that is killed while it writes."""
    with path.open("a") as file:
        file.write('{"index": 99, "ty')
