"""Plugins: faults, anomalies, targets and applications that other packages offer through entry points.

An entry point of the group ``compaction_harness.<group>`` has the name that users give, and refers to an object of the
group's type with the same name. Plugins are loaded at the first look-up, so that commands start as fast as without
plugins, and modules of plugins can import the packages that load them. A plugin that cannot be used is reported by one
warning, and left out.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

T = TypeVar("T")
log = logging.getLogger("harness")

BUILT_IN: Final = "built-in"


@dataclass(frozen=True)
class Plugin:
    """An entry point. ``origin``: its distribution. ``problem``: the reason why it is left out, or empty."""

    name: str
    origin: str
    content: Any = None
    problem: str = ""


@dataclass(frozen=True)
class PluginGroup:
    """The entry points of one group.

    ``kinds``: the types of their objects. ``built_in``: names that plugins cannot have. ``why_unfit``: returns the
    reason why an object of the right type cannot be used, or None.
    """

    name: str
    kinds: tuple[type, ...]
    built_in: frozenset[str]
    why_unfit: Callable[[Any], str | None] = lambda _: None

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        """Every plugin of the group, in the order of their names."""
        loaded: dict[str, Plugin] = {}
        left_out = []
        for entry in sorted(entry_points(group=f"compaction_harness.{self.name}")):
            origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
            content, problem = self._load(entry, loaded)
            plugin = Plugin(entry.name, origin, content, problem)
            if problem:
                left_out.append(plugin)
                log.warning("%s of %s is left out of the %s: %s", entry.name, origin, self.name, problem)
            else:
                loaded[entry.name] = plugin
        return (*loaded.values(), *left_out)

    @property
    def contents(self) -> dict[str, Any]:
        """The objects of the plugins that can be used, by name."""
        return {plugin.name: plugin.content for plugin in self.plugins if not plugin.problem}

    def origin(self, name: str) -> str:
        """Return the distribution that offers the name, or `BUILT_IN`."""
        return next((plugin.origin for plugin in self.plugins if plugin.name == name and not plugin.problem), BUILT_IN)

    def _load(self, entry: EntryPoint, loaded: Mapping[str, Plugin]) -> tuple[Any, str]:
        """Return the object, and the reason why it cannot be used."""
        if entry.name in self.built_in:
            return None, f"{entry.name} is built-in"
        if entry.name in loaded:
            return None, f"{loaded[entry.name].origin} offers that name, too"
        try:
            content = entry.load()
            if not isinstance(content, self.kinds):
                expected = " or ".join(kind.__name__ for kind in self.kinds)
                return None, f"{entry.value} is of type {type(content).__name__}, not {expected}"
            if (name := getattr(content, "name", None)) != entry.name:
                return None, f"{entry.value} has another name, {name}"
            return content, self.why_unfit(content) or ""
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a plugin may raise anything)
            return None, f"{type(error).__name__}: {error}"


class Registry(Mapping[str, T]):
    """The built-in objects by name, then those of plugins. ``taken`` returns what a plugin contributes, or None."""

    def __init__(
        self, group: PluginGroup, built_in: Mapping[str, T], taken: Callable[[Any], T | None] = lambda content: content
    ) -> None:
        self._group, self._built_in, self._taken = group, built_in, taken

    @cached_property
    def _objects(self) -> dict[str, T]:
        plugins = {name: self._taken(content) for name, content in self._group.contents.items()}
        return {**self._built_in, **{name: content for name, content in plugins.items() if content is not None}}

    def __getitem__(self, name: str) -> T:
        return self._objects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)
