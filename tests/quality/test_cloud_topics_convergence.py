"""Random logs of Cloud Topics: fully deduplicated after as many passes as are promised, whatever the map's size."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from cloud_logs import RecordedCloud, begun, passes_to_clean, without

from harness.models.cloud_topics.cloud import Job
from harness.models.cloud_topics.compaction import ENTRY_BYTES, Settings, dirty
from harness.models.cloud_topics.judge import FALSE_CLEAN, Reader, deduplicated, last_of_keys, wrong_for_reader
from harness.models.cloud_topics.rules import RULES

pytestmark = pytest.mark.commit

LOG = "t-0"
RETENTION_MS = 50
NEVER_MS = 2**62


def a_cloud(*, entries: int, object_records: int = 5, off: frozenset[str] = frozenset()) -> RecordedCloud:
    cloud = RecordedCloud()
    settings = Settings(
        map_bytes=entries * ENTRY_BYTES, object_records=object_records, delete_retention_ms=RETENTION_MS, without=off
    )
    cloud.create(LOG, settings)
    return cloud


def some_records(random: Random, keys: int) -> list[tuple[bytes, bytes | None]]:
    return [
        (b"k%d" % random.randrange(keys), None if random.random() < 0.3 else random.randbytes(2))
        for _ in range(random.randint(1, 6))
    ]


def clean_all(cloud: RecordedCloud, now_ms: int = 0) -> int:
    """Compact until nothing is dirty, and return how many passes that took."""
    passes = 0
    while dirty(cloud.partitions[LOG].log):
        job = begun(cloud, 1, now_ms=now_ms)
        assert cloud.commit(job, now_ms=now_ms) is None
        passes += 1
    return passes


def contents(cloud: RecordedCloud) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in cloud.partitions[LOG].log.records()]


@pytest.mark.parametrize("seed", range(60))
def test_any_map_comes_to_what_an_unlimited_one_gives_in_one_pass(seed: int) -> None:
    """With tombstones kept at first, then without. A bound of keys over entries is met exactly."""
    random = Random(seed)  # noqa: S311
    keys, entries = random.randint(1, 40), random.randint(1, 12)
    small, unlimited = a_cloud(entries=entries, object_records=random.randint(1, 20)), a_cloud(entries=1000)
    for _ in range(random.randint(1, 30)):
        records = some_records(random, keys)
        for cloud in (small, unlimited):
            cloud.produce(LOG, records, now_ms=0)
    stored = small.partitions[LOG]
    met = len(last_of_keys(small.written[LOG]))
    assert passes_to_clean(stored.log, stored.settings) == -(-met // entries)
    assert clean_all(small) == -(-met // entries)
    assert clean_all(unlimited) == 1
    assert contents(small) == contents(unlimited)
    assert [offset for offset, _, _ in contents(small)] == sorted(
        record.offset for record in last_of_keys(small.written[LOG]).values()
    )
    for cloud in (small, unlimited):
        if job := cloud.begin(2, LOG, now_ms=RETENTION_MS):
            assert cloud.commit(job, now_ms=RETENTION_MS) is None
        assert list(cloud.partitions[LOG].log.records()) == deduplicated(cloud.written[LOG])
        assert cloud.begin(3, LOG, now_ms=NEVER_MS) is None


@dataclass
class Traffic:
    """Writers, brokers that compete and crash, readers: all at once, by chance."""

    random: Random
    cloud: RecordedCloud
    now_ms: int = 0
    jobs: list[Job] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    refused: int = 0
    wrong: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, seed: int, off: frozenset[str] = frozenset()) -> Traffic:
        random = Random(seed)  # noqa: S311
        cloud = a_cloud(entries=random.randint(1, 6), object_records=random.randint(1, 8), off=off)
        return cls(random, cloud)

    def go_on(self, steps: int) -> Traffic:
        for _ in range(steps):
            self.now_ms += self.random.choice((0, 0, 1, 3, 10, 30))
            self.step(self.random.choice(("produce", "begin", "begin", "commit", "commit", "crash", "read", "read")))
            self.judge()
        return self

    def step(self, what: str) -> None:
        if what == "produce" and self.random.random() < 0.5:
            self.cloud.produce(LOG, some_records(self.random, 8), now_ms=self.now_ms)
        elif what == "begin" and (job := self.cloud.begin(self.random.randint(1, 3), LOG, now_ms=self.now_ms)):
            self.jobs.append(job)
        elif what == "commit" and self.jobs:
            job = self.random.choice(self.jobs)
            self.refused += self.cloud.commit(job, now_ms=self.now_ms) is not None
        elif what == "crash" and self.random.random() < 0.2:
            self.cloud.crash(self.random.randint(1, 3))
        elif what == "read":
            self.read()
        self.jobs = [job for job in self.jobs if job.updates]

    def read(self) -> None:
        log = self.cloud.partitions[LOG].log
        self.readers.append(Reader(self.now_ms))
        self.readers = [reader for reader in self.readers if reader.began_at_ms + RETENTION_MS > self.now_ms]
        for index, reader in enumerate(self.readers):
            for _ in range(self.random.randint(0, 6)):
                reader = reader.next(log)  # noqa: PLW2901
            self.readers[index] = reader

    def judge(self) -> None:
        self.wrong |= self.cloud.wrong(LOG)
        stored = self.cloud.partitions[LOG]
        for reader in self.readers:
            self.wrong |= wrong_for_reader(
                reader, stored.log, self.cloud.written[LOG], now_ms=self.now_ms, delete_retention_ms=RETENTION_MS
            )


def test_what_happens_at_once_changes_nothing_of_it() -> None:
    """Random traffic, then quiet: nothing is ever wrong, and the bound holds from there."""
    refused = 0
    for seed in range(60):
        traffic = Traffic.of(seed).go_on(150)
        assert traffic.wrong == set()
        refused += traffic.refused
        cloud, now_ms, stored = traffic.cloud, traffic.now_ms, traffic.cloud.partitions[LOG]
        promised = passes_to_clean(stored.log, stored.settings)
        assert clean_all(cloud, now_ms) == promised
        if job := cloud.begin(2, LOG, now_ms=now_ms + RETENTION_MS):
            assert cloud.commit(job, now_ms=now_ms + RETENTION_MS) is None
        assert list(stored.log.records()) == deduplicated(cloud.written[LOG])
    assert refused > 60


@pytest.mark.parametrize("rule", sorted({*RULES} - {"aligned-extents", "backward-scan"}))
def test_random_traffic_finds_what_a_missing_rule_does(rule: str) -> None:
    """The same traffic has the power to show each loss that is one (``test_cloud_topics_exhaustive``).

    By chance some are rare: of 200 runs one shows what ``atomic-replace`` is for, one ``commit-time``.
    """
    shown = next(
        (seed for seed in range(250) if Traffic.of(seed, without(rule)).go_on(150).wrong - {FALSE_CLEAN}), None
    )
    assert shown is not None


def test_a_forward_scan_indexes_keys_again_and_again() -> None:
    """The purpose of the backward scan: two keys by turns, one entry; 2 passes instead of one for each record."""
    turns: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"1")] * 10
    passes = {}
    for name, off in (("backward", frozenset()), ("forward", without("backward-scan"))):
        cloud = a_cloud(entries=1, off=off)
        cloud.produce(LOG, turns, now_ms=0)
        passes[name] = clean_all(cloud)
        assert [offset for offset, _, _ in contents(cloud)] == [18, 19]
    assert passes == {"backward": 2, "forward": 20}
