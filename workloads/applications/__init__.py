"""Applications on top of a cluster, one file each: real ones, and what their users see on a diverged topic.

An application reads topics of the run (`Application.topics`), or topics of its own, in its own format, that the run
writes as it does any scenario's (`Application.scenarios`). It is started anew for each step of
`harness.play.applications` and observed at its own interface. What its observations mean is decided in
`harness.judge.consequences`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from harness.clients import ClientSpec
    from harness.host.clock import Clock
    from harness.schedules.scenario import Scenario

Observation: TypeAlias = "dict[str, Any]"
"""What one application showed of one topic: see the schema in `harness.play.applications`."""


@dataclass(frozen=True)
class Step:
    """One life of an application: who leads the topics that it reads, and whether it has its former local state.

    ``state``: the name of its local state; a name that was used before stands for what that life left.
    ``consumed``: by topic, the entries that a read_committed consumer of these leaders ends with. An application that
    reads a topic to its end has come so far.
    """

    name: str
    topics: Sequence[str]
    state: str
    consumed: Mapping[str, Mapping[str, str]]


Observe: TypeAlias = "Callable[[Step], list[Observation]]"


@dataclass(frozen=True)
class Application:
    """A real application. ``opened`` makes ready what it runs in, and gives what takes it through a step.

    ``scenarios``: topics of its own that the run writes beside those asked for. ``topics``: which topics of a run it
    reads.
    """

    name: str
    summary: str
    opened: Callable[[ClientSpec, Clock], AbstractContextManager[Observe]]
    scenarios: tuple[Scenario, ...] = ()
    topics: Callable[[Sequence[Scenario]], list[str]] = lambda scenarios: [one.name for one in scenarios]


APPLICATIONS: Final = ("streams", "connect")


def find_application(name: str) -> Application:
    """Return the application of that name. Raises `UsageError` with the nearest names."""
    if name not in APPLICATIONS:
        raise UsageError(nearest("application", name, APPLICATIONS))
    found: Application = import_module(f"{__name__}.{name}").APPLICATION
    return found
