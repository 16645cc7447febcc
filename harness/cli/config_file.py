"""``harness.toml``: defaults for options, kept in a folder.

    results = "/data/results"

    [cluster]                              # a cluster of your own, for commands that only read it
    bootstrap-server = "kafka-1:9092"
    command-config = "client.properties"   # relative to the file
    topics = ["orders-*"]

    [spark]
    master = "local[4]"
    conf = { "spark.driver.memory" = "8g" }

The file is `FILE` in the current folder, or the file that the variable `VARIABLE` names. An option on the command line
precedes the file. ``[cluster]`` is for the commands of `READ_CLUSTERS`: a command that changes a cluster takes its name
from the command line only.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILE: Final = "harness.toml"
VARIABLE: Final = "HARNESS_CONFIG"
READ_CLUSTERS: Final = ("audit disk", "audit live", "audit exposure")


def _text(value: Any, _folder: Path) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _path(value: Any, folder: Path) -> str:
    return str(folder / _text(value, folder))


def _texts(value: Any, _folder: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError("a list of texts")
    return value


def _pairs(value: Any, _folder: Path) -> list[str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TypeError("a table of texts")
    return [f"{name}={text}" for name, text in value.items()]


@dataclass(frozen=True)
class Setting:
    """A name in the file, the option for which it is the default, and how the file's value becomes the option's.

    ``convert`` gets the value and the folder of the file; it raises TypeError with the form that the value should have.
    """

    name: str
    option: str
    convert: Callable[[Any, Path], Any]
    commands: tuple[str, ...] | None = None
    """None: every command that has the option."""

    def applies_to(self, command: str, option: click.Option) -> bool:
        """Return whether the file's value is the default of an option of this command."""
        return self.option in option.opts and (self.commands is None or command in self.commands)


SETTINGS: Final = (
    Setting("results", "--results", _path),
    Setting("cluster.bootstrap-server", "--bootstrap-server", _text, READ_CLUSTERS),
    Setting("cluster.command-config", "--command-config", _path, READ_CLUSTERS),
    Setting("cluster.topics", "--topic", _texts, READ_CLUSTERS),
    Setting("spark.master", "--spark-master", _text),
    Setting("spark.conf", "--spark-conf", _pairs),
)


@dataclass(frozen=True)
class ConfigFile:
    """The settings of a file, by their names; ``path`` is None without a file."""

    path: Path | None
    values: Mapping[str, Any]


def read_config_file() -> ConfigFile:
    """Return the settings of the file. Raises `UsageError` for one that cannot be read, or has an unknown setting."""
    named = os.environ.get(VARIABLE)
    path = Path(named or FILE).absolute()
    if not named and not path.exists():
        return ConfigFile(None, {})
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    return ConfigFile(path, {name: _value(path, name, value) for name, value in _flat(content)})


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    tables = {setting.name.partition(".")[0] for setting in SETTINGS if "." in setting.name}
    for name, value in content.items():
        if name in tables and isinstance(value, dict):
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in value.items())
        else:
            yield name, value


def _value(path: Path, name: str, value: Any) -> Any:
    settings = {setting.name: setting for setting in SETTINGS}
    if name not in settings:
        raise UsageError(f"{path}: {nearest('setting', name, list(settings))}")
    try:
        return settings[name].convert(value, path.parent)
    except TypeError as error:
        raise UsageError(f"{path}: {name} has to be {error}") from error


def default_map(group: click.Group, config: ConfigFile) -> dict[str, Any]:
    """Return the settings as Click's default map: by command, then by parameter."""
    settings = [setting for setting in SETTINGS if setting.name in config.values]

    def defaults(command: click.Command, name: str) -> dict[str, Any]:
        if isinstance(command, click.Group):
            return {
                inner: defaults(subcommand, f"{name} {inner}".strip()) for inner, subcommand in command.commands.items()
            }
        return {
            str(option.name): config.values[setting.name]
            for option in command.params
            if isinstance(option, click.Option)
            for setting in settings
            if setting.applies_to(name, option)
        }

    return defaults(group, "")
