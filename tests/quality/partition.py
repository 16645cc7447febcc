"""One partition: clients that write to its leader, replicas that copy it and clean it by their own clocks.

Time is virtual. No belief of a replica is set directly: beliefs follow from the batches that the replica received, and
from their times. The truth is kept next to the replicas: every record ever written, and how each transaction ended.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from harness.broker_files.segments.codecs import CODECS, Codec
from harness.broker_files.segments.records import ABORT, COMMIT, Record, marker_record
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Cleaning, clean
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication

EPOCH_MS: Final = 1_700_000_000_000
Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The random choices of clients and brokers, and the settings of cleaners.

    ``roll_share``: the probability that a replica begins a segment before a batch. ``epoch_bump``: transactions of
    version 2 (KIP-890), where each end of a transaction raises the producer epoch, also in the marker.
    """

    cleaning: Cleaning
    codecs: tuple[Codec, ...] = ("none",)
    append_time: bool = False
    roll_share: float = 0.1
    epoch_bump: bool = False
    header_share: float = 0.0


def draw_settings(random: Random, codecs: int) -> Settings:
    """Choose settings with so many codecs, and without headers."""
    return Settings(
        codecs=tuple(random.sample(CODECS, codecs)),
        append_time=random.random() < 0.2,
        cleaning=Cleaning(
            delete_retention_ms=1000,
            producer_expiration_ms=random.choice((1500, 3000)),
            group_batches=random.choice((5, 20, 1000)),
        ),
        roll_share=random.choice((0.03, 0.15, 0.5)),
        epoch_bump=random.random() < 0.5,
    )


@dataclass(slots=True)
class Txn:
    """The truth about one transaction; ``marker_offset`` and ``outcome`` are None while it is open."""

    number: int
    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    outcome: str | None = None


@dataclass(slots=True)
class Client:
    """A producer's own state: its epoch, its next sequence number, its open transaction."""

    producer_id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    txn: Txn | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """One record that the partition accepted permanently."""

    offset: int
    key: bytes | None
    tombstone: bool
    txn: int | None


