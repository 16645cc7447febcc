"""Files that are cut, corrupt or of another format."""

from collections.abc import Callable
from pathlib import Path

from copied import copy, segment_name
from literal import commit, put
from sample_logs import old_entry

from audit_cases.case import END, T1, U1, clean, unknown
from audit_cases.open_transactions import OPEN


def path_of(top: Path, broker: int, base_offset: int) -> Path:
    return top / str(broker) / "t-0" / segment_name(base_offset)


def flip(broker: int, base_offset: int, position: int) -> Callable[[Path], None]:
    def spoil(top: Path) -> None:
        path = path_of(top, broker, base_offset)
        data = bytearray(path.read_bytes())
        data[position] ^= 0xFF
        path.write_bytes(data)

    return spoil


def cut(broker: int, base_offset: int) -> Callable[[Path], None]:
    """Take the last byte of a segment."""

    def spoil(top: Path) -> None:
        path = path_of(top, broker, base_offset)
        path.write_bytes(path.read_bytes()[:-1])

    return spoil


def precede_by_old(top: Path) -> None:
    path = path_of(top, 1, 0)
    path.write_bytes(old_entry(0, 0) + old_entry(1, 1) + path.read_bytes())


def precede_by_old_and_damage(top: Path) -> None:
    precede_by_old(top)
    path = path_of(top, 1, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def cut_snapshot(top: Path) -> None:
    (top / "1" / "t-0" / segment_name(10, "snapshot")).write_bytes(b"\0\1")


def spoil_checkpoints(top: Path) -> None:
    for broker in ("1", "2"):
        (top / broker / "replication-offset-checkpoint").write_bytes(b"7\n0\n")


ROLLED = {"rolled_at": (0, 9)}
DAMAGE_CASES = [
    unknown(
        "a segment is damaged",
        copy(1, put(0, "K"), END),
        copy(2, put(0, "K"), END),
        spoil=flip(2, 0, 70),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    unknown(
        "a damaged replica accuses nobody",
        copy(1, put(0, "K"), END),
        copy(2, put(0, "K"), END, **ROLLED),
        spoil=flip(2, 0, 70),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    clean(
        "the last segment is cut, as a broker was writing it",
        copy(1, put(0, "K"), END, put(10, "L"), **ROLLED),
        copy(2, put(0, "K"), END, put(10, "L"), **ROLLED),
        spoil=cut(2, 9),
        says="2 replicas were read to offset 10 and agree",
    ),
    unknown(
        "another segment is cut",
        copy(1, put(0, "K"), put(1, "L"), END, **ROLLED),
        copy(2, put(0, "K"), put(1, "L"), END, **ROLLED),
        spoil=cut(2, 0),
        says="00000000000000000000.log at byte ",
    ),
    unknown(
        "entries of old formats",
        copy(1, put(2, "K"), END),
        copy(2, put(2, "K"), END),
        spoil=precede_by_old,
        says="{top}/1/t-0/00000000000000000000.log: 2 entries of magic 0 or 1 are not read",
    ),
    unknown(
        "entries of old formats, and damage after them",
        copy(1, put(2, "K"), END),
        copy(2, put(2, "K"), END),
        spoil=precede_by_old_and_damage,
        says="{top}/1/t-0/00000000000000000000.log at byte ",
    ),
    unknown(
        "checkpoints of high watermarks are damaged",
        copy(1, *OPEN),
        copy(2, *OPEN),
        spoil=spoil_checkpoints,
        says="{top}/1/replication-offset-checkpoint at byte 0: line 1: version '7', not 0",
    ),
    unknown(
        "a log is damaged where its structure is, and transactions follow",
        copy(1, put(0, "K", T1), commit(1, T1), put(2, "L", U1), commit(3, U1), END),
        copy(2, put(0, "K", T1), commit(1, T1), put(2, "L", U1), END),
        spoil=flip(2, 0, 16),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: ",
    ),
    unknown(
        "a producer snapshot is cut",
        copy(1, *OPEN, snapshots={10: {T1: 0}}),
        copy(2, *OPEN),
        spoil=cut_snapshot,
        says="{top}/1/t-0/00000000000000000010.snapshot at byte 0: header is cut: 2 of 10 bytes",
    ),
]
