"""The choice of the guard that acts: the member of a consumer group that is assigned the channel's only partition.

The group's coordinator takes the partition from a member that does not answer for `SESSION_MS`, or that does not poll
for `STALLED_MS`. The assignment is sticky (KIP-429): a guard that is started later does not take the lead. For a moment
after a freeze two guards may believe that they lead; the actions of each still follow from the channel and the settings
at that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException

from harness.errors import HarnessError
from harness.protect.guard.channel import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kafka_api.address import Address

GROUP: Final = "compaction-guard"
SESSION_MS: Final = 20_000
"""Longer than brokers take to notice a frozen coordinator (``broker.session.timeout.ms``): the lead does not change."""
STALLED_MS: Final = 60_000
CONFIG: Final = {
    "client.id": GROUP,
    "group.id": GROUP,
    # A request without an answer ends the connection, after which librdkafka looks for the coordinator again.
    "socket.timeout.ms": 1_000,
    "reconnect.backoff.ms": 500,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": STALLED_MS,
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "allow.auto.create.topics": False,
    "log_level": 0,
}


def consumer_config(bootstrap: Sequence[Address]) -> dict[str, Any]:
    """Return the properties of a member of the group, with the login of these addresses."""
    login = bootstrap[0].security.for_librdkafka() if bootstrap[0].security else {}
    return {**CONFIG, **login, "bootstrap.servers": ",".join(map(str, bootstrap))}


class GroupLeadership:
    """Implements `harness.protect.guard.ports.Leadership`. ``error``: the reason why the group cannot be joined."""

    def __init__(self, bootstrap: Sequence[Address], consumer: Any = None) -> None:
        """Join the group; the assignment comes in a later `leads`."""
        self.error: str | None = None
        self._consumer = consumer or Consumer(consumer_config(bootstrap))
        self._consumer.subscribe([TOPIC])
        self._led = False

    def leads(self) -> bool:
        """Serve the group, and return whether the partition is assigned to this member. Raises `HarnessError`."""
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
