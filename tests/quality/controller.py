"""The controller of a generated partition: its records of changes are those of ``ReplicationControlManager``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from metadata_logs import Written, change, directory_uuid, partition, register, topic

from harness.models.log.replication import Replication

V3_5, V3_6, V4_0 = 11, 12, 25
TRANSACTION_STATE = "__transaction_state"
_KILLED_SHARE, _UNCLEAN_SHARE = 0.6, 0.5


@dataclass(slots=True)
class Controller:
    """Writes the log of one cluster with one topic's partition.

    ``version``: the feature level of ``metadata.version``; before 3.6 every shrink of the ISR raises the leader epoch
    (``PartitionChangeBuilder``). ``killed``: brokers that are down, their process ended.
    """

    topic: str
    replication: Replication
    random: Random
    version: int
    replicas: list[int]
    log: list[Written] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    isr: list[int] = field(default_factory=list)
    leader_epoch: int = 0
    waiting: set[int] = field(default_factory=set)
    """Brokers that will be added: they are not assigned yet."""

    def begin(self) -> None:
        """Write the brokers' registrations, and the topics' creation."""
        for broker in self.replication.replicas:
            self._register(broker)
        self.log.append(topic(TRANSACTION_STATE))
        self.isr = [broker for broker in self.replicas if broker not in self.replication.away]
        self.log += [topic(self.topic), partition(self.topic, 0, self.replicas, leader=self.replication.leader_id)]
        self.leader_epoch = self.replication.leader_epoch

    def add(self, brokers: Sequence[int]) -> None:
        """Assign brokers that have no replica yet (KIP-455)."""
        self.replicas += brokers
        self.log.append(
            change(self.topic, 0, replicas=tuple(self.replicas), adding_replicas=tuple(brokers), **self._directories())
        )
        self.waiting = set(brokers)

    def prefer(self, broker: int) -> None:
        """Put a broker first among the replicas: a reassignment of order alone."""
        order = [broker, *(other for other in self.replicas if other != broker)]
        if order != self.replicas:
            self.replicas = order
            self.log.append(change(self.topic, 0, replicas=tuple(order), **self._directories()))

    def note(self) -> None:
        present = set(self.replication.in_sync)
        isr = [broker for broker in self.isr if broker in present]
        isr += [broker for broker in self.replicas if broker in present - set(isr)]
        gone = set(self.isr) - set(isr)
        is_elected = self.replication.leader_epoch != self.leader_epoch
        if isr == self.isr and not is_elected:
            return
        self._restart(gone, set(isr))
        if gone and not is_elected and self.version < V3_6:
            self.replication.begin_epoch()
            is_elected = True
        fields: dict[str, Any] = {}
        if isr != self.isr:
            fields["isr"] = tuple(isr)
        if is_elected:
            fields["leader"] = self.replication.leader_id
        if self.waiting and self.waiting <= set(isr):
            fields["adding_replicas"] = ()
            self.waiting = set()
        self.log.append(change(self.topic, 0, **fields))
        self.isr, self.leader_epoch = isr, self.replication.leader_epoch

    def _restart(self, gone: set[int], back: set[int]) -> None:
        """Let some of those who go be killed, and some of these find an unclean shutdown; the others only lag."""
        for broker in sorted(gone):
            if self.random.random() < _KILLED_SHARE:
                self.killed.add(broker)
                if self.random.random() < _UNCLEAN_SHARE:
                    self.replication.replicas[broker].recover()
        for broker in sorted(back & self.killed):
            self._register(broker)
        self.killed -= back

    def _register(self, broker: int) -> None:
        self.log.append(register(broker, len(self.log)))

    def _directories(self) -> dict[str, Any]:
        return {"directories": [directory_uuid(broker) for broker in self.replicas]}
