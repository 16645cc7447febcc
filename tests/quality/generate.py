"""Cases from seeds: a kind and a number give the same folders and the same expectations, everywhere."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from disk import Copy, write_broker
from expected import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE, Expected
from oracle import expected
from partition import Partition, Settings
from planted import ABORTED_DELETE, SAME_OUTCOME, plant
from traffic import Traffic

from harness.broker_files.segments.codecs import CODECS
from harness.models.log.cleaner import Cleaning
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication

LEGAL: Final = "legal"
TWO: Final = "two"
PLANTED: Final = (TOMBSTONE_DIVERGENCE, ABORTED_TO_COMMITTED, ABORTED_DELETE, COMMITTED_TO_ABORTED, STUCK_LSO, TWO)
KINDS: Final = (LEGAL, *PLANTED, SAME_OUTCOME)

_EPOCH_MS = 1_700_000_000_000
_SMALL = (10, 60)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster on disk that is not yet written.

    ``copies`` maps a broker to its replicas. ``expected`` must be found, ``tolerated`` may be, and nothing else.
    ``traits`` says what has happened here, to choose cases by.
    """

    name: str
    copies: dict[int, tuple[Copy, ...]]
    bare: bool
    expected: tuple[Expected, ...]
    tolerated: tuple[Expected, ...]
    traits: frozenset[str]

    @property
    def topics(self) -> frozenset[str]:
        """Every topic's name."""
        return frozenset(copy.partition.topic for copies in self.copies.values() for copy in copies)

    def write(self, top: Path) -> dict[int, Path]:
        """Write ``top/<name>/broker-<n>`` and return the log directory of each broker."""
        folders = {broker: top / self.name / f"broker-{broker}" for broker in self.copies}
        for broker, copies in self.copies.items():
            write_broker(folders[broker], copies, bare=self.bare)
        return folders


