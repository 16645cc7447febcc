"""Cases from seeds: a kind and a number give the same folders and the same expectations, everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from disk import Copy, write_broker
from expected import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE, Expected
from oracle import expected
from partition import draw_settings, new_partition
from planted import ABORTED_DELETE, SAME_OUTCOME, plant
from traffic import Traffic

LEGAL: Final = "legal"
TWO: Final = "two"
PLANTED: Final = (TOMBSTONE_DIVERGENCE, ABORTED_TO_COMMITTED, ABORTED_DELETE, COMMITTED_TO_ABORTED, STUCK_LSO, TWO)
KINDS: Final = (LEGAL, *PLANTED, SAME_OUTCOME)

_SMALL = (10, 60)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster that is not yet written: the replicas of each broker; what must be found, and what may be."""

    name: str
    copies: dict[int, tuple[Copy, ...]]
    bare: bool
    expected: tuple[Expected, ...]
    tolerated: tuple[Expected, ...]

    def write(self, top: Path) -> dict[int, Path]:
        """Write ``top/<name>/broker-<n>`` and return the log directory of each broker."""
        folders = {broker: top / self.name / f"broker-{broker}" for broker in self.copies}
        for broker, copies in self.copies.items():
            write_broker(folders[broker], copies, bare=self.bare)
        return folders


def generate(seed: int, kind: str) -> Case:
    random = Random(f"{kind} {seed}")  # noqa: S311
    brokers = random.sample(range(1, 9), random.choices((2, 3, 4), (1, 6, 1))[0])
    lives = [
        _live(random, kind, (f"{kind}.{seed}", number), brokers, random.randint(*_SMALL))
        for number in range(random.choice((1, 1, 1, 2, 3)) if kind == LEGAL else 1)
    ]
    copies = {broker: tuple(_copy(random, traffic, broker) for traffic in lives) for broker in brokers}
    bare = random.random() < 0.1 and all(
        copy.replica.log_start <= copy.replica.segments[0].base_offset for held in copies.values() for copy in held
    )
    checkpoints = [] if bare else [copy for held in copies.values() for copy in held]
    violations = [
        wrong
        for traffic in lives
        for wrong in expected(
            traffic.partition, [copy.high_watermark for copy in checkpoints if copy.partition is traffic.partition]
        )
    ]
    return case_of(f"{kind}-{seed}", copies, violations, bare=bare)


def case_of(name: str, copies: dict[int, tuple[Copy, ...]], wrongs: Sequence[Expected], *, bare: bool) -> Case:
    required, tolerated = (tuple(wrong for wrong in wrongs if wrong.required is kind) for kind in (True, False))
    return Case(name, copies, bare, required, tolerated)


def _live(random: Random, kind: str, place: tuple[str, int], brokers: list[int], records: int) -> Traffic:
    """Let one partition live its life."""
    settings = replace(draw_settings(random, random.randint(1, 2)), header_share=random.choice((0.0, 0.0, 0.3)))
    partition = new_partition(place, settings, random, brokers)
    traffic = Traffic(partition, random, [b"k%d" % number for number in range(random.choice((2, 6, 20)))])
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
    (traffic.lose_tail if random.random() < 0.3 else traffic.leave)()
    traffic.held |= partition.away - away


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
    if random.random() < 0.7:
        traffic.come_all_back()
    if random.random() < 0.7:
        traffic.partition.fetch_all()


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
        partition, replica, high_watermark=max(replica.log_start, replica.high_watermark - lag),
        torn=torn, torn_share=random.random(), leftovers=frozenset(leftovers),
        zeros=random.choice((0, 64, 4096)) if torn is None and random.random() < 0.15 else 0,
        side_files=random.random() < 0.15,
    )  # fmt: skip
