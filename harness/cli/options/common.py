"""Declaration of commands: examples, tables of options, and the options that several commands have."""

import copy
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import cloup
from click.core import ParameterSource

from harness import DISTRIBUTION
from harness.cli.config_file import use_cluster
from harness.cli.options.parameters import DIRECTORY, FILE_TO_READ, TOPIC, Text
from harness.console import JSON, QUIET, TEXT, VERBOSE
from harness.errors import UsageError
from harness.kafka_api.address import Address, parse_bootstrap
from harness.spark.options import LOCAL, parse_spark, raise_if_secret

ENVELOPE_SCHEMA: Final = 1
"""Version of the format that `envelope` returns."""
SPARK_PARAMETERS: Final = frozenset({"spark_master", "spark_conf"})


class Group:
    """A heading in the help of a command, below which its methods declare options."""

    def __init__(self, title: str) -> None:
        self.title = title

    def option(
        self, names: str, kind: click.ParamType[Any] | None, text: str, *, name: str = "", **settings: Any
    ) -> cloup.Option:
        """Return an option, whose help is ``text`` and the default. ``name``: of its parameter, if it is another."""
        default = settings.get("default")
        if isinstance(default, float) and default.is_integer():
            settings["default"] = int(default)  # the help shows it as it is here
        settings.setdefault("show_default", default is not None)
        declared = [*names.split(), *([name] if name else [])]
        return cloup.Option(declared, type=kind, help=text, group=cloup.OptionGroup(self.title), **settings)

    def flag(self, names: str, text: str, **settings: Any) -> cloup.Option:
        """Return an option without a value."""
        return self.option(names, None, text, is_flag=True, **settings)


OUTPUT, CLUSTER, SPARK = map(Group, ("Output", "Cluster", "Spark"))


def examples(*lines: str) -> str:
    """Return the epilog of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, which a list of commands shows in full."""
    return (text or "").partition("\n\n")[0].replace("\n    ", " ")


def in_groups(parameters: Iterable[click.Parameter]) -> list[click.Parameter]:
    """Return copies for one command: Cloup stores the options of a command in its groups, so each has its own."""
    copies, groups = list(map(copy.copy, parameters)), dict[str, cloup.OptionGroup]()
    for parameter in copies:
        if (group := getattr(parameter, "group", None)) is not None:
            parameter.group = groups.setdefault(group.title, cloup.OptionGroup(group.title))  # type: ignore[attr-defined]
    return copies


def command(
    *lines: str,
    options: Sequence[click.Parameter] = (),
    of: click.Group | None = None,
    formats: bool = True,
    spark: bool = False,
) -> Callable[[Callable[..., int]], cloup.Command]:
    """Return a decorator that makes a command, with these command lines as its examples; ``of``: its group.

    Every command has ``-v`` and ``-q``. With ``formats`` it has ``--format``, which it gets as ``output``; with
    ``spark``, ``--spark-master`` and ``--spark-conf``, which it gets as ``spark``, a `SparkOptions`.
    """

    def decorate(callback: Callable[..., int]) -> cloup.Command:
        @functools.wraps(callback)
        def run(*arguments: Any, **parameters: Any) -> int:
            if spark:
                master, conf = parameters.pop("spark_master"), parameters.pop("spark_conf")
                parameters["spark"] = parse_spark(master, conf)
                if "spark_conf" in options_given():
                    raise_if_secret(parameters["spark"].conf)
            return callback(*arguments, **parameters)

        shared = [*(SPARK_OPTIONS if spark else ()), *([FORMAT] if formats else ()), *VERBOSITY, HELP]
        declared = in_groups([*options, *shared])
        made = cloup.command(epilog=examples(*lines), short_help=summary(callback.__doc__), params=declared)(run)
        if of is not None:
            of.add_command(made)
        return made

    return decorate


def _be_loud(context: click.Context, _parameter: click.Parameter, is_on: bool) -> None:  # noqa: FBT001
    if is_on:
        context.meta[VERBOSE] = True
        logging.getLogger("harness").setLevel(logging.DEBUG)
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.DEBUG)


