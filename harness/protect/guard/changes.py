"""Carry out steps: keep what was found, read the settings again, change them, and keep that they are changed.

Kafka has no compare-and-set for settings: hence the second reading, just before the change. Another command that pauses
topics, such as ``harness repair``, does it by the same function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.protect.guard.decide import is_as_expected
from harness.protect.guard.journal import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harness.protect.guard.decide import PauseStep
    from harness.protect.guard.journal import Pause
    from harness.protect.guard.ports import Channel, GuardedCluster

CHANGED: Final = "its settings were changed meanwhile, or cannot be read"


def carry_out(
    steps: Collection[PauseStep],
    cluster: GuardedCluster,
    keep: Callable[[Collection[Pause]], None],
    raise_if_replaced: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Do the steps; return why topics were left alone. ``keep``: as `keep_in`.

    ``raise_if_replaced`` is called just before a change: it raises where another one acts by now. Raises `HarnessError`
    and OSError where the cluster does not answer.
    """
    refused: dict[str, str] = {}
    keep([step.announced for step in steps if step.announced is not None])
    changing = {step.topic: step for step in steps if step.changes}
    if changing:
        again = cluster.settings(changing.keys()).settings
        for topic, step in changing.items():
            if topic not in again or not is_as_expected(step, again[topic]):
                refused[topic] = CHANGED
        ready = {topic: step.changes for topic, step in changing.items() if topic not in refused}
        raise_if_replaced()
        refused |= cluster.alter(ready) if ready else {}
    keep([step.done for step in steps if step.topic not in refused])
    return refused


def keep_in(channel: Channel, pauses: Collection[Pause], time_ms: int, writer: str) -> None:
    """Write how far pauses have come to the channel."""
    if pauses:
        channel.append([entry_of(pause, time_ms, writer) for pause in pauses])
