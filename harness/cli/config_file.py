"""``harness.toml``: defaults for options, kept in a folder; docs/reference/settings.md shows a file.

The file is `FILE` in the current folder, or the file that the variable `VARIABLE` names. An option on the command line
precedes the file. ``[cluster]`` is for the commands of `READ_CLUSTERS`: a command that changes a cluster takes its
address from the command line only.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from harness.errors import UsageError
from harness.suggest import known_name
from harness.toml_tables import read_toml

FILE: Final = "harness.toml"
VARIABLE: Final = "HARNESS_CONFIG"
READ_CLUSTERS: Final = ("audit disk", "audit live", "audit exposure", "watch", "guard status")
CLUSTERS: Final = "clusters"


@dataclass(frozen=True)
class Setting:
    """A name in the file, and the option whose default it sets. ``form``: of the value."""

    name: str
    option: str
    form: str
    commands: tuple[str, ...] | None = None
    """None: every command that has the option."""


SETTINGS: Final = (
    Setting("results", "--results", "a path"),
    Setting("cluster.bootstrap-server", "--bootstrap-server", "a text", READ_CLUSTERS),
    Setting("cluster.command-config", "--command-config", "a path", READ_CLUSTERS),
    Setting("cluster.topics", "--topic", "a list of texts", READ_CLUSTERS),
    Setting("spark.master", "--spark-master", "a text"),
    Setting("spark.conf", "--spark-conf", "a table of texts"),
)
FORMS: Final = {setting.name: setting.form for setting in SETTINGS}


@dataclass(frozen=True)
class ConfigFile:
    """The settings of a file, by their names; ``path`` is None without a file.

    ``clusters``: the settings of each table in ``[clusters]``, by the names of ``[cluster]``.
    """

    path: Path | None
    values: Mapping[str, Any]
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_config_file() -> ConfigFile:
    """Return the settings of the file. Raises `UsageError` for one that cannot be read, or has an unknown setting."""
    named = os.environ.get(VARIABLE)
    path = Path(named or FILE).absolute()
    if not named and not path.exists():
        return ConfigFile(None, {})
    content = dict(read_toml(path, str(path)))
    clusters = content.pop(CLUSTERS, {})
    if not isinstance(clusters, dict):
        raise UsageError(f"{path}: {CLUSTERS} has to be a table of tables")
    tables = {name: _values(path, {"cluster": table}, f" [{CLUSTERS}.{name}]:") for name, table in clusters.items()}
    return ConfigFile(path, _values(path, content), tables)


def _values(path: Path, content: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """Return the values of settings; those of a table, such as ``[spark]``, have its name before their own."""
    tables = {name.partition(".")[0] for name in FORMS if "." in name}
    values: dict[str, Any] = {}
    for name, value in content.items():
        is_table = name in tables and isinstance(value, dict)
        values |= {f"{name}.{inner}": each for inner, each in value.items()} if is_table else {name: value}
    return {name: _value(path, name, value, f"{path}:{table}") for name, value in values.items()}


def _value(path: Path, name: str, value: Any, place: str) -> Any:
    """Return the option's value. Raises `UsageError` for an unknown setting, and for a value of another form."""
    match FORMS[known_name("setting", name, FORMS, f"{place} ")], value:
        case "a text", str() if value:
            return value
        case "a path", str() if value:
            return str(path.parent / value)
        case "a list of texts", list() if all(isinstance(text, str) for text in value):
            return value
        case "a table of texts", dict() if all(isinstance(text, str) for text in value.values()):
            return [f"{key}={text}" for key, text in value.items()]
    raise UsageError(f"{place} {name} has to be {FORMS[name]}")


def default_map(command: click.Command, config: ConfigFile, name: str = "") -> dict[str, Any]:
    """Return the settings as Click's default map: by command, then by parameter. ``name``: the command's."""
    if isinstance(command, click.Group):
        inner = command.commands.items()
        return {part: default_map(child, config, f"{name} {part}".strip()) for part, child in inner}
    return {
        parameter: config.values[setting.name]
        for parameter, setting in _parameters(command)
        if setting.name in config.values and (setting.commands is None or name in setting.commands)
    }


def use_cluster(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    """Replace the defaults from ``[cluster]`` by those of ``[clusters.NAME]``. Raises `UsageError`."""
    if name is None or context.resilient_parsing:
        return
    config = read_config_file()
    known_name("cluster", name, sorted(config.clusters), f"--cluster: {config.path or FILE}: ")
    values = config.clusters[name]
    own = {parameter: setting for parameter, setting in _parameters(context.command) if setting.commands}
    defaults = {parameter: value for parameter, value in (context.default_map or {}).items() if parameter not in own}
    chosen = {parameter: values[setting.name] for parameter, setting in own.items() if setting.name in values}
    if context.info_name == "key":
        chosen.pop("topics", None)  # it reads one topic
    context.default_map = {**defaults, **chosen}


def _parameters(command: click.Command) -> Iterator[tuple[str, Setting]]:
    for option in command.params:
        yield from ((str(option.name), setting) for setting in SETTINGS if setting.option in option.opts)
