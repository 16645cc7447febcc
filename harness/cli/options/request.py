"""The options of ``harness run``: one table of the options that define a run.

The command line takes its options from this table, and the command that repeats the run is written from it; so an
option cannot be missing in one of them. Options that only choose output files and formats are in `harness.cli.run`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from harness.cli.options import parameters as kinds
from harness.cli.options.common import Group
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

    import click

    from harness.host.nodes import Access

_REFERENCE = re.compile(r"[a-zA-Z0-9][\w.:/@-]{0,400}", re.ASCII)
LOGIN = frozenset({"ssh_user", "ssh_port", "ssh_key", "ssh_known_hosts", "ssh_pins"})
"""Parameters of the login to hosts."""


@dataclass(frozen=True)
class RunOption:
    """One option of ``harness run``: ``value`` is its argument on the command line, None or () for no argument.

    ``parameter``: the name of the command's parameter. ``declare``: adds the option to a command.
    """

    flag: str
    parameter: str
    value: Callable[[RunOptions], Any]
    declare: Callable[[Callable[..., int]], Callable[..., int]]

    def arguments(self, options: RunOptions) -> list[str]:
        """Return the arguments of a command line for the same value."""
        value = self.value(options)
        if value is None or isinstance(value, bool):
            return [self.flag] if value else []
        values = value if isinstance(value, tuple) else (value,)
        return [word for argument in values for word in (self.flag, str(argument))]


def _option(
    group: Group,
    name: str,
    kind: click.ParamType[Any] | None,
    text: str,
    parameter: str = "",
    *,
    value: Callable[[RunOptions], Any] | None = None,
    **settings: Any,
) -> RunOption:
    """Return the option whose parameter and value have the option's name, unless others are passed.

    ``kind``: None for an option without a value.
    """
    parameter = parameter or name.removeprefix("--").replace("-", "_")
    if kind is None:
        declare = group.flag(name, text, name=parameter)
    else:
        declare = group.option(name, kind, text, name=parameter, **settings)
    return RunOption(name, parameter, value or attrgetter(parameter), declare)


def _is_elsewhere(_: RunOptions) -> None:
    """Return None: ``--nodes`` has the hosts and their login, and the target's name has the patch."""


def _access_value(name: str) -> Callable[[RunOptions], Any]:
    return lambda options: getattr(options.access, name) if options.access else None


