"""Memberships as records: a producer of the records that a coordinator writes for a classic group.

A put commits an offset, and then a member joins the group by the protocol that the value names, and leaves: the record
shows the group without members. Without an offset the coordinator would delete the empty group at its next check
(`GroupCoordinatorShard.cleanupGroupMetadata`).

A delete is a member that joins by the consumer protocol (KIP-848) and leaves: the group changes its type, and the
coordinator writes a tombstone for the classic group (`GroupMetadataManager.maybeDeleteEmptyClassicGroup`,
`convertToConsumerGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.clients import Answered, ClientError, Headers, LibraryGroups, TransactionStep
from harness.kafka_api import TopicPartition
from harness.schedules.scenario import CONSUMER

if TYPE_CHECKING:
    from workloads.group_consumers import Group
    from workloads.offsets import Coordinators

POLL_S: Final = 0.05
JOIN_TIMEOUT_S: Final = 60.0
"""More than for other operations: a client may try a paused broker first, and wait for its answer some times."""
OFFSET: Final = 20
"""That is committed for the first input partition."""


@dataclass
class MembershipsProducer:
    """Implements `LibraryProducer` without transactions; keys are those of `encode_group_key`."""

    library: LibraryGroups
    coordinators: Coordinators
    groups: Mapping[TopicPartition, Group]

    def transact(self, _step: TransactionStep) -> None:
        """Raise: members join outside of transactions."""
        raise TypeError("a membership is never part of a transaction")

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:  # noqa: ARG002  (a coordinator writes no headers)
        """Join and leave, and answer with the offset of the record that the coordinator wrote."""
        content = key.encode() if isinstance(key, str) else key
        group = self.groups[to]
        find = partial(self.coordinators.wait_for, to, content, within_s=JOIN_TIMEOUT_S)
        deliveries: list[object] = []
        try:
            if value is not None:
                self.library.commit(group.name, {group.inputs[0]: OFFSET})
            with closing(self.library.consumer(group.name, group.topic, value or CONSUMER)) as member:

                def is_delivered() -> bool:
                    deliveries.extend(member.poll(POLL_S))
                    return bool(deliveries)

                if value is None:
                    # While the member joins: cleaners remove a tombstone as soon as its retention is over.
                    awaited = f"the tombstone of group {group.name}"
                    offset = find(awaited, is_tombstone=True, meanwhile=is_delivered)
                # A client that is closed before its join is answered does not leave: the coordinator would keep its
                # partitions for it until its session times out.
                joined = f"a member of group {group.name} to be delivered a record"
                self.coordinators.clock.wait_until(is_delivered, JOIN_TIMEOUT_S, joined)
                if value is not None:
                    find(f"group {group.name} with its member", is_tombstone=False)
            if value is not None:
                offset = find(f"group {group.name} without members", is_tombstone=False)
        except ClientError as error:
            reply(str(error), -1)
        else:
            reply(None, offset)

    def flush(self) -> int:
        """Return 0: every write was answered."""
        return 0