def _show_help(context: click.Context, _parameter: click.Parameter, is_on: bool) -> None:  # noqa: FBT001
    if is_on and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)  # noqa: TID251  (the help is our own)
        context.exit()


# fmt: off
HELP: Final = OUTPUT.flag("-h --help", "Show this help.", expose_value=False, is_eager=True, callback=_show_help)
VERBOSITY: Final = (
    OUTPUT.flag("-v --verbose", "Print all details, and log messages.", expose_value=False, callback=_be_loud),
    OUTPUT.flag("-q --quiet", "Print no progress.", expose_value=False,
                callback=lambda context, _, is_on: context.meta.update({QUIET: True} if is_on else {})),
)
FORMAT: Final = OUTPUT.option("--format", click.Choice([TEXT, JSON]), "Output format.", name="output", default=TEXT)
SPARK_OPTIONS: Final = (
    SPARK.option("--spark-master", Text(metavar="URL"), "spark://HOST:PORT, yarn, k8s://URL or local[N].",
                 default=LOCAL),
    SPARK.option("--spark-conf", Text(metavar="KEY=VALUE"),
                 "A Spark setting, such as spark.driver.memory=4g; repeatable.", multiple=True),
)
RESULTS: Final = OUTPUT.option("--results", DIRECTORY, "Folder of run folders.", default=Path("results"))
SERVERS: Final = Text(parse_bootstrap, metavar="HOST:PORT,…")
BOOTSTRAP: Final = CLUSTER.option("--bootstrap-server", SERVERS, "Bootstrap brokers.", name="bootstrap", required=True)
CONFIG: Final = CLUSTER.option("--command-config", FILE_TO_READ, "Properties file of a Java client, for SASL and TLS.",
                               name="config")
CLUSTER_NAME: Final = CLUSTER.option("--cluster", Text(metavar="NAME"),
                                     "Brokers, login and topics from [clusters.NAME] of harness.toml.",
                                     callback=use_cluster, expose_value=False, is_eager=True)
"""For commands that only read a cluster."""
CONTROLLERS: Final = (
    CLUSTER.option("--controllers", SERVERS,
                   "Also fetch the metadata log, which decides more findings. Needs ClusterAction."),
    CLUSTER.option("--controllers-config", FILE_TO_READ,
                   "Properties file for the controllers.  [default: --command-config]"),
)
# fmt: on


def topic_option(group: Group) -> cloup.Option:
    """Return ``--topic``, which a command gets as ``topics``."""
    text = (
        "A topic or a pattern such as 'orders-*'; repeatable. Only patterns that begin with __ match internal topics."
        "  [default: every compacted topic]"
    )
    return group.option("--topic", TOPIC, text, name="topics", multiple=True)


def addresses(bootstrap: str, config: Path | None) -> list[Address]:
    """Return the bootstrap addresses, with the login of a properties file. Raises `UsageError` for either."""
    from harness.kafka_api.security import read_security  # noqa: PLC0415  (slow imports, only where needed)

    return parse_bootstrap(bootstrap, read_security(config) if config else None)


def options_given() -> frozenset[str]:
    """Return the parameters on the command line itself: no defaults, and no settings of harness.toml."""
    context = click.get_current_context()
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def leave_out(parameters: AbstractSet[str], why: str) -> None:
    """Raise `UsageError` for these parameters of the current command, if there are any, with the reason."""
    options = click.get_current_context().command.params
    if flags := [option.opts[0] for option in options if option.name in parameters]:
        raise UsageError(f"{why}: leave out {', '.join(flags)}")


def envelope(**content: Any) -> dict[str, Any]:
    """Return the JSON of a command that does not print ``verdict.json``: ``content`` after three fields.

    ``schema``: 1. ``version``: the version of the harness. ``time``: when it was printed, UTC, ISO 8601.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"schema": ENVELOPE_SCHEMA, "version": version(DISTRIBUTION), "time": now, **content}
