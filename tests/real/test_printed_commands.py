"""Every command that audits, reports and repairs print is run as printed, on brokers that ask for a login.

The commands are taken from the printed texts and pages, and run in a shell with Kafka's own tools in front of the path.
A comment behind a command says how long to wait; `FORMS` has the effect that each kind of command must have. A kind of
command that is printed, and is missing there or not run, fails.
"""

import html
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kafka_home import make_kafka_home
from kept import Kept, commit_offset, kept_cluster
from sandbox import Sandbox, completed, harness_command, wait_until
from secured import SCRAM, batches_of, hang, login_file

from harness.audit.explain.advice import COMMIT_NOW, ONCE_AGREED, PAUSE_SETTINGS
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.judge.verdict import CLEAN
from harness.kafka_api.address import Address, parse_bootstrap
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import ask
from harness.kafka_api.security import read_security
from harness.kafka_api.topics import TOPIC_RESOURCE, describe_configs

TARGET, ANOMALIES = "kafka-4.4", "stuck-lso,groups"
HANGING, STUCK, OFFSETS = ("hanging", 0), ("stuck-lso", 0), "__consumer_offsets"
BOUND_S = 120.0
ASSIGNMENT = re.compile(r"[A-Z]+=")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
ACTIONS = (
    "--add-config", "--delete-config", "--describe", "--execute", "--verify", "--election-type", "abort",
    "--print-data-log", "--isolation-level", "--plan", "--verbose",
)  # fmt: skip
"""Words that tell apart what a tool is called for."""
CODES = {("harness", "--plan"): {EXIT_CLEAN, EXIT_UNKNOWN}, ("harness", "--verbose"): {EXIT_ANOMALY}}
"""Exit codes other than 0, by kind of command."""


@dataclass
class Shell:
    """Runs lines in one folder; variables that lines set are kept. ``forms``: the kinds of commands that ran."""

    folder: Path
    tools: Path
    environment: dict[str, str]
    variables: list[str] = field(default_factory=list)
    forms: set[tuple[str, str]] = field(default_factory=set)

    def run(self, line: str) -> str:
        """Run a line; return what it prints. Fails for an exit code that says that it failed."""
        if ASSIGNMENT.match(line):
            self.variables.append(line)
            return ""
        script = "\n".join([*self.variables, line])
        path = f"{self.tools}:{self.environment['PATH']}"
        environment = {**self.environment, "PATH": path, "KAFKA_HEAP_OPTS": QUICK_START}
        ran = completed("/bin/bash", "-euc", script, cwd=self.folder, env=environment)
        assert ran.returncode in CODES.get(form_of(line), {EXIT_CLEAN}), f"{line}\n{ran.stdout}{ran.stderr}"
        self.forms.add(form_of(line))
        return ran.stdout + ran.stderr


def form_of(line: str) -> tuple[str, str]:
    """Return the tool of a command and what it is called for."""
    tool, *words = shlex.split(line, comments=True)
    return tool, next((word for word in words if word in ACTIONS), "")


@dataclass(frozen=True)
class Diverged:
    """The kept brokers of a run, and the properties file of the user who operates them."""

    kept: Kept
    login: Path

    @property
    def addresses(self) -> Sequence[Address]:
        return parse_bootstrap(self.kept.bootstrap, read_security(self.login))

    @property
    def admin(self) -> Admin:
        return Admin(lambda: self.addresses)

    @property
    def server(self) -> tuple[str, ...]:
        return ("--bootstrap-server", self.kept.bootstrap, "--command-config", str(self.login))

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's own values of the settings that pause compaction and throttle copies."""
        entries = ask(self.addresses[0], describe_configs(TOPIC_RESOURCE, [topic]))[topic]
        assert not isinstance(entries, str)
        names = {*PAUSE_SETTINGS, *THROTTLED}
        return {name: entry.value for name, entry in entries.items() if entry.is_explicit and name in names}


