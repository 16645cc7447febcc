"""A user's own system, described by a TOML file: its brokers' commands and configuration, and what it supports.

docs/extending/own-system.md has the keys. The file is stored in the user's cache (``systems/<name>.toml``), as a run is
repeated and resumed with the same file; the copy's name ends with the first digits of its digest.
"""

import hashlib
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from harness.errors import UsageError, raised_as
from harness.host.cache import cache_root, write_atomically
from harness.json_codec import from_json
from harness.schedules.placement import MOST_BROKERS
from harness.suggest import quoted
from harness.toml_tables import read_toml, with_known_keys

_STORED = re.compile(r"own-[a-z0-9][a-z0-9.-]*-[0-9a-f]{8}", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}", re.ASCII)
PLACEHOLDERS: Final = frozenset(
    ["id", "host", "port", "data_dir", "config_file", "java", "cache", "cluster_id", "home", "bootstrap", "settings"]
)  # fmt: skip
REGISTERED, API_VERSIONS, PORT, LOG = READY = ("registered", "api-versions", "port", "log:")
NEEDED_TIMERS: Final = ("delete.retention.ms", "segment.ms", "min.cleanable.dirty.ratio", "max.compaction.lag.ms")
"""The topic settings without which records are not removed during a run, or evidence changes while it is read."""


@dataclass(frozen=True)
class BrokerRecipe:
    """Table ``[broker]``."""

    command: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    config: str = ""
    setting: str = "{name}={value}"
    stop: str = "SIGTERM"
    ready: str = REGISTERED
    ports: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Abilities:
    """Table ``[supports]``. Runs that need more are rejected before anything starts."""

    brokers: int = 1
    transactions: bool = False
    end_transactions: bool = False
    administration: bool = False
    replica_fetch: bool = False
    describe_producers: bool = False
    kafka_logs: bool = False
    timers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def sets(self, name: str) -> bool:
        """Return whether the system takes a setting."""
        return any(fnmatchcase(name, pattern) for pattern in self.timers)

    def missing_for_replicas(self) -> list[str]:
        """Return the keys that runs with absent replicas need, and that the system does not support."""
        needed = ("transactions", "end_transactions", "administration", "replica_fetch", "kafka_logs")
        missing = [name for name in needed if not getattr(self, name)]
        return [*missing, *(f"timers {name}" for name in NEEDED_TIMERS if not self.sets(name))]


EVERYTHING: Final = Abilities(MOST_BROKERS, transactions=True, end_transactions=True, administration=True)


@dataclass(frozen=True)
class SystemFile:
    """The content of a system file."""

    name: str
    broker: BrokerRecipe
    supports: Abilities
    version: str = "unknown"


def is_of_system(name: str) -> bool:
    """Return whether a target's name is the path of a system file, or the name of its copy."""
    return name.endswith(".toml") or _STORED.fullmatch(name) is not None


def read_system(name: str) -> tuple[str, SystemFile]:
    """Return the name of the stored copy, and the content of the file at a path, or of the copy with that name.

    Raises `UsageError` with the file and the key for everything that is missing, unknown or malformed.
    """
    folder = cache_root() / "systems"
    if _STORED.fullmatch(name):
        return name, _parsed(folder / f"{name}.toml", name)
    path = Path(name).expanduser().absolute()
    system = _parsed(path, name)
    text = path.read_text(encoding="utf-8").replace("{home}", str(path.parent))
    stored = f"own-{system.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    with raised_as(UsageError, f"{folder} cannot be written", OSError):
        write_atomically(folder / f"{stored}.toml", text)
    return read_system(stored)


def _parsed(path: Path, source: str) -> SystemFile:
    content = read_toml(path, source)
    for place, table, kind in (
        (source, content, SystemFile),
        (f"{source}: [broker]", content.get("broker"), BrokerRecipe),
        (f"{source}: [supports]", content.get("supports"), Abilities),
    ):
        if isinstance(table, dict):
            with_known_keys(table, [member.name for member in fields(kind)], place)
    try:
        system = from_json(SystemFile, content)
    except ValueError as error:
        raise UsageError(f"{source}: {str(error).removeprefix('SystemFile').lstrip('. ')}") from error
    broker = system.broker
    is_rule = broker.ready in READY
    with suppress(re.error):
        is_rule = is_rule or (broker.ready.startswith(LOG) and bool(re.compile(broker.ready.removeprefix(LOG))))
    texts = (*broker.command, *broker.prepare, broker.config, *broker.environment.values(), *broker.lists.values())
    known = {*PLACEHOLDERS, *broker.ports, *broker.lists}
    unknown = [match[0] for text in texts for match in _PLACEHOLDER.finditer(text) if match[1] not in known]
    for key, is_wrong, advice in (
        ("name", not _NAME.fullmatch(system.name), f"is {quoted(system.name)}; give a-z, 0-9, '.' and '-'"),
        ("broker.command", not broker.command, "is empty"),
        ("broker.stop", broker.stop not in signal.Signals.__members__, f"is {quoted(broker.stop)}; give SIGTERM, say"),
        ("broker.ready", not is_rule, f"is {quoted(broker.ready)}; give {', '.join(READY)}REGEX"),
        ("broker", bool(unknown), f"has the unknown placeholder {''.join(unknown[:1])}"),
        ("supports.brokers", system.supports.brokers < 1, f"is {system.supports.brokers}; give a number from 1"),
    ):
        if is_wrong:
            raise UsageError(f"{source}: {key} {advice}")
    return system


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a text with the values of its placeholders; other braces stay."""
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), text)
