"""``harness run``: one run on a cluster that the harness boots.

`OPTIONS` is the table of the options that define a run: the command line takes its options from it, and `command_line`
writes the command that repeats the run, so no option can be missing in one of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from harness.cli.options import parameters as kinds
from harness.cli.options.common import RESULTS, SPARK_PARAMETERS, Group, command, leave_out, options_given
from harness.console import ConsoleProgress, show
from harness.errors import UsageError
from harness.judge.progress import Progress
from harness.judge.verdict import EXIT_CODES, RunResult
from harness.play.options import RunOptions
from harness.runtimes import AUTO
from harness.schedules.placement import FEWEST_BROKERS, MOST_BROKERS, MOST_PARTITIONS
from harness.schedules.schedule import read_schedule
from harness.suggest import quoted
from harness.targets import patched
from harness.targets.settings import BROKER, TOPIC, parse_setting, parse_settings

if TYPE_CHECKING:
    from harness.host.nodes import Access

_REFERENCE = re.compile(r"[a-zA-Z0-9][\w.:/@-]{0,400}", re.ASCII)
LOGIN = frozenset({"ssh_user", "ssh_port", "ssh_key", "ssh_known_hosts", "ssh_pins"})


def _check_hosts(text: str) -> None:
    from harness.host.nodes import parse_nodes  # noqa: PLC0415  (an SSH client, which takes a while)

    parse_nodes(text.split(","))


def _check_image(text: str) -> None:
    if not _REFERENCE.fullmatch(text):
        raise UsageError(f"{quoted(text)} is not an image reference: give NAME:TAG or NAME@sha256:…")


def _check_pin(text: str) -> None:
    if not text.startswith("SHA256:"):
        raise UsageError(f"{quoted(text)}: give a fingerprint as `ssh-keygen -l` shows it, SHA256:…")


TEST, WHERE, CLUSTER, RUN = map(Group, ("Test", "Where brokers run", "Cluster", "Run"))
# fmt: off
OPTIONS = (
    TEST.option("--target", kinds.Text(kinds.TARGET.check, kinds.TARGET.names, "NAME|PATH"),
                "Version (`harness targets`; Redpanda is experimental), build or system.toml.  [required]"),
    TEST.option("--patch", kinds.PATCH, "Classes to put first on the brokers' class path."),
    TEST.option("--anomaly", kinds.ANOMALIES, "Anomaly to look for (`harness anomalies`), or all.  [required]"),
    TEST.option("--schedule", kinds.SCHEDULE_OF_A_RUN, "Play this schedule of `harness explore --out` instead."),
    TEST.option("--nemesis", kinds.NEMESIS, "Fault to inject (`harness nemeses`), or none.", default="kill"),
    TEST.option("--client", kinds.CLIENT, "librdkafka or java.", default="librdkafka"),
    WHERE.option("--runtime", kinds.RUNTIME, "local (processes), docker, ssh, sim or auto.", default=AUTO),
    WHERE.option("--nodes", kinds.Text(_check_hosts, metavar="HOST,…"),
                 "Hosts for --runtime ssh, one per broker: [USER@]HOST[:PORT]."),
    WHERE.option("--nodes-file", kinds.FILE_TO_READ, "File with one host per line."),
    WHERE.option("--ssh-user", kinds.Text(metavar="NAME"), "User on hosts without USER@.  [default: ~/.ssh/config]"),
    WHERE.option("--ssh-port", kinds.Count(1, 65_535, "PORT"),
                 "SSH port on hosts without :PORT.  [default: ~/.ssh/config]"),
    WHERE.option("--ssh-key", kinds.FILE_TO_READ, "Private key.  [default: the agent's and ~/.ssh]"),
    WHERE.option("--ssh-known-hosts", kinds.FILE_TO_READ, "Known hosts.  [default: yours]"),
    WHERE.option("--ssh-host-key", kinds.Text(_check_pin, metavar="SHA256:…"), "Fingerprint of a host key; repeatable.",
                 name="ssh_pins", multiple=True),
    WHERE.option("--image", kinds.Text(_check_image, metavar="REFERENCE"),
                 "Image for --runtime docker.  [default: the target's]"),
    WHERE.option("--command-config", kinds.FILE_TO_READ, "SASL and TLS properties for brokers and clients."),
    CLUSTER.option("--timers", kinds.TIMERS, "fast, 10m, days (of clocks), or default (two days).", default="fast"),
    CLUSTER.option("--brokers", kinds.Count(FEWEST_BROKERS, MOST_BROKERS), "Brokers, 3 to 7.", default=3),
    CLUSTER.option("--replication-factor", kinds.Count(2, MOST_BROKERS), "Replicas per partition.", default=3),
    CLUSTER.option("--partitions", kinds.Count(1, MOST_PARTITIONS), "Partitions per topic.", default=1),
    CLUSTER.option("--absent", kinds.Count(1, MOST_BROKERS - 1), "Brokers that go down together.", default=1),
    RUN.option("--seed", kinds.SEED, "Seed of every choice of the harness.  [default: random]"),
    CLUSTER.option("--set", kinds.Text(parse_setting, metavar="SCOPE.NAME=VALUE"),
                   "topic.NAME=VALUE or broker.NAME=VALUE; repeatable.", name="settings", multiple=True),
    RUN.option("--time-limit", kinds.Number(0, kinds.LONGEST_TIME_S, "S", min_open=True),
               "End the run after S seconds, as unknown.", name="time_limit_s"),
    TEST.option("--application", kinds.APPLICATION,
                "Also show what an application sees: streams, connect, or a plugin's."),
    CLUSTER.flag("--gate", "Start every broker with the gate (`harness gate`)."),
    CLUSTER.option("--gate-options", kinds.Text(metavar="NAME=VALUE,…"),
                   "Options of the gate (`harness gate build --help`)."),
    CLUSTER.flag("--guard", "Run `harness guard` next to the cluster."),
)
OF_THIS_COMMAND = (
    RESULTS,
    WHERE.option("--port-base", kinds.Count(1024, 65_532, "PORT"),
                 "First of brokers + 1 loopback ports.  [default: free ports]"),
    RUN.option("--resume", kinds.RUN_FOLDER, "Resume an interrupted run with long timers.", name="run_dir"),
    RUN.flag("--keep", "Leave the cluster up, and print how to reach it and remove it."),
)
# fmt: on
_IN_OTHER_OPTIONS = ("patch", "nodes_file", "ssh_user", "ssh_port")
"""``--nodes`` has the hosts and their login, and the target's name has the patch."""


