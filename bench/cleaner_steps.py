"""The steps of a case of `cleaner_passes`: what happens to a log, and random cases."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from harness.broker_files.segments.codecs import CODECS, Codec
from harness.broker_files.segments.records import MARKERS

RETENTION_MS: Final = 1000
LARGE_MAP_BYTES: Final = 1 << 16
LARGE_SEGMENT_BYTES: Final = 1 << 30
LARGE_INDEX_BYTES: Final = 4096
FAR: Final = 2**31 + 7
PLAIN: Final = -1
WRITABLE: Final = tuple(codec for codec in CODECS if codec != "lz4")
"""The encoder writes linked blocks in lz4, which Kafka rejects."""


@dataclass(frozen=True)
class Write:
    """Write a batch. ``producer``: of a transaction, or `PLAIN`. ``keys``: each with whether it is deleted.

    ``replicates``: the high watermark advances.
    """

    producer: int
    keys: tuple[tuple[int, bool], ...]
    age_ms: int = 0
    value_bytes: int = 1
    codec: Codec = "none"
    replicates: bool = True


@dataclass(frozen=True)
class End:
    """End a producer's transaction, if one is open. ``bumps``: the marker has the next epoch (KIP-890)."""

    producer: int
    kind: str
    bumps: bool = False
    replicates: bool = True


@dataclass(frozen=True)
class Roll:
    """Begin a segment before the next batch."""


@dataclass(frozen=True)
class Jump:
    """Leave offsets out, as compaction on a leader does that a follower copies from."""

    offsets: int


@dataclass(frozen=True)
class Pass:
    """Let time pass, then run a pass.

    ``map_bytes``: of its map. ``checks``: it is aborted at that check; -1: never. ``segment_bytes``: the limit on
    segments that become one. ``index_bytes``: the limit on their offset indexes, and on their time indexes.
    """

    after_ms: int
    map_bytes: int = LARGE_MAP_BYTES
    checks: int = -1
    segment_bytes: int = LARGE_SEGMENT_BYTES
    index_bytes: int = LARGE_INDEX_BYTES


@dataclass(frozen=True)
class Elect:
    """Begin a leader epoch."""


@dataclass(frozen=True)
class Truncate:
    """Remove all that is not replicated."""


@dataclass(frozen=True)
class DeleteRecords:
    """Delete a share of the batches before the last stable offset."""

    share: float


@dataclass(frozen=True)
class Restart:
    """Open the folder again, after an orderly shutdown or after a crash.

    ``renamed``: the crash came while a cleaned segment replaced the first one or two, after so many of its files had
    their final names (log, offset index, time index, ``.txnindex``: ``LogSegment.changeFileSuffixes``); -1: before the
    old files were removed. None: another moment. ``loses``: the crash loses ``leader-epoch-checkpoint`` and
    ``log-start-offset-checkpoint``. ``fills``: indexes have just the room for what recovery writes.
    """

    in_order: bool
    renamed: int | None = None
    loses: bool = False
    fills: bool = False


@dataclass(frozen=True)
class Merge:
    """Make one segment of all but the last, as Kafka before 0.10.2 wrote them, and open the folder again."""


@dataclass(frozen=True)
class Delete:
    """The last step: the partition is deleted, and the broker crashes after the deletion of so many files."""

    files: int


Step: TypeAlias = Write | End | Roll | Jump | Pass | Elect | Truncate | DeleteRecords | Restart | Merge | Delete


WEIGHTS: Final = {
    "write": 10, "end": 5, "roll": 5, "jump": 1, "pass": 4, "elect": 1.5, "truncate": 0.8, "delete": 0.5,
    "restart": 0.8,
}  # fmt: skip