def _settings_values(options: RunOptions) -> tuple[str, ...]:
    scopes = ((TOPIC, options.topic_settings), (BROKER, options.broker_settings))
    return tuple(f"{scope}.{name}={value}" for scope, settings in scopes for name, value in settings.items())


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
    _option(TEST, "--target", kinds.Text(kinds.TARGET.check, kinds.TARGET.names, "NAME|PATH"),
            "The version to test: see `harness targets`, or the path of your own Kafka.  [required]"),
    _option(TEST, "--patch", kinds.PATCH, "Classes in front of the class path of the target's brokers.",
            value=_is_elsewhere),
    _option(TEST, "--anomaly", kinds.ANOMALIES,
            "The anomaly to look for, or `all`: see `harness anomalies`.  [required]",
            value=lambda o: None if o.schedule else o.anomaly),
    _option(TEST, "--schedule", kinds.file_to_read("`harness explore --out` writes schedules"),
            "A schedule to play, as `harness explore --out` writes it; replaces --anomaly.",
            value=lambda o: o.schedule_path),
    _option(TEST, "--nemesis", kinds.NEMESIS, default="kill",
            text="The fault to inject: see `harness nemeses`; none is the healthy control."),
    _option(TEST, "--client", kinds.CLIENT, "librdkafka or java.", default="librdkafka"),
    _option(WHERE, "--runtime", kinds.RUNTIME, "local (processes), docker, ssh, sim (models), or auto: docker where an"
            " engine and an image are at hand.", default=AUTO),
    _option(WHERE, "--nodes", kinds.Text(_check_hosts, metavar="HOST,…"),
            "Hosts for --runtime ssh, one a broker: [user@]host[:port].",
            value=lambda o: ",".join(map(str, o.access.nodes)) if o.access else None),
    _option(WHERE, "--nodes-file", kinds.file_to_read(), "The same, one a line.", value=_is_elsewhere),
    _option(WHERE, "--ssh-user", kinds.Text(metavar="NAME"), "User for hosts without USER@.  [default: yours]",
            value=_is_elsewhere),
    _option(WHERE, "--ssh-port", kinds.Count(1, 65_535, "PORT"), "Port for hosts without :PORT.", value=_is_elsewhere,
            default=22, show_default=False),
    _option(WHERE, "--ssh-key", kinds.file_to_read(), "A private key.  [default: the agent's, and the usual ones]",
            value=_access_value("key")),
    _option(WHERE, "--ssh-known-hosts", kinds.file_to_read(), "Host keys to trust.  [default: yours]",
            value=_access_value("known_hosts")),
    _option(WHERE, "--ssh-host-key", kinds.Text(_check_pin, metavar="SHA256:…"), "A host key to trust; repeatable.",
            "ssh_pins", value=_access_value("pins"), multiple=True),
    _option(WHERE, "--image", kinds.Text(_check_image, metavar="REFERENCE"),
            "The image to use with docker.  [default: the target's]"),
    _option(WHERE, "--command-config", kinds.file_to_read(),
            "A Java client's properties for SASL and TLS: brokers ask for that login, and every client uses it."),
    _option(CLUSTER, "--timers", kinds.TIMERS, "fast, 10m, or default (days).", default="fast"),
    _option(CLUSTER, "--brokers", kinds.Count(FEWEST_BROKERS, MOST_BROKERS), "Number of brokers, 3 to 7.", default=3),
    _option(CLUSTER, "--replication-factor", kinds.Count(2, MOST_BROKERS), "Replicas a partition.", default=3),
    _option(CLUSTER, "--partitions", kinds.Count(1, MOST_PARTITIONS), "Partitions a topic.", default=1),
    _option(CLUSTER, "--absent", kinds.Count(1, MOST_BROKERS - 1), default=1,
            text="Number of brokers that go down together."),
    _option(RUN, "--seed", kinds.SEED, "Fixes every choice the harness makes.  [default: random]"),
    _option(CLUSTER, "--set", kinds.Text(parse_setting, metavar="SCOPE.NAME=VALUE"),
            "topic.NAME=VALUE or broker.NAME=VALUE; repeatable.", "settings", value=_settings_values, multiple=True),
    _option(RUN, "--time-limit", kinds.Number(0, kinds.LONGEST_TIME_S, "S", min_open=True),
            "Bound on the whole run, in seconds; then `unknown`.", "time_limit_s"),
    _option(TEST, "--application", kinds.APPLICATION, "Then show what an application on top sees: streams or connect."),
    _option(CLUSTER, "--gate", None,
            "Start every broker with the gate, which delays cleaning while a replica is out of the ISR."),
    _option(CLUSTER, "--gate-options", kinds.Text(metavar="NAME=VALUE,…"),
            "Options of the gate: see `harness gate build --help`."),
    _option(CLUSTER, "--guard", None,
            "Run `harness guard` next to the cluster: it pauses compaction while a replica is out of the ISR."),
    _option(RUN, "--aftermath", None, "Then show how long a stuck LSO lasts, and what ends it."),
)
# fmt: on
"""``--nodes`` stands for all options of the hosts and of the login to them."""


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add every option of the table to a command."""
    for row in reversed(OPTIONS):
        command = row.declare(command)
    return command


def command_line(options: RunOptions) -> str:
    """Return the command that repeats the run, quoted for a shell."""
    return shlex.join(["harness", "run", *(argument for option in OPTIONS for argument in option.arguments(options))])


def request_of(parameters: Mapping[str, Any], options_given: AbstractSet[str]) -> RunOptions:
    """Return the options of Click's parameters; ``options_given``: the parameters on the command line itself.

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
    """Return the login to the hosts; None without hosts."""
    if {"nodes", "nodes_file"} <= options_given:
        raise UsageError("give --nodes or --nodes-file: both name the hosts")
    if not options_given & {"nodes", "nodes_file"}:
        if lonely := [row.flag for row in OPTIONS if row.parameter in options_given & LOGIN]:
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
    """Return the number of brokers: one a host, if there are hosts."""
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
