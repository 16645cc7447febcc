"""Validate the settings of a target's brokers and topics by the list of its version (``bench/pin.py`` writes it)."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Final

from harness.errors import UsageError
from harness.suggest import close_to, quoted
from harness.targets import OWN, REDPANDA, SIMULATED, Target
from harness.targets.kafka import SET_BY_HARNESS
from harness.targets.lock import LOCKS

TOPIC, BROKER = SCOPES = ("topic", "broker")

_RANGE = re.compile(r"\[(?P<least>-?[\d.]+),\.\.\.(,(?P<most>-?[\d.]+))?\](?P<other> or -1)?")
_CHOICE = re.compile(r"(?P<any_case>\(case insensitive\) )?\[(?P<values>[^\[\]]+)\]")
_CLASS_NAME = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class KafkaSetting:
    """A setting with its `ConfigDef.Type`. ``valid``: the text of its `ConfigDef.Validator`, or ""."""

    type: str
    valid: str


@dataclass(frozen=True)
class SettingsList:
    """Every setting of one exact Kafka version, by scope and name; names that end with ``*`` are prefixes."""

    version: str
    settings: Mapping[tuple[str, str], KafkaSetting]

    def find(self, scope: str, name: str) -> KafkaSetting | None:
        """Return the setting with this name, or None."""
        prefixed = (
            setting
            for (at, pattern), setting in self.settings.items()
            if at == scope and pattern.endswith("*") and fnmatchcase(name, f"{pattern[:-1]}?*")
        )
        return self.settings.get((scope, name)) or next(prefixed, None)


def list_for(target: Target) -> SettingsList | None:
    """Return the list of a target's version, or of the nearest version; None for other systems, which have no list.

    Simulated brokers use Kafka's names, of the version that they simulate or of the newest version.
    """
    if target.system in {OWN, REDPANDA}:
        return None
    versions = _versions()
    if target.version in versions:
        return _read(target.version)
    numbers = (*(_numbers(target.version) or max(map(_numbers, versions))), 0, 0)

    def distance(version: str) -> list[int]:
        """Return the distance of the lines, then of the patches."""
        return [abs(number - other) for number, other in zip(_numbers(version), numbers, strict=False)]

    return _read(min(versions, key=distance))


def note_on(target: Target) -> str | None:
    """Return a note if a target's settings are validated by the list of another version, or not at all."""
    settings = list_for(target)
    if settings is None:
        return f"--set is not checked: {target.name} has no list of settings"
    if target.system in SIMULATED or settings.version == target.version:
        return None
    return f"--set is checked against the settings of Kafka {settings.version}: {target.version} has no list"


