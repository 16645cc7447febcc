"""Applications on top of a cluster, one file each: real applications, and the view of their users on a diverged topic.

An application is started from scratch for each step of `harness.play.applications` and observed at its own interface.
`harness.judge.consequences` interprets the observations.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

from harness.clients import ClientSpec
from harness.host.clock import Clock
from harness.plugins import PluginGroup, Registry
from harness.schedules.scenario import Scenario
from harness.suggest import known_name

Observation: TypeAlias = "dict[str, Any]"
"""An application's view of one topic: see the schema in `harness.play.applications`."""


@dataclass(frozen=True)
class Life:
    """One life of an application: the leaders of the topics that it reads, and its local state.

    ``state``: the name of its local state; with the name of a former life, the application has the state of that life.
    ``consumed``: by topic, the last entries that a read_committed consumer of these leaders is given.
    """

    name: str
    topics: Sequence[str]
    state: str
    consumed: Mapping[str, Mapping[str, str]]


Observe: TypeAlias = "Callable[[Life], list[Observation]]"


@dataclass(frozen=True)
class Application:
    """A real application. ``opened`` prepares its environment, and returns a function that observes one life.

    ``scenarios``: separate topics that the run writes in addition. ``topics``: the topics of a run that it reads.
    """

    name: str
    summary: str
    opened: Callable[[ClientSpec, Clock], AbstractContextManager[Observe]]
    scenarios: tuple[Scenario, ...] = ()
    topics: Callable[[Sequence[Scenario]], list[str]] = lambda scenarios: [scenario.name for scenario in scenarios]


def _built_in(name: str) -> Application:
    application: Application = import_module(f"{__name__}.{name}").APPLICATION
    return application


_BUILT_IN: Final = {name: partial(_built_in, name) for name in ("streams", "connect")}
PLUGINS: Final = PluginGroup("applications", (Application,), frozenset(_BUILT_IN))
APPLICATIONS: Final[Mapping[str, Callable[[], Application]]] = Registry(
    PLUGINS, _BUILT_IN, lambda plugin: lambda: plugin
)
"""Functions that return applications, by name: the modules of built-in applications are imported when they are used."""


def find_application(name: str) -> Application:
    """Return the application of that name. Raises `UsageError` with the nearest names."""
    return APPLICATIONS[known_name("application", name, APPLICATIONS)]()
