"""The options of ``harness run``: one table of the options that define a run.

The command line takes its options from this table, and the command that repeats the run is written from it; so an
option that is missing in one is missing in both. Options that only name files for output, or the form of results, are
in `harness.cli.main`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import cloup

from harness.cli.options.parameters import (
    ANOMALIES,
    APPLICATION,
    CLIENT,
    LONGEST_TIME_S,
    MOST_SEED,
    NEMESIS,
    PATCH,
    RUNTIME,
    TARGET,
    TIMERS,
    Count,
    Number,
    Text,
    file_to_read,
)
from harness.errors import UsageError
from harness.play.options import RunOptions
from harness.runtimes import AUTO
from harness.schedules.placement import FEWEST_BROKERS, MOST_BROKERS, MOST_PARTITIONS
from harness.suggest import quoted
from harness.targets import patched
from harness.targets.settings import BROKER, TOPIC, parse_setting, parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from harness.host.nodes import Access

Command = TypeVar("Command", bound="Callable[..., int]")

_REFERENCE = re.compile(r"[a-zA-Z0-9][\w.:/@-]{0,400}", re.ASCII)
OF_HOSTS = ("ssh_user", "ssh_port", "ssh_key", "ssh_known_hosts", "ssh_pins")
"""Parameters of the login to hosts."""


@dataclass(frozen=True)
class RunOption:
    """One option of ``harness run``: ``value`` is its argument on the command line, None or () for no argument.

    ``parameter``: Click's name of it. ``click``: its declaration for Cloup, with its group.
    """

    flag: str
    parameter: str
    value: Callable[[RunOptions], Any]
    click: Mapping[str, Any]

    def arguments(self, options: RunOptions) -> list[str]:
        """Return the arguments of a command line for the same value."""
        value = self.value(options)
        if value is None or value is False:
            return []
        if value is True:
            return [self.flag]
        return [
            word
            for argument in (value if isinstance(value, tuple) else (value,))
            for word in (self.flag, str(argument))
        ]


def _option(
    group: cloup.OptionGroup,
    flag: str,
    parameter: str = "",
    *,
    value: Callable[[RunOptions], Any] | None = None,
    **options: Any,
) -> RunOption:
    """Return the option whose parameter and value have the flag's name, unless others are given."""
    parameter = parameter or flag.removeprefix("--").replace("-", "_")
    return RunOption(flag, parameter, value or attrgetter(parameter), {"group": group, **options})


def _is_of_nodes(_: RunOptions) -> None:
    """Return None: the argument of ``--nodes`` contains the value."""


def _is_of_target(_: RunOptions) -> None:
    """Return None: the name of a patched target contains the value."""


def _pairs(options: RunOptions) -> tuple[str, ...]:
    scopes = ((TOPIC, options.topic_settings), (BROKER, options.broker_settings))
    return tuple(f"{scope}.{name}={value}" for scope, settings in scopes for name, value in settings.items())


def _hosts(text: str) -> None:
    from harness.host.nodes import parse_nodes  # noqa: PLC0415  (an SSH client, which takes a while)

    parse_nodes(text.split(","))


def _image(text: str) -> None:
    if not _REFERENCE.fullmatch(text):
        raise UsageError(f"{quoted(text)} is not an image reference: give NAME:TAG or NAME@sha256:…")


def _pin(text: str) -> None:
    if not text.startswith("SHA256:"):
        raise UsageError(f"{quoted(text)}: give a fingerprint as `ssh-keygen -l` shows it, SHA256:…")


TEST, WHERE, CLUSTER, RUN = map(cloup.OptionGroup, ("Test", "Where brokers run", "Cluster", "Run"))