def raise_if_unfit(target: Target, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Raise `UsageError` for the first setting, by scope and name, that brokers of the target would reject.

    Validates the name, the type (`ConfigDef.parseType`), ranges and choices, but not rules about several settings, or
    about files and classes of the broker. A user's build may have settings that are in no list.
    """
    settings_list = list_for(target)
    for scope, name, value in ((scope, *pair) for scope, values in settings.items() for pair in values.items()):
        option = f"--set {quoted(f'{scope}.{name}={value}')}"
        if scope == BROKER and name in SET_BY_HARNESS:
            raise UsageError(f"{option}: the harness sets {name} itself, differently for each broker")
        if settings_list is None:
            continue
        if (setting := settings_list.find(scope, name)) is None:
            if target.build is None:
                raise UsageError(f"{option}: {_unknown(settings_list, scope, name)}")
        elif why := _why_invalid(setting, value.strip()):
            raise UsageError(f"{option}: {name} takes {why}")


def _why_invalid(setting: KafkaSetting, value: str) -> str | None:
    """Return a description of the setting's valid values if the value is invalid, else None."""
    validate = _TYPES.get(setting.type)
    if validate and (why := validate(value)):
        return why
    bounds, choice = _RANGE.fullmatch(setting.valid), _CHOICE.fullmatch(setting.valid)
    if bounds and setting.type in _NUMBERS:
        number = float(value)
        is_other = bool(bounds["other"]) and number == -1
        if not is_other and not float(bounds["least"]) <= number <= float(bounds["most"] or "inf"):
            most = f"to {bounds['most']}" if bounds["most"] else "or more"
            return f"{bounds['least']} {most}{bounds['other'] or ''}"
    if choice and "..." not in setting.valid:
        valid = [text.strip() for text in choice["values"].split(",")]
        values = [text.strip() for text in value.split(",")] if setting.type == "LIST" else [value]
        normalized: Callable[[str], str] = str.lower if choice["any_case"] else str
        if not set(map(normalized, values)) <= set(map(normalized, valid)):
            return f"{'some' if setting.type == 'LIST' else 'one'} of {', '.join(valid)}"
    if setting.valid.startswith("non-empty") and not value:
        return "a value that is not empty"
    return None


def _whole_number(value: str, bits: int) -> str | None:
    """Validate ASCII digits like `Integer.parseInt`, `Long.parseLong` and `Short.parseShort`."""
    least = -(2 ** (bits - 1))
    is_valid = _WHOLE_NUMBER.fullmatch(value) and len(value) <= len(str(least)) and least <= int(value) < -least
    return None if is_valid else f"a whole number of {bits} bits"


def _finite_number(value: str) -> str | None:
    with suppress(ValueError):
        # Java takes neither underscores nor other digits than ASCII's.
        return None if value.isascii() and "_" not in value and math.isfinite(float(value)) else "a finite number"
    return "a finite number"


_NUMBERS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "SHORT": partial(_whole_number, bits=16),
    "INT": partial(_whole_number, bits=32),
    "LONG": partial(_whole_number, bits=64),
    "DOUBLE": _finite_number,
}
_TYPES: Final[Mapping[str, Callable[[str], str | None]]] = {
    **_NUMBERS,
    "BOOLEAN": lambda value: None if value.lower() in {"true", "false"} else "true or false",
    "CLASS": lambda value: None if _CLASS_NAME.fullmatch(value) else "the name of a class",
}
"""Validators by `ConfigDef.Type`, which return a description of valid values; other types accept any text."""


def _unknown(settings_list: SettingsList, scope: str, name: str) -> str:
    (other,) = set(SCOPES) - {scope}
    if settings_list.find(other, name):
        return f"{name} is a setting of a {other}: give {other}.{name}"
    names = sorted(setting for at, setting in settings_list.settings if at == scope)
    return f"Kafka {settings_list.version} has no such setting of a {scope}{close_to(name, names)}"


@cache
def _versions() -> tuple[str, ...]:
    names = (path.name for path in LOCKS.iterdir())
    return tuple(name.removeprefix("kafka-").removesuffix(".settings") for name in names if name.endswith(".settings"))


@cache
def _read(version: str) -> SettingsList:
    lines = (LOCKS / f"kafka-{version}.settings").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return SettingsList(version, {(scope, name): KafkaSetting(type_, valid) for scope, name, type_, valid in rows})


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, or of a release candidate's release; empty for another text."""
    parts = version.partition("-")[0].split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def parse_setting(pair: str) -> tuple[str, str, str]:
    """Return scope, name and value of ``SCOPE.NAME=VALUE``. Raises `UsageError` for anything else."""
    name, equals, value = pair.partition("=")
    scope, _, rest = name.strip().partition(".")
    if not equals or scope not in SCOPES or not rest:
        raise UsageError(f"{quoted(pair)}: give topic.NAME=VALUE or broker.NAME=VALUE")
    return scope, rest, value.strip()


def parse_settings(pairs: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return topic and broker settings of ``--set topic.NAME=VALUE`` and ``--set broker.NAME=VALUE``.

    Raises `UsageError` for anything else, and for a setting with two values.
    """
    settings: dict[str, dict[str, str]] = {scope: {} for scope in SCOPES}
    for pair in pairs:
        try:
            scope, name, value = parse_setting(pair)
        except UsageError as error:
            raise UsageError(f"--set {error}") from error
        if settings[scope].setdefault(name, value) != value:
            raise UsageError(f"--set {quoted(pair)}: {scope}.{name} is {quoted(settings[scope][name])} already")
    return settings[TOPIC], settings[BROKER]