def random_steps(seed: int) -> list[Step]:
    """Return the steps of a case."""
    random = Random(f"cleaner {seed}")  # noqa: S311  (a case that can be repeated)
    keys, producers = random.choice((2, 4, 12)), random.choice((1, 2, 3))
    is_far, has_small_maps, has_small_segments, has_small_indexes, merges = (
        random.random() < share for share in (0.2, 0.1, 0.1, 0.15, 0.3)
    )
    steps: list[Step] = []
    for _ in range(random.randint(10, 50)):
        kind = random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        match kind:
            case "write":
                replicates = random.randrange(6) > 0
                steps.append(_write(random, keys, producers, is_large=has_small_indexes, replicates=replicates))
            case "end":
                steps.append(_end(random, producers, replicates=random.randrange(6) > 0))
            case "roll":
                steps.append(Roll())
            case "jump":
                steps.append(Jump(FAR if is_far else random.choice((1, 7, 1000))))
            case "pass":
                small = has_small_maps and random.choice((False, True))
                is_aborted = random.randrange(14) == 0
                steps.append(
                    Pass(
                        random.choice((0, 400, RETENTION_MS + 1, 3 * RETENTION_MS)),
                        random.choice((80, 130)) if small else LARGE_MAP_BYTES,
                        random.choice((1, 2, 4, 8)) if is_aborted else -1,
                        random.choice((200, 500, 4000)) if has_small_segments else LARGE_SEGMENT_BYTES,
                        random.choice((24, 36, 60)) if has_small_indexes else LARGE_INDEX_BYTES,
                    )
                )
            case "truncate":
                tail = (random.choice(("write", "end", "end", "roll")) for _ in range(random.randint(1, 4)))
                steps += [
                    _write(random, keys, producers, replicates=False) if it == "write"
                    else _end(random, producers, replicates=False) if it == "end" else Roll()
                    for it in tail
                ]  # fmt: skip
                steps.append(Truncate())
            case _:
                steps.append(_rare(kind, random))
    if has_small_indexes:
        steps += _large_offset_indexes(random)
    if merges:
        steps.insert(random.randint(1, len(steps)), Jump(FAR))
        steps += [Roll(), Write(PLAIN, ((0, False),)), Merge(), Pass(0)]
        steps += [Write(PLAIN, ((1, False),)), Roll(), Write(PLAIN, ((0, False),)), Pass(0)]
        steps += [Write(PLAIN, ((1, False),)), Roll(), Write(PLAIN, ((0, False),)), Pass(RETENTION_MS + 1)]
    return [*steps, Delete(random.choice((0, 2, 99)))]


def _large_offset_indexes(random: Random) -> list[Step]:
    """Return a pass over segments whose offset indexes are larger than their time indexes."""
    large, steps = Write(PLAIN, ((0, False),), value_bytes=6000), list[Step]()
    for _ in range(4):
        steps += [*[large] * random.choice((2, 3, 4)), Roll()]
    return [*steps, large, Pass(0, index_bytes=random.choice((24, 36, 60)))]


def _rare(kind: str, random: Random) -> Step:
    if kind == "elect":
        return Elect()
    if kind == "delete":
        return DeleteRecords(random.choice((0.2, 0.5, 0.8)))
    renamed = random.choice((None, None, -1, 0, 1, 2, 3))
    return Restart(random.randrange(3) == 0, renamed, random.randrange(3) == 0, random.randrange(3) == 0)


def _write(random: Random, keys: int, producers: int, *, replicates: bool, is_large: bool = False) -> Write:
    return Write(
        random.choice((PLAIN, *range(producers), *range(producers))),
        tuple((random.randrange(keys), random.random() < 1 / 3) for _ in range(random.randint(1, 3))),
        random.choice((0, 0, 500, 10 * 86_400_000)),
        random.choice((1, 6000, 6000) if is_large else (1, 1, 1, 1, 40, 3000)),
        "none" if is_large else random.choice(("none", "none", *WRITABLE)),
        replicates,
    )


def _end(random: Random, producers: int, *, replicates: bool) -> End:
    return End(random.randrange(producers), random.choice(MARKERS), random.choice((False, True)), replicates)
