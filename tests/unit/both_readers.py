"""The compiled reader held against the reference, on any bytes."""

import io
from collections.abc import Iterator
from dataclasses import replace

from sample_logs import SOURCE, Read, read_by_reference

from harness.broker_files.segments.batches import CorruptLogError, OldEntry, Record
from harness.broker_files.segments.blocks import Block, Unpacked, iter_blocks, unpack

FIELDS = (
    "position", "size_bytes", "base_offset", "last_offset", "leader_epoch", "crc", "attributes", "timestamp_base_ms",
    "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "record_count",
)  # fmt: skip
MARKERS = {None: -1, "abort": 0, "commit": 1}


def read(data: bytes, block_bytes: int = 1 << 16, *, verify_crc: bool = True) -> tuple[Read, list[int]]:
    """Read as `read_by_reference` does; and the markers of batches."""
    got = Read([], [], [])
    markers: list[int] = []
    try:
        for block in iter_blocks(io.BytesIO(data), source=SOURCE, block_bytes=block_bytes, verify_crc=verify_crc):
            assert block.data.tobytes() == data[block.position : block.position + len(block.data)]
            old = block.skipped[["position", "size_bytes", "last_offset", "magic"]].tolist()
            got.old.extend(OldEntry(*fields) for fields in old)
            for index, row in enumerate(block.batches):
                batch = block.batch(index)
                assert [getattr(batch, name) for name in FIELDS] == [row[name].item() for name in FIELDS]
                got.batches.append((batch, None))
            markers.extend(block.batches["marker"].tolist())
            for unpacked in unpack(block):
                got.records.extend(records(block, unpacked))
    except CorruptLogError as error:
        got.error = error
    return got, markers


def records(block: Block, unpacked: Unpacked) -> Iterator[Record]:
    """Turn columns into the reference's records; headers are held against it in test_arrow."""
    data = unpacked.data.tobytes()
    for row in range(len(unpacked.offset)):
        places = ((unpacked.key_at, unpacked.key_size), (unpacked.value_at, unpacked.value_size))
        sizes = ((int(at[row]), int(size[row])) for at, size in places)
        key, value = (None if size < 0 else data[at : at + size] for at, size in sizes)
        batch = block.batches[unpacked.batch[row]]
        offset = int(unpacked.offset[row])
        assert batch["base_offset"] <= offset <= batch["last_offset"]
        headers = (("", None),) * int(unpacked.header_count[row])
        yield Record(offset, int(unpacked.timestamp_ms[row]), key, value, headers, int(unpacked.attributes[row]))


def assert_same(data: bytes, block_bytes: int = 1 << 16, *, verify_crc: bool = True) -> None:
    expected = read_by_reference(data, verify_crc=verify_crc)
    got, markers = read(data, block_bytes, verify_crc=verify_crc)
    if expected.error is None:
        assert got.error is None
    else:
        assert got.error is not None
        assert (str(got.error), got.error.cut) == (str(expected.error), expected.error.cut)
        assert (got.error.source, got.error.position) == (SOURCE, expected.error.position)
    assert got.records == [replace(one, headers=(("", None),) * len(one.headers)) for one in expected.records]
    # The batch at fault is given by one reader or the other, and a block's other batches before its records are read.
    sound = [
        (batch, outcome)
        for batch, outcome in expected.batches
        if expected.error is None or batch.position < expected.error.position
    ]
    assert [batch for batch, _ in got.batches[: len(sound)]] == [batch for batch, _ in sound]
    assert markers[: len(sound)] == [MARKERS.get(outcome.type if outcome else None, 2) for _, outcome in sound]
    if expected.error is None:
        assert len(got.batches) == len(sound)
        assert got.old == expected.old