@command(
    "harness run --target kafka-3.9 --anomaly stuck-lso",
    "harness run --target kafka-4.4 --anomaly all --nemesis join --seed 1",
    options=(*OPTIONS, *OF_THIS_COMMAND),
    spark=True,
)
def run(output: str, **parameters: Any) -> int:
    """Boot a cluster, inject a fault, and compare the logs of all brokers."""
    with closing(ConsoleProgress()) as progress:
        result = carry_out(parameters, progress)
    show(result, output)
    return EXIT_CODES[result.verdict.verdict]


def carry_out(parameters: Mapping[str, Any], progress: Progress) -> RunResult:
    """Begin or resume the run that the parameters of the current command ask for. Raises `HarnessError`."""
    from harness.play import run as runs  # noqa: PLC0415  (slow imports, only where needed)
    from harness.play.resume import GIVEN_ANEW, resume  # noqa: PLC0415  (slow imports, only where needed)

    if parameters["run_dir"] is None:
        return runs.run(request_of(parameters, options_given()), progress, command_line)
    others = options_given() - GIVEN_ANEW - SPARK_PARAMETERS - {"output", "run_dir"}
    leave_out(others, "--resume takes everything else from the run folder")
    return resume(parameters["run_dir"], progress, **{name: parameters[name] for name in GIVEN_ANEW})


