"""Declaration of commands: examples, option groups, and the options that several commands have."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import cloup
from click.core import ParameterSource

from harness import DISTRIBUTION
from harness.cli.config_file import use_cluster
from harness.cli.options.parameters import DIRECTORY, TOPIC, Text, file_to_read
from harness.console import JSON, QUIET, TEXT, VERBOSE
from harness.errors import UsageError
from harness.kafka_api.address import Address
from harness.spark.options import LOCAL, parse_spark, raise_if_secret

Callback = TypeVar("Callback", bound="Callable[..., Any]")

ENVELOPE_SCHEMA: Final = 1
"""Version of the format that `envelope` returns."""
SPARK_PARAMETERS: Final = frozenset({"spark_master", "spark_conf"})


class Group:
    """A heading in the help of a command, with its options."""

    def __init__(self, title: str) -> None:
        self.options = cloup.OptionGroup(title)

    def option(
        self, names: str, kind: click.ParamType[Any] | None, text: str, *, name: str = "", **settings: Any
    ) -> Callable[[Callback], Callback]:
        """Return a decorator that adds an option, whose help is ``text`` and the default value.

        ``name``: the parameter of the command, if the option has another name.
        """
        default = settings.get("default")
        if isinstance(default, float) and default.is_integer():
            settings["default"] = int(default)  # the help shows it as it is here
        settings.setdefault("show_default", default is not None)
        parameter = [name] if name else []
        return cloup.option(*names.split(), *parameter, type=kind, help=text, group=self.options, **settings)

    def flag(self, names: str, text: str, **settings: Any) -> Callable[[Callback], Callback]:
        """Return a decorator that adds an option without a value."""
        return self.option(names, None, text, is_flag=True, **settings)


OUTPUT, CLUSTER, SPARK = map(Group, ("Output", "Cluster", "Spark"))


def examples(*lines: str) -> str:
    """Return the epilog of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, which a list of commands shows in full."""
    return (text or "").partition("\n\n")[0].replace("\n    ", " ")


def command(
    *lines: str, of: click.Group | None = None, formats: bool = True, spark: bool = False
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

        # Click lists the last option first: the command's options come before the options that commands share.
        declared = callback.__dict__.pop("__click_params__", [])
        parameters = run.__dict__["__click_params__"] = []
        shared = [
            help_option,
            quiet_option,
            verbose_option,
            *([FORMAT] if formats else []),
            *(SPARK_OPTIONS if spark else []),
        ]
        for decorator in shared:
            decorator(run)
        parameters += declared
        # Cloup stores the options of a command in its groups: each command needs separate groups.
        groups: dict[str, cloup.OptionGroup] = {}
        for parameter in parameters:
            if (group := getattr(parameter, "group", None)) is not None:
                parameter.group = groups.setdefault(group.title, cloup.OptionGroup(group.title))
        made = cloup.command(epilog=examples(*lines), short_help=summary(callback.__doc__))(run)
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


def _be_quiet(context: click.Context, _parameter: click.Parameter, is_on: bool) -> None:  # noqa: FBT001
    if is_on:
        context.meta[QUIET] = True


help_option = click.help_option("-h", "--help", cls=cloup.Option, group=OUTPUT.options, help="Show this help.")
quiet_option = OUTPUT.flag("-q --quiet", "Print no progress.", expose_value=False, callback=_be_quiet)
verbose_option = OUTPUT.flag(
    "-v --verbose", "Print all details, and log messages.", expose_value=False, callback=_be_loud
)
FORMAT: Final = OUTPUT.option("--format", click.Choice([TEXT, JSON]), "Output format.", name="output", default=TEXT)
SPARK_OPTIONS: Final = (
    SPARK.option(
        "--spark-conf",
        Text(metavar="KEY=VALUE"),
        "A Spark setting, such as spark.driver.memory=4g; repeatable.",
        multiple=True,
    ),
    SPARK.option(
        "--spark-master", Text(metavar="URL"), "spark://HOST:PORT, yarn, k8s://URL or local[N].", default=LOCAL
    ),
)
"""Options that `command` adds, the last option first."""
results_option = OUTPUT.option("--results", DIRECTORY, "Folder of run folders.", default=Path("results"))


def topic_option(group: Group) -> Callable[[Callback], Callback]:
    """Return ``--topic``, which a command gets as ``topics``."""
    text = (
        "A topic or a pattern such as 'orders-*'; repeatable. Only patterns that begin with __ match internal topics."
        "  [default: every compacted topic]"
    )
    return group.option("--topic", TOPIC, text, name="topics", multiple=True)


def _check_servers(text: str) -> None:
    from harness.kafka_api.address import parse_bootstrap  # noqa: PLC0415  (slow imports, only where needed)

    parse_bootstrap(text)


SERVERS: Final = Text(_check_servers, metavar="HOST:PORT,…")


def bootstrap_option(*, required: bool = True, note: str = "  [required]") -> Callable[[Callback], Callback]:
    """Return ``--bootstrap-server``. A command that checks it by itself has a ``note`` in its help."""
    text = "Bootstrap brokers." + ("" if required else note)
    return CLUSTER.option("--bootstrap-server", SERVERS, text, name="bootstrap", required=required)


config_option = CLUSTER.option(
    "--command-config", file_to_read(), "Properties file of a Java client, for SASL and TLS.", name="config"
)


_text = "Brokers, login and topics from [clusters.NAME] of harness.toml."
cluster_option = CLUSTER.option(
    "--cluster", Text(metavar="NAME"), _text, callback=use_cluster, expose_value=False, is_eager=True
)
"""For commands that only read a cluster."""


def addresses(bootstrap: str, config: Path | None) -> list[Address]:
    """Return the bootstrap addresses, with the login of a properties file. Raises `UsageError` for either."""
    from harness.kafka_api.address import parse_bootstrap  # noqa: PLC0415
    from harness.kafka_api.security import read_security  # noqa: PLC0415

    return parse_bootstrap(bootstrap, read_security(config) if config else None)


controllers_option = CLUSTER.option(
    "--controllers", SERVERS, "Also fetch the metadata log, which decides more findings. Needs ClusterAction."
)
controllers_config_option = CLUSTER.option(
    "--controllers-config", file_to_read(), "Properties file for the controllers.  [default: --command-config]"
)


def controller_addresses(options: Mapping[str, Any], config: Path | None) -> Sequence[Address]:
    """Return the addresses of ``--controllers``, with their login. Raises `UsageError` for a login alone."""
    controllers, own_config = options["controllers"], options["controllers_config"]
    if own_config and not controllers:
        raise UsageError("--controllers-config is the login of --controllers HOST:PORT, which is missing")
    return addresses(controllers, own_config or config) if controllers else ()


def options_given() -> frozenset[str]:
    """Return the parameters on the command line itself: no defaults, and no settings of harness.toml."""
    context = click.get_current_context()
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def flags_of(parameters: frozenset[str]) -> list[str]:
    """Return the options of these parameters of the current command, in the order of its help."""
    return [
        parameter.opts[0] for parameter in click.get_current_context().command.params if parameter.name in parameters
    ]


def envelope(**content: Any) -> dict[str, Any]:
    """Return the JSON of a command that does not print ``verdict.json``: ``content`` after three fields.

    ``schema``: 1. ``version``: the version of the harness. ``time``: when it was printed, UTC, ISO 8601.
    """
    return {
        "schema": ENVELOPE_SCHEMA,
        "version": version(DISTRIBUTION),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **content,
    }