@dataclass(slots=True)
class Partition:
    """The state of one partition. ``replication``: the replicas on brokers."""

    topic: str
    number: int
    settings: Settings
    random: Random
    replication: Replication
    now_ms: int
    coordinator_epoch: int = 0
    next_producer_id: int = 1000
    written: dict[int, Written] = field(default_factory=dict)
    txns: list[Txn] = field(default_factory=list)
    caught_up_ms: dict[int, int] = field(default_factory=dict)
    """When each replica last had every written record."""

    @property
    def replicas(self) -> dict[int, Replica]:
        return self.replication.replicas

    @property
    def leader(self) -> Replica:
        return self.replication.leader

    @property
    def leader_id(self) -> int:
        return self.replication.leader_id

    @property
    def away(self) -> set[int]:
        """The brokers that neither fetch nor clean."""
        return self.replication.away

    def client(self, *, transactional: bool) -> Client:
        """Return a producer with a new id; transactional, or else idempotent."""
        self.next_producer_id += 1
        return Client(self.next_producer_id, transactional)

    def write(self, records: Sequence[Pair], client: Client | None = None, *, roll: bool = False) -> ModelBatch:
        """Append one batch of keys and values, to a new segment with ``roll``. Without a client: no producer id."""
        base = self.leader.log_end
        if client and client.transactional and client.txn is None:
            client.txn = Txn(len(self.txns), client.producer_id, base)
            self.txns.append(client.txn)
        txn = client.txn.number if client and client.txn else None
        batch = self.batch(base, records, client, txn)
        for record in batch.records:
            self.written[record.offset] = Written(record.offset, record.key, record.value is None, txn)
        if client:
            client.sequence += len(records)
        self._append(batch, roll=roll)
        return batch

    def batch(self, base: int, records: Sequence[Pair], client: Client | None, txn: int | None) -> ModelBatch:
        """Return the batch that ``write`` would append, without doing so."""
        writer = client or Client(-1, transactional=False, epoch=-1, sequence=-1)
        return ModelBatch(
            base_offset=base, last_offset=base + len(records) - 1, max_timestamp_ms=self.now_ms,
            records=tuple(Record(base + at, self.now_ms, *pair, self._headers()) for at, pair in enumerate(records)),
            leader_epoch=self.replication.leader_epoch, producer_id=writer.producer_id, producer_epoch=writer.epoch,
            base_sequence=writer.sequence, transactional=writer.transactional,
            codec=self.random.choice(self.settings.codecs), append_time=self.settings.append_time, txn=txn,
        )  # fmt: skip

    def _headers(self) -> tuple[tuple[str, bytes | None], ...]:
        if self.random.random() >= self.settings.header_share:
            return ()
        return (("h", self.random.randbytes(3)), ("", None))

    def end(self, client: Client, outcome: str, *, timed_out: bool = False) -> ModelBatch:
        """Append the marker of the open transaction. The epoch rises in version 2, and if the coordinator aborts."""
        txn = client.txn
        if txn is None:
            raise ValueError(f"producer {client.producer_id} has no open transaction")
        if self.settings.epoch_bump or timed_out:
            self.bump(client)
        batch = self.marker(client, outcome, txn.number)
        txn.marker_offset, txn.outcome = batch.base_offset, outcome
        client.txn = None
        self._append(batch)
        return batch

    def marker(self, client: Client, outcome: str, txn: int | None) -> ModelBatch:
        """Return the marker that ``end`` would append, without doing so."""
        base = self.leader.log_end
        record = marker_record(base, self.now_ms, outcome, self.coordinator_epoch)
        return ModelBatch(
            base_offset=base, last_offset=base, records=(record,), max_timestamp_ms=self.now_ms,
            leader_epoch=self.replication.leader_epoch, producer_id=client.producer_id, producer_epoch=client.epoch,
            transactional=True, control=True, append_time=self.settings.append_time, txn=txn,
        )  # fmt: skip

    def end_elsewhere(self, client: Client) -> None:
        """End a transaction that registered this partition and wrote no record to it: a marker without data."""
        if self.settings.epoch_bump:
            self.bump(client)
        self._append(self.marker(client, self.random.choice((COMMIT, ABORT)), None))

    @staticmethod
    def bump(client: Client, by: int = 1) -> None:
        """Raise the epoch, as ends of transactions in other partitions do; sequence numbers begin at 0 again."""
        client.epoch += by
        client.sequence = 0

    def _append(self, batch: ModelBatch, *, roll: bool = False) -> None:
        self.replication.append(batch, roll=roll)
        self._record_caught_up()

    def _record_caught_up(self) -> None:
        for broker, replica in self.replicas.items():
            if replica.log_end == self.leader.log_end and replica.diverged_from is None:
                self.caught_up_ms[broker] = self.now_ms

    def fetch(self, broker: int, most: int | None = None) -> None:
        self.replication.fetch(broker, most)
        self._record_caught_up()

    def fetch_all(self) -> None:
        self.replication.fetch_all()
        self._record_caught_up()

    def clean(self, broker: int) -> bool:
        """Run one pass of a broker's cleaner; return whether anything was dirty."""
        return broker not in self.away and clean(self.replicas[broker], self.settings.cleaning, self.now_ms)

    def leave(self, broker: int) -> None:
        self.replication.leave(broker)
        self._record_caught_up()

    def come_back(self, broker: int) -> None:
        self.replication.come_back(broker)
        self._record_caught_up()

    def elect(self, broker: int) -> None:
        self.replication.elect(broker)
        self._record_caught_up()

    def lose_leader(self, successor: int, lost: Sequence[ModelBatch]) -> None:
        """Let the leader fail with batches, from every in-sync replica's log end on, that count as never written."""
        failed = self.leader
        failed.diverged_from = failed.log_end
        for batch in lost:
            failed.append(batch, roll=self.replication.rolls(failed, batch))
        self.replication._lead(successor)
        self.replication.leave(failed.broker)
        self._record_caught_up()


def new_partition(
    place: tuple[str, int], settings: Settings, random: Random, brokers: Sequence[int], away: Collection[int] = ()
) -> Partition:
    """Return an empty partition, led by the first broker. ``place``: topic and number."""
    replicas = {broker: Replica(broker) for broker in brokers}
    replication = Replication(
        replicas, brokers[0], rolls=lambda *_: random.random() < settings.roll_share, away=set(away)
    )
    caught_up_ms = dict.fromkeys(brokers, EPOCH_MS)
    return Partition(*place, settings, random, replication, now_ms=EPOCH_MS, caught_up_ms=caught_up_ms)
