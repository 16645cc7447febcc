"""Random life of a partition within the rules: whatever happens here leaves no replica wrong.

A replica that comes back, or lags, has everything again before anything that it lacks can be old enough to be
removed: within ``delete.retention.ms``. A broker that is ``held`` is away for longer, or for good, and comes back
only by another's hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from partition import Client, Pair, Partition

from harness.broker_files.segments.records import ABORT, COMMIT

_MOST_CLIENTS = 5
_MOST_RECORDS = 5


@dataclass(slots=True)
class Traffic:
    """Clients with their keys, and brokers that come and go. ``shares``: how often things happen, as `SHARES`."""

    partition: Partition
    random: Random
    keys: list[bytes]
    held: set[int] = field(default_factory=set)
    clients: list[Client] = field(default_factory=list)
    traits: set[str] = field(default_factory=set)
    """The past events of this partition, in a word each."""
    shares: Mapping[Callable[["Traffic"], None], float] = field(default_factory=lambda: SHARES)

    def run(self, records: int) -> None:
        goal = len(self.partition.written) + records
        while len(self.partition.written) < goal:
            self.step()

    def step(self) -> None:
        """Let one thing happen, and most replicas copy it."""
        (thing,) = self.random.choices(list(self.shares), list(self.shares.values()))
        thing(self)
        for broker in self.partition.replicas:
            if broker not in self.partition.away and self.random.random() < 0.8:
                self.partition.fetch(broker)

    def pass_time(self, ms: int) -> None:
        """Advance the clock; whoever would lag for too long catches up before."""
        partition = self.partition
        retention_ms = partition.settings.cleaning.delete_retention_ms
        for broker in partition.replicas:
            late = partition.now_ms + ms - partition.caught_up_ms[broker] >= retention_ms
            if late and broker not in self.held:
                partition.come_back(broker)
        partition.now_ms += ms

    def end_all(self) -> None:
        for client in self.clients:
            if client.txn:
                self.partition.end(client, self.random.choice((COMMIT, ABORT)))

    def age(self, rounds: int) -> None:
        """Let some brokers' cleaners get as far as they come, past several retentions, while little is written."""
        self.end_all()
        self.come_all_back()
        chosen = [broker for broker in self.partition.replicas if self.random.random() < 0.6]
        for _ in range(rounds):
            self.partition.write([(self.random.choice(self.keys), self.value())], roll=True)
            self.partition.fetch_all()
            for broker in chosen:
                self.partition.clean(broker)
            self.pass_time(self.partition.settings.cleaning.delete_retention_ms * 2 // 3)

    def come_all_back(self) -> None:
        for broker in self.partition.away - self.held:
            self.partition.come_back(broker)

    def value(self) -> bytes:
        """Return some bytes, at times many alike, at times none."""
        size = self.random.choice((0, 3, 8, 8, 60))
        return self.random.randbytes(size) if self.random.random() < 0.5 else b"v" * size

    def present(self) -> list[int]:
        return [broker for broker in self.partition.replicas if broker not in self.partition.away]

    def _records(self) -> list[Pair]:
        count = self.random.randint(1, _MOST_RECORDS)
        return [
            (self.random.choice(self.keys), None if self.random.random() < 0.2 else self.value()) for _ in range(count)
        ]

    def _write_plain(self) -> None:
        idle = [client for client in self.clients if not client.transactional]
        client = self.random.choice(idle) if idle and self.random.random() < 0.5 else None
        self.partition.write(self._records(), client)

    def _write_in_transaction(self) -> None:
        if chosen := [client for client in self.clients if client.transactional]:
            self.partition.write(self._records(), self.random.choice(chosen))

    def _new_client(self) -> None:
        if len(self.clients) >= _MOST_CLIENTS:
            leaving = self.random.randrange(len(self.clients))
            if self.clients[leaving].txn is None:
                self.clients.pop(leaving)
        self.clients.append(self.partition.client(transactional=self.random.random() < 0.75))

    def _end(self) -> None:
        if chosen := [client for client in self.clients if client.txn]:
            outcome = self.random.choice((COMMIT, COMMIT, ABORT))
            client = self.random.choice(chosen)
            self.partition.end(client, outcome, timed_out=outcome == ABORT and self.random.random() < 0.3)

    def _skip_epochs(self) -> None:
        for client in self.clients:
            if client.txn is None and self.random.random() < 0.5:
                self.partition.bump(client, self.random.randint(1, 3))

    def _end_elsewhere(self) -> None:
        if chosen := [client for client in self.clients if client.transactional and client.txn is None]:
            self.partition.end_elsewhere(self.random.choice(chosen))

    def _some_time(self) -> None:
        self.pass_time(self.random.randint(1, self.partition.settings.cleaning.delete_retention_ms // 2))

    def _clean(self) -> None:
        self.partition.clean(self.random.choice(list(self.partition.replicas)))

    def leave(self) -> None:
        if len(present := self.present()) > 1:
            leaving = self.random.choice(present)
            if leaving == self.partition.leader_id:
                self.partition.elect(self.random.choice([b for b in present if b != leaving]))
            self.partition.leave(leaving)

    def _come_back(self) -> None:
        for broker in self.partition.away - self.held:
            if self.random.random() < 0.5:
                self.partition.fetch(broker, self.random.randint(1, 5))
            else:
                self.partition.come_back(broker)

    def elect(self) -> None:
        self.partition.elect(self.random.choice(self.present()))
        self.traits.add("leader-change")

    def _move_coordinator(self) -> None:
        self.partition.coordinator_epoch += 1

    def _delete_records(self) -> None:
        if self.random.random() < 0.4:
            leader = self.partition.leader
            most = (leader.log_start + leader.high_watermark) // 2
            self.partition.replication.delete_records(self.random.randint(leader.log_start, most))

    def _retain(self) -> None:
        """Delete one broker's oldest segment by age (``compact,delete``): each does that by its own clock."""
        replica = self.partition.replicas[self.random.choice(self.present())]
        if self.random.random() < 0.4 and len(replica.segments) > 2:
            replica.delete_before(min(replica.segments[1].base_offset, replica.high_watermark))

    def lose_tail(self) -> None:
        """Let the leader fail with a tail that nobody copied."""
        partition = self.partition
        partition.fetch_all()
        others = [broker for broker in self.present() if broker != partition.leader_id]
        if not others:
            return
        base = partition.leader.log_end
        lost = [partition.batch(base, self._records(), None, None)]
        stranger = partition.client(transactional=True)
        lost.append(partition.batch(lost[-1].last_offset + 1, self._records(), stranger, None))
        partition.lose_leader(self.random.choice(others), lost)


SHARES: Final[Mapping[Callable[[Traffic], None], float]] = {
    Traffic._write_plain: 25, Traffic._write_in_transaction: 30, Traffic._new_client: 8, Traffic._end: 15,
    Traffic._skip_epochs: 2, Traffic._end_elsewhere: 1, Traffic._some_time: 12, Traffic._clean: 10, Traffic.leave: 3,
    Traffic._come_back: 6, Traffic.elect: 2, Traffic._move_coordinator: 1, Traffic._delete_records: 1,
    Traffic._retain: 1, Traffic.lose_tail: 1,
}  # fmt: skip