@pytest.fixture
def cluster(sandbox: Sandbox) -> Iterator[Diverged]:
    login = login_file(sandbox.root, "operator", "a secret", SCRAM)
    late = ("--set", "broker.transaction.partition.verification.enable=false")
    with kept_cluster(sandbox, TARGET, ANOMALIES, "--command-config", str(login), *late) as kept:
        yield Diverged(kept, login)


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return each finding of a text with its commands, among them the line that commits an offset."""
    printed: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("ANOMALY "):
            printed.append((line, []))
        elif printed and re.match(r" {4}\S|  commit: ", line):
            printed[-1][1].append(line.strip())
    return [(finding, lines) for finding, lines in printed if lines]


def in_order(block: Sequence[str]) -> Iterator[str]:
    """Yield the commands of a finding as its comments tell to run them."""
    commits = [line.removeprefix("commit: ") for line in block if line.startswith("commit: ")]
    for line in block:
        if line == COMMIT_NOW:
            yield from commits
        elif line.startswith(ONCE_AGREED):
            yield line.removeprefix(ONCE_AGREED)
        elif not line.startswith("commit: "):
            assert not line.startswith("#"), f"a comment that nobody follows: {line}"
            yield line


class Operator:
    """Runs commands and does what the comments behind them say."""

    def __init__(self, cluster: Diverged, shell: Shell) -> None:
        self.cluster, self.shell = cluster, shell

    def run(self, line: str) -> None:
        """Run one printed line, again until it prints what its comment waits for; check its effect."""
        comment = line.partition("  # ")[2]
        output = ""

        def is_done() -> bool:
            nonlocal output
            output = self.shell.run(line)
            if gone := re.fullmatch(r"continue once (\S+) is gone", comment):
                return f'"{gone[1]}"' not in output
            return comment != "continue once it is complete" or "is completed" in output

        wait_until(is_done, BOUND_S, line)
        if folder := re.match(r"copy its folder of (\S+) with cp -a, on the host of broker (\d)", comment):
            copied = self.cluster.kept.log_dirs[int(folder[2])] / folder[1]
            subprocess.run(["cp", "-a", copied, self.shell.folder], check=True)
        if not ASSIGNMENT.match(line):
            FORMS[form_of(line)](self.cluster, line, output)


def is_set(cluster: Diverged, line: str, _output: str) -> None:
    """Check the settings that a command sets or deletes."""
    words = shlex.split(line, comments=True)
    changed = [word.partition("=") for word in words[-1].split(",")]
    actual = cluster.settings(words[words.index("--entity-name") + 1])
    for name, sign, value in changed:
        # Brokers return 1 as 1.0.
        assert (float(actual[name]) == float(value)) if sign else name not in actual, (line, actual)


def is_throttled(_cluster: Diverged, _line: str, output: str) -> None:
    assert "The inter-broker throttle limit was set to 50000000 B/s" in output
    assert "Successfully started partition reassignment" in output


def is_not_throttled(cluster: Diverged, line: str, output: str) -> None:
    (file,) = re.findall(r"--reassignment-json-file (\S+)", line)
    (topic,) = re.findall(r"^(.*)-\d+-", file)
    assert "Clearing topic-level throttles" in output
    assert cluster.settings(topic).keys().isdisjoint(THROTTLED)


def is_like(pattern: str) -> Callable[[Diverged, str, str], None]:
    def check(_cluster: Diverged, line: str, output: str) -> None:
        assert re.search(pattern, output), f"{line}\n{output}"

    return check


FORMS: dict[tuple[str, str], Callable[[Diverged, str, str], None]] = {
    ("kafka-configs.sh", "--add-config"): is_set,
    ("kafka-configs.sh", "--delete-config"): is_set,
    ("kafka-log-dirs.sh", "--describe"): is_like('"brokers":'),
    ("echo", ""): is_like("^$"),
    ("kafka-reassign-partitions.sh", "--execute"): is_throttled,
    ("kafka-reassign-partitions.sh", "--verify"): is_not_throttled,
    ("kafka-leader-election.sh", "--election-type"): is_like("Successfully completed|Valid replica already elected"),
    ("kafka-consumer-groups.sh", "--execute"): is_like(r"group-aborted-to-committed\S* +\S+ +0 +10"),
    ("kafka-transactions.sh", "abort"): is_like("^$"),
    ("kafka-dump-log.sh", "--print-data-log"): is_like("baseOffset: 0"),
    ("kafka-console-consumer.sh", "--isolation-level"): is_like("Processed a total of [1-9]"),
    ("harness", "--plan"): is_like("(?m)^the audit began"),
    ("harness", "--verbose"): is_like("ANOMALY +stuck-lso"),
}
"""The effect of each kind of command: its output, or what it changes."""


def test_every_printed_command_does_what_it_says(cluster: Diverged, sandbox: Sandbox) -> None:
    home = make_kafka_home(sandbox.root / "kafka")
    command = home / "bin" / "harness"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(harness_command())} "$@"\n')
    command.chmod(0o755)
    shell = Shell(sandbox.root, home / "bin", sandbox.environment)
    operator = Operator(cluster, shell)
    cluster.admin.create_topics({HANGING: (3, 1, 2)}, {"cleanup.policy": "compact"})
    hang(cluster.admin, cluster.addresses, HANGING)
    # One setting of a pause is the topic's own, the other is inherited: different commands restore them.
    cluster.admin.alter_topics([STUCK[0]], {"max.compaction.lag.ms": None})
    # The brokers cannot load the partition of the group that the run has upgraded: these groups are in others.
    for group, offset in (("search", 2), ("stock", 0)):
        commit_offset(cluster.addresses, group, HANGING, offset)
    keyed = sandbox.call("audit", "key", *cluster.server, "--topic", STUCK[0], "--key", "K", code=EXIT_ANOMALY)
    printed = re.findall(r"^next: (.*)$", keyed.stdout, re.MULTILINE)
    operator.run(*printed)
    printed += an_undecided_audit(cluster, sandbox, operator) + an_audit_of_disks(cluster, sandbox, operator)
    the_page_of_a_run(cluster, operator)
    assert {form_of(line) for line in printed} <= shell.forms
    assert shell.forms == FORMS.keys()


def commands_of(printed: Sequence[tuple[str, list[str]]]) -> list[str]:
    return [line for _, block in printed for line in in_order(block) if not ASSIGNMENT.match(line)]


def an_undecided_audit(cluster: Diverged, sandbox: Sandbox, operator: Operator) -> list[str]:
    """Abort what hangs; pause and resume compaction where no replica is shown to be right; plan a repair."""
    topics = ("--topic", HANGING[0], "--topic", STUCK[0])
    audited = sandbox.call("audit", "live", *cluster.server, *topics, "--verbose", "--output", "audit.json")
    assert audited.code == EXIT_ANOMALY, audited.output
    assert "read_committed consumers stop at offset 2 (1 offset is hidden); group search is stuck" in audited.stdout
    assert "; group stock stops there" in audited.stdout
    aborting = re.search(r"^  Next +(BOOTSTRAP=.*\n(?: {13}.*\n)+)", audited.stdout, re.MULTILINE)
    assert aborting, audited.output
    for line in map(str.strip, aborting[1].splitlines()):
        operator.run(line)
    brokers = cluster.addresses
    wait_until(lambda: all(len(batches_of(one, HANGING)) == 4 for one in brokers), BOUND_S, "the ABORT marker")
    before, printed = cluster.settings(STUCK[0]), blocks(audited.stdout)
    for finding, block in printed:
        if f" {STUCK[0]}-{STUCK[1]}," in finding:
            for line in in_order(block):
                operator.run(line)
    assert cluster.settings(STUCK[0]) == before
    (repair,) = set(re.findall(r"^next +(harness repair .* --plan)$", audited.stdout, re.MULTILINE))
    operator.run(repair)
    return [*commands_of(printed), repair]


def an_audit_of_disks(cluster: Diverged, sandbox: Sandbox, operator: Operator) -> list[str]:
    """Rebuild two replicas by hand, of which one has committed offsets; each agrees with the others afterwards."""
    disks = [word for broker, folder in cluster.kept.log_dirs.items() for word in ("--broker", f"{broker}={folder}")]
    topics = ("--topic", STUCK[0], "--topic", OFFSETS)
    audited = sandbox.call("audit", "disk", *disks, *topics, "--verbose")
    assert audited.code == EXIT_ANOMALY, audited.output
    printed = blocks(audited.stdout)
    repaired = []
    for finding, block in printed:
        is_committed = "aborted-to-committed" in finding and any(line.startswith("commit: ") for line in block)
        if not (f" {STUCK[0]}-{STUCK[1]}," in finding or is_committed):
            continue
        (name,) = re.findall(r"broker \d, (\S+-\d+), offset", finding)
        topic = name.rpartition("-")[0]
        before = cluster.settings(topic)
        for line in in_order(block):
            # As the printed lines and the page of audits say.
            is_login = line.startswith("CONFIG=/dev/null  # or a client's properties file")
            operator.run(f"CONFIG={cluster.login}" if is_login else line.replace("HOST:PORT", cluster.kept.bootstrap))
        assert cluster.settings(topic) == before
        repaired.append(name)
    assert len(repaired) == 2, audited.output
    again = sandbox.call("audit", "live", *cluster.server, *topics, "--format", "json")
    verdicts = {scenario["scenario"]: scenario["verdict"] for scenario in again.verdict["scenarios"]}
    assert {name: verdicts[name] for name in repaired} == dict.fromkeys(repaired, CLEAN), again.output
    return commands_of(printed)


def the_page_of_a_run(cluster: Diverged, operator: Operator) -> None:
    page = html.unescape((cluster.kept.run / "report.html").read_text())
    shown = re.findall(r"<p>Commands</p>\n<pre>(.*?)</pre>", page, re.DOTALL)
    lines = next(text for text in shown if STUCK[0] in text).splitlines()
    operator.shell.folder = cluster.kept.run
    for line in lines:
        operator.run(line.replace("HOST:PORT", cluster.kept.bootstrap))