def command_line(options: RunOptions) -> str:
    """Return the command that repeats the run, quoted for a shell."""
    access = options.access
    scopes = ((TOPIC, options.topic_settings), (BROKER, options.broker_settings))
    values: dict[str, Any] = {
        **vars(options),
        **dict.fromkeys(_IN_OTHER_OPTIONS),
        "anomaly": None if options.schedule else options.anomaly,
        "schedule": options.schedule_path,
        "nodes": access and ",".join(map(str, access.nodes)),
        "ssh_key": access and access.key,
        "ssh_known_hosts": access and access.known_hosts,
        "ssh_pins": access.pins if access else (),
        "settings": tuple(f"{scope}.{name}={value}" for scope, of_scope in scopes for name, value in of_scope.items()),
    }
    words = ["harness", "run"]
    for option in OPTIONS:
        flag, value = option.opts[0], values[str(option.name)]
        if option.is_flag:
            words += [flag] if value else []
        elif value is not None:
            words += [word for text in (value if option.multiple else (value,)) for word in (flag, str(text))]
    return shlex.join(words)


def request_of(parameters: Mapping[str, Any], options_given: AbstractSet[str]) -> RunOptions:
    """Return the options of Click's parameters. Raises `UsageError` for missing and for contradictory options."""
    if {"schedule", "anomaly"} <= options_given:
        raise UsageError("leave out --anomaly: the schedule names its anomaly")
    required = ("target",) if "schedule" in options_given else ("target", "anomaly")
    if missing := [f"--{name}" for name in required if name not in options_given]:
        lists = {"--target": "`harness targets`", "--anomaly": "`harness anomalies`"}
        raise UsageError(f"give {' and '.join(missing)}: see {' and '.join(lists[name] for name in missing)}")
    access = _access(parameters, options_given)
    topic_settings, broker_settings = parse_settings(parameters["settings"])
    values = {
        **parameters,
        "target": patched(parameters["target"], parameters["patch"]),
        "anomaly": parameters["anomaly"] or "",
        "schedule": read_schedule(parameters["schedule"]) if parameters["schedule"] else None,
        "schedule_path": parameters["schedule"],
        "brokers": _brokers(parameters, options_given, access),
        "topic_settings": topic_settings,
        "broker_settings": broker_settings,
        "access": access,
    }
    return RunOptions(**{field.name: values[field.name] for field in fields(RunOptions)})


def _access(parameters: Mapping[str, Any], options_given: AbstractSet[str]) -> Access | None:
    if {"nodes", "nodes_file"} <= options_given:
        raise UsageError("leave out --nodes or --nodes-file: both name the hosts")
    if not options_given & {"nodes", "nodes_file"}:
        if lonely := [option.opts[0] for option in OPTIONS if option.name in options_given & LOGIN]:
            raise UsageError(f"{lonely[0]} is for --runtime ssh: give its hosts with --nodes or --nodes-file")
        return None
    from harness.host.nodes import Access, parse_nodes, read_hosts_file  # noqa: PLC0415

    path = parameters["nodes_file"]
    texts = read_hosts_file(path) if path else parameters["nodes"].split(",")
    key, known_hosts = parameters["ssh_key"], parameters["ssh_known_hosts"]
    return Access(
        parse_nodes(texts, user=parameters["ssh_user"], port=parameters["ssh_port"]),
        key=str(key) if key else None,
        known_hosts=str(known_hosts) if known_hosts else None,
        pins=parameters["ssh_pins"],
    )


def _brokers(parameters: Mapping[str, Any], options_given: AbstractSet[str], access: Access | None) -> int:
    brokers: int = parameters["brokers"]
    if access is None:
        return brokers
    count = len(access.nodes)
    source = "--nodes" if "nodes" in options_given else f"--nodes-file {parameters['nodes_file']}"
    if "brokers" in options_given and brokers != count:
        raise UsageError(f"--brokers {brokers}: {source} names {count} hosts, and every broker needs a separate host")
    if not FEWEST_BROKERS <= count <= MOST_BROKERS:
        raise UsageError(
            f"{source} names {count} host{'s' * (count > 1)}: give {FEWEST_BROKERS} to {MOST_BROKERS}, one a broker"
        )
    return count
