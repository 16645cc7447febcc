"""Of several guards one acts: the member of a consumer group that is assigned the channel's only partition.

The group's coordinator takes the partition from a member that does not answer for `SESSION_MS`, or that asks for
nothing for `STALLED_MS`. The assignment is sticky (KIP-429): a guard that is started later does not take the lead. For
a moment after a freeze two guards may believe that they lead; what each does is then still decided from the channel and
the settings at that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException

from harness.errors import HarnessError
from harness.protect.guard.channel import TOPIC, librdkafka_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kafka_api.address import Address

GROUP: Final = "compaction-guard"
SESSION_MS: Final = 20_000
"""Longer than brokers take to see that a coordinator is frozen (``broker.session.timeout.ms``): the lead stays."""
STALLED_MS: Final = 60_000
CONFIG: Final = {
    "group.id": GROUP,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": STALLED_MS,
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
}


class GroupLeadership:
    """Implements `harness.protect.guard.ports.Leadership`. ``error``: why the group cannot be joined, if it cannot."""

    def __init__(self, bootstrap: Sequence[Address], consumer: Any = None) -> None:
        """Join the group; the assignment comes in a later `leads`."""
        self.error: str | None = None
        self._consumer = consumer or Consumer({**librdkafka_config(bootstrap), **CONFIG})
        self._consumer.subscribe([TOPIC])
        self._led = False

    def leads(self) -> bool:
        """Serve the group, and return whether the partition is assigned here. Raises `HarnessError`."""
        try:
            message: Any = self._consumer.poll(0)
            assigned = self._consumer.assignment()
            if assigned and not self._led:
                # The channel reads the entries; this consumer needs none.
                self._consumer.pause(assigned)
        except KafkaException as error:
            raise HarnessError(f"group {GROUP}: {error.args[0].str()}") from error
        self._led = bool(assigned)
        if message is not None:
            self.error = message.error().str() if message.error() else None
        return self._led

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