def generate(seed: int, kind: str, *, records: int | None = None) -> Case:
    """Generate one case; ``records``: about how many a partition, 10 to 60 unless given.

    Raises ``ValueError`` for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind {kind}: {', '.join(KINDS)}")
    random = Random(f"{kind} {seed}")  # noqa: S311
    brokers = random.sample(range(1, 9), random.choices((2, 3, 4), (1, 6, 1))[0])
    name = f"{kind}-{seed}"
    lives = [
        _live(
            random,
            kind,
            topic=f"{kind}.{seed}",
            number=number,
            brokers=brokers,
            records=records or random.randint(*_SMALL),
        )
        for number in range(random.choice((1, 1, 1, 2, 3)) if kind == LEGAL else 1)
    ]
    copies = {broker: tuple(_copy(random, traffic, broker) for traffic in lives) for broker in brokers}
    bare = random.random() < 0.1 and all(
        copy.replica.log_start <= copy.replica.segments[0].base_offset for held in copies.values() for copy in held
    )
    violations = [
        wrong
        for traffic in lives
        for wrong in expected(
            traffic.partition,
            []
            if bare
            else [c.high_watermark for held in copies.values() for c in held if c.partition is traffic.partition],
        )
    ]
    return Case(
        name=name,
        copies=copies,
        bare=bare,
        expected=tuple(wrong for wrong in violations if wrong.required),
        tolerated=tuple(wrong for wrong in violations if not wrong.required),
        traits=frozenset().union(*(traffic.traits for traffic in lives)) | ({"bare"} if bare else set()),
    )


def _settings(random: Random) -> Settings:
    return Settings(
        codecs=tuple(random.sample(CODECS, random.randint(1, 2))),
        append_time=random.random() < 0.2,
        cleaning=Cleaning(
            delete_retention_ms=1000,
            producer_expiration_ms=random.choice((1500, 3000)),
            group_batches=random.choice((5, 20, 1000)),
        ),
        roll_share=random.choice((0.03, 0.15, 0.5)),
        epoch_bump=random.random() < 0.5,
        header_share=random.choice((0.0, 0.0, 0.3)),
    )


def _live(random: Random, kind: str, *, topic: str, number: int, brokers: list[int], records: int) -> Traffic:
    """Let one partition live its life."""
    settings = _settings(random)
    partition = Partition(
        topic=topic,
        number=number,
        settings=settings,
        random=random,
        replication=Replication(
            {broker: Replica(broker) for broker in brokers},
            brokers[0],
            rolls=lambda *_: random.random() < settings.roll_share,
        ),
        now_ms=_EPOCH_MS,
        caught_up_ms=dict.fromkeys(brokers, _EPOCH_MS),
    )
    traffic = Traffic(partition, random, [b"k%d" % n for n in range(random.choice((2, 6, 20)))])
    if kind == LEGAL:
        _live_legally(traffic, random, records)
    else:
        _go_wrong(traffic, random, kind, records)
    return traffic


def _live_legally(traffic: Traffic, random: Random, records: int) -> None:
    partition = traffic.partition
    if random.random() < 0.15:
        joining = random.choice(list(partition.replicas)[1:])
        traffic.held.add(joining)
        partition.leave(joining)
        traffic.run(records // 3)
        traffic.held.discard(joining)
        partition.caught_up_ms[joining] = partition.now_ms
        traffic.traits.add("joined")
    traffic.run(records // 2)
    if random.random() < 0.6:
        traffic.age(random.randint(2, 9))
    if random.random() < 0.15:
        _stop_one(traffic, random)
    traffic.run(records // 2)
    if random.random() < 0.2:
        traffic.age(random.randint(1, 6))
    _wind_down(traffic, random)


def _stop_one(traffic: Traffic, random: Random) -> None:
    """Stop a broker for good, at times as a leader that takes an unreplicated tail with it."""
    partition = traffic.partition
    away = set(partition.away)
    if random.random() < 0.3:
        traffic.lose_tail()
    else:
        traffic.leave()
    if partition.away - away:
        traffic.held |= partition.away - away
        traffic.traits.add("stopped")


def _go_wrong(traffic: Traffic, random: Random, kind: str, records: int) -> None:
    partition = traffic.partition
    brokers = list(partition.replicas)
    wrong = set(random.sample(brokers[1:], 2 if len(brokers) > 2 and random.random() < 0.3 else 1))
    joins = random.random() < 0.15
    if joins:
        traffic.held |= wrong
        for broker in wrong:
            partition.leave(broker)
    traffic.run(records // 2)
    single = [name for name in PLANTED if name != TWO]
    names = random.choices(single, k=2) if kind == TWO else [kind]
    plant(traffic, names, wrong, joins=joins, others_clean=random.choice((0.0, 0.5, 1.0)))
    traffic.traits |= {*names, "joined" if joins else "away", f"wrong-{len(wrong)}"}
    traffic.run(records // 2)
    for _ in range(random.choice((0, 0, 1, 3))):
        for broker in wrong:
            partition.write([(b"filler", b"last")], roll=True)
            traffic.pass_time(partition.settings.cleaning.delete_retention_ms // 2)
            partition.clean(broker)
    _wind_down(traffic, random)


def _wind_down(traffic: Traffic, random: Random) -> None:
    if random.random() < 0.6:
        traffic.end_all()
    if any(client.txn for client in traffic.clients):
        traffic.traits.add("open")
    if random.random() < 0.7:
        traffic.come_all_back()
    if random.random() < 0.7:
        traffic.partition.fetch_all()
    if any(replica.diverged_from is not None for replica in traffic.partition.replicas.values()):
        traffic.traits.add("unreplicated-tail")


def _copy(random: Random, traffic: Traffic, broker: int) -> Copy:
    """Choose the other content of a broker's files."""
    partition = traffic.partition
    replica = partition.replicas[broker]
    lag = 0 if broker == partition.leader_id and random.random() < 0.9 else random.choice((0, 1, 5))
    if random.random() < 0.3:
        replica.snapshots[replica.log_end] = dict(replica.producers)
    following = next(islice(partition.leader.from_offset(replica.log_end), 1), None)
    torn = following if replica.diverged_from is None and random.random() < 0.4 else None
    leftovers = {suffix for suffix in (".cleaned", ".swap", ".deleted") if random.random() < 0.1}
    return Copy(
        partition,
        replica,
        high_watermark=max(replica.log_start, replica.high_watermark - lag),
        torn=torn,
        torn_share=random.random(),
        zeros=random.choice((0, 64, 4096)) if torn is None and random.random() < 0.15 else 0,
        leftovers=frozenset(leftovers),
        side_files=random.random() < 0.15,
    )
