"""Files that are cut, corrupt or of another format."""

from collections.abc import Callable
from pathlib import Path

from checker_cases.transactions import END, T1, U1
from copied import copy, segment_name
from literal import commit, put
from sample_logs import old_entry

from audit_cases.case import both, clean, unknown
from audit_cases.open_transactions import OPEN


def changed(broker: int, base_offset: int, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return a function that rewrites a segment of a replica."""

    def spoil(top: Path) -> None:
        path = top / str(broker) / "t-0" / segment_name(base_offset)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def flip(broker: int, position: int) -> Callable[[Path], None]:
    return changed(broker, 0, lambda data: data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])


def cut(broker: int, base_offset: int) -> Callable[[Path], None]:
    return changed(broker, base_offset, lambda data: data[:-1])


def cut_snapshot(top: Path) -> None:
    (top / "1" / "t-0" / segment_name(10, "snapshot")).write_bytes(b"\0\1")


def spoil_checkpoints(top: Path) -> None:
    for broker in ("1", "2"):
        (top / broker / "replication-offset-checkpoint").write_bytes(b"7\n0\n")


OLD = old_entry(0, 0) + old_entry(1, 1)
ROLLED = {"rolled_at": (0, 9)}
DAMAGE_CASES = [
    unknown("a segment is damaged",
        *both(put(0, "K"), END), spoil=flip(2, 70), says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    unknown("a damaged replica accuses nobody",
        copy(1, put(0, "K"), END), copy(2, put(0, "K"), END, **ROLLED), spoil=flip(2, 70),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    clean("the last segment is cut, as a broker was writing it",
        *both(put(0, "K"), END, put(10, "L"), **ROLLED), spoil=cut(2, 9),
        says="2 replicas were read to offset 10 and agree",
    ),
    unknown("another segment is cut",
        *both(put(0, "K"), put(1, "L"), END, **ROLLED), spoil=cut(2, 0), says="00000000000000000000.log at byte ",
    ),
    unknown("entries of old formats",
        *both(put(2, "K"), END), spoil=changed(1, 0, lambda data: OLD + data),
        says="{top}/1/t-0/00000000000000000000.log: 2 entries of magic 0 or 1 are not read",
    ),
    unknown("entries of old formats, and damage after them",
        *both(put(2, "K"), END), spoil=changed(1, 0, lambda data: OLD + data[:-1] + b"!"),
        says="{top}/1/t-0/00000000000000000000.log at byte ",
    ),
    unknown("checkpoints of high watermarks are damaged",
        *both(*OPEN), spoil=spoil_checkpoints,
        says="{top}/1/replication-offset-checkpoint at byte 0: line 1: version '7', not 0",
    ),
    unknown("a log is damaged where its structure is, and transactions follow",
        copy(1, put(0, "K", T1), commit(1, T1), put(2, "L", U1), commit(3, U1), END),
        copy(2, put(0, "K", T1), commit(1, T1), put(2, "L", U1), END), spoil=flip(2, 16),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: ",
    ),
    unknown("a producer snapshot is cut",
        copy(1, *OPEN, snapshots={10: {T1: 0}}), copy(2, *OPEN), spoil=cut_snapshot,
        says="{top}/1/t-0/00000000000000000010.snapshot at byte 0: header is cut: 2 of 10 bytes",
    ),
]  # fmt: skip
