"""Small Cloud Topics logs in words: ``"A=1 B=1", "A="`` is two objects, the second with a tombstone for A."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.cloud_topics.cloud import Cloud
from models.cloud_topics.compaction import Settings
from models.cloud_topics.keymap import ENTRY_BYTES
from models.cloud_topics.rules import ALL_ON

if TYPE_CHECKING:
    from models.cloud_topics.metastore import L1Object, Log

NAME = "t-0"


def spoken(words: str) -> list[tuple[bytes, bytes | None]]:
    """Return the records that these words stand for."""
    pairs = (word.split("=") for word in words.split())
    return [(key.encode(), value.encode() or None) for key, value in pairs]


def cloud_of(
    *objects: str, entries: int = 100, object_records: int = 1, retention_ms: int = 100, off: frozenset[str] = ALL_ON
) -> Cloud:
    """Return an engine with one log, whose objects were written at 0 ms."""
    cloud = Cloud(off)
    settings = Settings(
        map_bytes=entries * ENTRY_BYTES, object_records=object_records, delete_retention_ms=retention_ms
    )
    cloud.create(NAME, settings)
    for words in objects:
        cloud.produce(NAME, spoken(words), now_ms=0)
    return cloud


def log_of(cloud: Cloud) -> Log:
    """Return what the metastore has of the log."""
    return cloud.partitions[NAME].log


def shown(cloud: Cloud) -> list[str]:
    """Return the log's objects in words: first offset, end, what is in it."""
    return [_shown(piece) for piece in log_of(cloud).objects]


def _shown(piece: L1Object) -> str:
    words = (f"{_text(record.key)}={_text(record.value)}@{record.offset}" for record in piece.records())
    return " ".join((f"{piece.base_offset}-{piece.end_offset}:", *words))


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode()


def compact(cloud: Cloud, *, now_ms: int = 0, broker: int = 1) -> None:
    """Make one pass and have it accepted."""
    job = cloud.begin(broker, NAME, now_ms=now_ms)
    assert job is not None
    refused = cloud.commit(job, now_ms=now_ms)
    assert refused is None, refused
