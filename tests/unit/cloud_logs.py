"""Small Cloud Topics logs in words: ``"A=1 B=1", "A="`` is two objects, the second with a tombstone for A."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.broker_files.segments.records import Record
from harness.models.cloud_topics.cloud import Cloud, Job
from harness.models.cloud_topics.compaction import ENTRY_BYTES, Settings, dirty
from harness.models.cloud_topics.judge import wrong_in_log
from harness.models.cloud_topics.metastore import L1Object, Log, holds
from harness.models.cloud_topics.rules import RULES
from harness.models.log.batch import ModelBatch

NAME = "t-0"


@dataclass
class RecordedCloud(Cloud):
    """An engine that keeps the truth: every record that was ever written, and every object that was ever uploaded."""

    written: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    uploaded: list[L1Object] = field(default_factory=list)

    def append(self, name: str, batches: Sequence[ModelBatch]) -> None:
        before = self.partitions[name].log
        super().append(name, batches)
        if self.partitions[name].log is not before:
            self.written[name] += [record for batch in batches for record in batch.records]
            self.uploaded.append(self.partitions[name].log.objects[-1])

    def begin(self, broker: int, name: str, *, now_ms: int) -> Job | None:
        job = super().begin(broker, name, now_ms=now_ms)
        self.uploaded += job.update.objects if job else ()
        return job

    def produce(self, name: str, records: Sequence[tuple[bytes, bytes | None]], *, now_ms: int) -> None:
        """Append one batch of keys and values without a producer id."""
        base = self.partitions[name].log.end_offset
        made = tuple(Record(base + index, now_ms, key, value) for index, (key, value) in enumerate(records))
        self.append(name, [ModelBatch(base, base + len(made) - 1, made, now_ms)])

    def orphans(self) -> list[L1Object]:
        """Return the objects that no log has and no pass is about to commit: replaced, refused, or lost in a crash."""
        used = {piece for stored in self.partitions.values() for piece in stored.log.objects}
        used.update(piece for job in self.jobs for piece in job.update.objects)
        return [piece for piece in self.uploaded if piece not in used]

    def wrong(self, name: str) -> set[str]:
        """Return the names of the violations in a log now."""
        return wrong_in_log(self.partitions[name].log, self.written[name])


def without(*names: str) -> frozenset[str]:
    """Return these rules as a set to switch off; raises ``ValueError`` for an unknown name."""
    if unknown := sorted(set(names) - set(RULES)):
        raise ValueError(f"no such rule: {', '.join(unknown)}; there are {', '.join(RULES)}")
    return frozenset(names)


def passes_to_clean(log: Log, settings: Settings) -> int:
    """Return after how many accepted passes no offset is dirty, if nothing is appended meanwhile.

    Each pass indexes as many keys as the map has entries, or all that are left. Every other record of such a key is
    then removed from the offsets below, where the next pass continues: no key is indexed twice. So D keys in dirty
    ranges take D / entries passes, rounded up, and one pass if the dirty ranges have no record left.
    """
    unclean = dirty(log)
    if not unclean:
        return 0
    keys = {record.key for record in log.records() if holds(unclean, record.offset)}
    entries = settings.map_bytes // ENTRY_BYTES
    return max(1, -(-len(keys) // entries))


def spoken(words: str) -> list[tuple[bytes, bytes | None]]:
    """Return the records that these words stand for."""
    pairs = (word.split("=") for word in words.split())
    return [(key.encode(), value.encode() or None) for key, value in pairs]


def cloud_of(
    *objects: str,
    entries: int = 100,
    object_records: int = 1,
    retention_ms: int = 100,
    off: frozenset[str] = frozenset(),
) -> RecordedCloud:
    """Return an engine with one log, whose objects were written at 0 ms."""
    cloud = RecordedCloud()
    settings = Settings(
        map_bytes=entries * ENTRY_BYTES, object_records=object_records, delete_retention_ms=retention_ms, without=off
    )
    cloud.create(NAME, settings)
    for words in objects:
        cloud.produce(NAME, spoken(words), now_ms=0)
    return cloud


def log_of(cloud: Cloud) -> Log:
    """Return what the metastore has of the log."""
    return cloud.partitions[NAME].log


def shown(cloud: Cloud) -> list[str]:
    """Describe the log's objects: first offset, end, content."""
    return [_shown(piece) for piece in log_of(cloud).objects]


def _shown(piece: L1Object) -> str:
    words = (f"{_text(record.key)}={_text(record.value)}@{record.offset}" for record in piece.records())
    return " ".join((f"{piece.base_offset}-{piece.end_offset}:", *words))


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode()


def begun(cloud: Cloud, broker: int = 1, *, now_ms: int = 0) -> Job:
    """Begin a pass, which has work."""
    job = cloud.begin(broker, NAME, now_ms=now_ms)
    assert job is not None
    return job


def compact(cloud: Cloud, *, now_ms: int = 0, broker: int = 1) -> None:
    """Make one pass and have it accepted."""
    job = begun(cloud, broker, now_ms=now_ms)
    refused = cloud.commit(job, now_ms=now_ms)
    assert refused is None, refused
