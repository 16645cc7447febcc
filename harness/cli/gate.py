"""The commands of the gate, a Java agent for brokers."""

from pathlib import Path

import cloup

from harness.cli.options.common import OUTPUT, Group, command, envelope
from harness.cli.options.parameters import EXISTING_DIRECTORY, TARGET, FilePath, Text, file_to_read
from harness.console import JSON, ConsoleProgress
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, UsageError
from harness.terminal import Table, stdout

BROKER = Group("Broker")


@cloup.group()
def gate() -> None:
    """Build the Java agent that delays compaction while a replica is out of the ISR."""


@command("harness gate build", "harness gate build --output compaction-gate.jar", of=gate)
@OUTPUT.option(
    "--output",
    FilePath(dir_okay=False, metavar="JAR"),
    "Write the jar to this file.  [default: in the cache]",
    name="jar",
)
def build(jar: Path | None, output: str) -> int:
    """Compile the agent, and print its path and SHA-256.

    Start each broker with -javaagent:JAR or -javaagent:JAR=NAME=VALUE,… Options: topics=PATTERN:PATTERN,
    except=PATTERN:PATTERN, max-image-age-ms=N, give-up-after-ms=N, max-unsynced-ms=N, hold=all or hold=markers.
    """
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.protect.gate.build import build_agent, export  # noqa: PLC0415  (only where needed)

    agent = build_agent(find_java(), ConsoleProgress().jars)
    if jar is not None:
        export(agent, jar)
    path = str(jar or agent.jar)
    if output == JSON:
        stdout().json(envelope(jar=path, sha256=agent.sha256))
    else:
        stdout().line(f"{path}  {agent.sha256}")
    return EXIT_CLEAN


@command(
    "harness gate verify compaction-gate.jar --target kafka-4.4",
    "harness gate verify compaction-gate.jar --libs /opt/kafka/libs",
    of=gate,
)
@cloup.argument("jar", type=file_to_read(), metavar="JAR")
@BROKER.option("--target", TARGET, "A version: see `harness targets`.", name="name")
@BROKER.option("--libs", EXISTING_DIRECTORY, "The libs folder of a Kafka installation.")
@BROKER.option("--options", Text(metavar="NAME=VALUE,…"), "Options of the agent, to check them too.")
def verify(jar: Path, name: str | None, libs: Path | None, options: str | None, output: str) -> int:
    """Check the agent against the classes of a version, without a broker.

    Exit codes: 0 it fits, 1 it does not fit, 254 usage or set-up error, 255 failed.
    """
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.protect.gate.build import libraries, verify_agent  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    if name and libs:
        raise UsageError("leave out --target or --libs: each names the classes to check")
    if not (name or libs):
        raise UsageError("give --target or --libs: the classes to check")
    classpath = (
        libraries(libs) if libs else jars_for(find_target(name or ""), on_progress=ConsoleProgress().jars).classpath
    )
    tried = verify_agent(find_java(), jar, classpath, options or "")
    if output == JSON:
        hooks = [{"method": method, "hook": hook} for method, hook in tried.hooks]
        stdout().json(envelope(fits=tried.fits, hooks=hooks, reason=tried.reason))
    elif tried.fits:
        stdout().table(Table(("method", "calls"), tried.hooks))
        stdout().line(f"{jar} fits {name or libs}")
    else:
        stdout().line(f"{jar} does not fit {name or libs}: {tried.reason}")
    return EXIT_CLEAN if tried.fits else EXIT_ANOMALY
