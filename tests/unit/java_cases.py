"""Small Java programs that tests compile with the agent and run on the classes of a version."""

import os
import subprocess
from pathlib import Path

from harness.host.java import find_java
from harness.protect.gate import build
from harness.protect.gate.build import GATE, Agent, AgentSource, build_agent, parts
from harness.targets import find_target
from harness.targets.jars import jars_for


def agent(source: AgentSource = GATE) -> Agent:
    """Return the agent of this checkout that these sources are of: the gate's, unless given."""
    return build_agent(find_java(), lambda _done, _total: None, source)


def classpath_of(target: str) -> str:
    """Return the class path of a version's brokers."""
    return jars_for(find_target(target)).classpath


def compile_java(classes: Path, *sources: Path, libraries: str | None = None) -> None:
    """Compile sources with the agent and ``libraries``: those that the agent is compiled with, unless given."""
    jars = parts(lambda _done, _total: None)
    classpath = os.pathsep.join([str(agent().jar), libraries or jars.classpath])
    build.compile_java(find_java(), jars, sources, classes, classpath)


def run_java(
    main_class: str,
    classpath: str,
    *arguments: Path,
    java: Path | None = None,
    flags: tuple[str, ...] = (),
    given: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a main class with that class path; its exit code is not looked at."""
    return subprocess.run(
        [java or find_java().path, "-XX:TieredStopAtLevel=1", *flags, "-cp", classpath, main_class, *arguments],
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