# fmt: off
OPTIONS = (
    _option(TEST, "--target", type=TARGET, metavar="NAME|PATH",
            help="The version to test: see `harness targets`, or the path of your own Kafka.  [required]"),
    _option(TEST, "--patch", value=_is_of_target, type=PATCH, metavar="DIR|JAR",
            help="Classes in front of the class path of the target's brokers."),
    _option(TEST, "--anomaly", value=lambda o: None if o.schedule else o.anomaly, type=ANOMALIES, metavar="NAME",
            help="The anomaly to look for, or `all`: see `harness anomalies`.  [required]"),
    _option(TEST, "--schedule", value=lambda o: o.schedule_path, metavar="FILE",
            type=file_to_read("`harness explore --out` writes schedules"),
            help="A schedule to play, as `harness explore --out` writes it; replaces --anomaly."),
    _option(TEST, "--nemesis", type=NEMESIS, default="kill", show_default=True, metavar="NAME",
            help="The fault to inject: see `harness nemeses`; none is the healthy control."),
    _option(TEST, "--client", type=CLIENT, default="librdkafka", show_default=True, metavar="NAME",
            help="librdkafka or java."),
    _option(WHERE, "--runtime", type=RUNTIME, default=AUTO, show_default=True, metavar="NAME",
            help="local (processes), docker, ssh, sim (models), or auto: docker where an engine and an image are at"
            " hand."),
    _option(WHERE, "--nodes", value=lambda o: ",".join(map(str, o.access.nodes)) if o.access else None,
            type=Text(_hosts), metavar="HOST,…", help="Hosts for --runtime ssh, one a broker: [user@]host[:port]."),
    _option(WHERE, "--nodes-file", value=_is_of_nodes, type=file_to_read(), metavar="FILE",
            help="The same, one a line."),
    _option(WHERE, "--ssh-user", value=_is_of_nodes, type=Text(), metavar="NAME",
            help="User for hosts without USER@.  [default: yours]"),
    _option(WHERE, "--ssh-port", value=_is_of_nodes, type=Count(1, 65_535), default=22, metavar="PORT",
            help="Port for hosts without :PORT."),
    _option(WHERE, "--ssh-key", value=lambda o: o.access.key if o.access else None, type=file_to_read(), metavar="FILE",
            help="A private key.  [default: the agent's, and the usual ones]"),
    _option(WHERE, "--ssh-known-hosts", value=lambda o: o.access.known_hosts if o.access else None, type=file_to_read(),
            metavar="FILE", help="Host keys to trust.  [default: yours]"),
    _option(WHERE, "--ssh-host-key", "ssh_pins", value=lambda o: o.access.pins if o.access else (), type=Text(_pin),
            multiple=True, metavar="SHA256:…", help="A host key to trust; repeatable."),
    _option(WHERE, "--image", type=Text(_image), metavar="REFERENCE",
            help="The image to use with docker.  [default: the target's]"),
    _option(WHERE, "--command-config", type=file_to_read(), metavar="FILE",
            help="A Java client's properties for SASL and TLS: brokers ask for that login, and every client uses it."),
    _option(CLUSTER, "--timers", type=TIMERS, default="fast", show_default=True, metavar="NAME",
            help="fast, 10m, or default (days)."),
    _option(CLUSTER, "--brokers", type=Count(FEWEST_BROKERS, MOST_BROKERS), default=3, show_default=True, metavar="N",
            help="Number of brokers, 3 to 7."),
    _option(CLUSTER, "--replication-factor", type=Count(2, MOST_BROKERS), default=3, show_default=True, metavar="N",
            help="Replicas a partition."),
    _option(CLUSTER, "--partitions", type=Count(1, MOST_PARTITIONS), default=1, show_default=True, metavar="N",
            help="Partitions a topic."),
    _option(CLUSTER, "--absent", type=Count(1, MOST_BROKERS - 1), default=1, show_default=True, metavar="N",
            help="Number of brokers that go down together."),
    _option(RUN, "--seed", type=Count(0, MOST_SEED), help="Fixes every choice the harness makes.  [default: random]"),
    _option(CLUSTER, "--set", "settings", value=_pairs, type=Text(parse_setting), multiple=True,
            metavar="SCOPE.NAME=VALUE",
            help="topic.NAME=VALUE or broker.NAME=VALUE; repeatable."),
    _option(RUN, "--time-limit", "time_limit_s", type=Number(min=0, min_open=True, max=LONGEST_TIME_S), metavar="S",
            help="Bound on the whole run, in seconds; then `unknown`."),
    _option(TEST, "--application", type=APPLICATION, metavar="NAME",
            help="Then show what an application on top sees: streams or connect."),
    _option(CLUSTER, "--gate", is_flag=True,
            help="Start every broker with the gate, which delays cleaning while a replica is out of the ISR."),
    _option(CLUSTER, "--gate-options", type=Text(), metavar="NAME=VALUE,…",
            help="Options of the gate: see `harness gate build --help`."),
    _option(CLUSTER, "--guard", is_flag=True,
            help="Run `harness guard` next to the cluster: it pauses compaction while a replica is out of the ISR."),
    _option(RUN, "--aftermath", is_flag=True, help="Then show how long a stuck LSO lasts, and what ends it."),
)
# fmt: on
"""``--nodes`` stands for all options of the hosts and of the login to them."""


def run_options(command: Command) -> Command:
    """Add every option of the table to a command."""
    for option in reversed(OPTIONS):
        command = cloup.option(option.flag, option.parameter, **option.click)(command)
    return command


def command_line(options: RunOptions) -> str:
    """Return the command that repeats the run, quoted for a shell."""
    return shlex.join(["harness", "run", *(argument for option in OPTIONS for argument in option.arguments(options))])


def request_of(parameters: Mapping[str, Any], options_given: AbstractSet[str]) -> RunOptions:
    """Return the options of Click's parameters; ``given``: the names of those on the command line.

    Raises `UsageError` for missing options, and for options that contradict each other.
    """
    from harness.schedules.schedule import read_schedule  # noqa: PLC0415  (only where needed)

    if {"schedule", "anomaly"} <= options_given:
        raise UsageError("give --anomaly or --schedule: a schedule names its anomaly")
    required = ("target",) if "schedule" in options_given else ("target", "anomaly")
    if missing := [f"--{name}" for name in required if name not in options_given]:
        raise UsageError(f"give {' and '.join(missing)}: see `harness targets` and `harness anomalies`")
    access = _access(parameters, options_given)
    topic_settings, broker_settings = parse_settings(parameters["settings"])
    names = RunOptions.__dataclass_fields__
    return RunOptions(
        **{name: value for name, value in parameters.items() if name in names and name not in _DERIVED},
        target=patched(parameters["target"], parameters["patch"]),
        anomaly=parameters["anomaly"] or "",
        schedule=read_schedule(parameters["schedule"]) if parameters["schedule"] else None,
        schedule_path=parameters["schedule"],
        brokers=_brokers(parameters, options_given, access),
        topic_settings=topic_settings,
        broker_settings=broker_settings,
        access=access,
    )


_DERIVED = frozenset({"target", "anomaly", "schedule", "brokers"})


def _access(parameters: Mapping[str, Any], options_given: AbstractSet[str]) -> Access | None:
    """Return the login to the given hosts; None where none are given."""
    if {"nodes", "nodes_file"} <= options_given:
        raise UsageError("give --nodes or --nodes-file: both name the hosts")
    if not options_given & {"nodes", "nodes_file"}:
        if lonely := [option.flag for option in OPTIONS if option.parameter in options_given & set(OF_HOSTS)]:
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
    """Return the number of brokers: one a host, where hosts are given."""
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
