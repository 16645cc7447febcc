"""The compiled reader gives the same results as the reference, on logs of brokers and on any other bytes."""

import io
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from both_readers import assert_same
from copied import segment_name
from sample_logs import SOURCE, random_log, read_by_reference, small_batch

from checkers.evidence.copies import READERS_OF_COPIES
from checkers.reduction.segments import ReplicaSegment, span_arrays
from harness.audit.key.log import KeyLog
from harness.broker_files.segments import blocks, codecs
from harness.broker_files.segments.batches import CorruptLogError, Record
from harness.broker_files.segments.blocks import iter_blocks, key_hashes, unpack
from harness.broker_files.segments.encode import encode_batch


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_the_reference(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    data = b"".join(random_log(rng, 40, old=True))
    assert read_by_reference(data).error is None
    for block_bytes in (1, 1000, 1 << 16, len(data)):
        assert_same(data, block_bytes)


@pytest.mark.parametrize("codec", codecs.CODECS)
def test_every_codec_in_parts_of_bounded_size(codec: codecs.Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_ROWS", 7)
    monkeypatch.setattr(blocks, "_UNPACKED_BYTES", 1000)
    data = b"".join(random_log(random.Random(5), 60, codecs=(codec,)))  # noqa: S311
    assert_same(data, 20_000)
    for block in iter_blocks(io.BytesIO(data), source=SOURCE):
        assert max(len(part.offset) for part in unpack(block)) == 7


def test_some_batches_only() -> None:
    log = [
        encode_batch(base_offset=n * 10, records=[Record(n * 10, 0, b"%d" % n, None)], codec=codec, is_control=n == 3)
        for n, codec in enumerate(codecs.CODECS)
    ]
    plain, mixed = b"".join([log[0], *(b"" for _ in log)]), b"".join(log[:3] + log[4:])
    (block,) = iter_blocks(io.BytesIO(mixed), source=SOURCE)
    mask = np.array([True, False, True, False])
    assert [part.offset.tolist() for part in unpack(block, mask)] == [[0, 20]]
    assert [part.batch.tolist() for part in unpack(block, np.array([1, 3]))] == [[1, 3]]
    assert [part.offset.tolist() for part in unpack(block, np.array([], np.int64))] == []
    (block,) = iter_blocks(io.BytesIO(plain), source=SOURCE)
    (part,) = unpack(block)
    assert part.data is block.data


def test_batches_larger_than_a_block() -> None:
    big = [Record(n, 0, b"k", b"\0" * 300_000) for n in range(4)]
    data = encode_batch(base_offset=0, records=big[:1]) + encode_batch(base_offset=1, records=big[1:])
    assert_same(data + random_log(random.Random(1), 1)[0][:3], 1000)  # noqa: S311
    sizes = [len(block.data) for block in iter_blocks(io.BytesIO(data), source=SOURCE, block_bytes=1000)]
    assert sizes == [300_000 + 61 + 12, 3 * (300_000 + 12) + 61]


def test_zero_tail() -> None:
    data = b"".join(random_log(random.Random(2), 5))  # noqa: S311
    for zeros in (0, 1, 11, 12, 16, 17, 61, 5000, 100_000):
        for end in (b"", b"\1"):
            for block_bytes in (100, len(data), len(data) + 14, 1 << 20):
                assert_same(data + bytes(zeros) + end, block_bytes)


def test_zeros_end_only_the_last_segment_of_a_log(tmp_path: Path) -> None:
    paths = [tmp_path / segment_name(base) for base in (0, 10)]
    for base, path in zip((0, 10), paths, strict=True):
        path.write_bytes(small_batch(base) + bytes(100))
    error = f"{paths[0]} at byte {len(small_batch(0))}: impossible length 0"
    with pytest.raises(CorruptLogError, match=error):
        list(READERS_OF_COPIES["entries"].rows(paths[0]))
    assert len(list(READERS_OF_COPIES["entries"].rows(paths[1]))) == 1
    with pytest.raises(CorruptLogError, match=error):
        KeyLog(b"k", 0).read(io.BytesIO(paths[0].read_bytes()), str(paths[0]))
    for path, problems in zip(paths, ([error], []), strict=True):
        segment = ReplicaSegment(
            place=("run", "t", 0), broker=1, path=path, txnindex=None, size_bytes=0, is_last=not problems,
            base_offset=0, log_start=0,
        )  # fmt: skip
        assert [part for part in span_arrays(segment) if isinstance(part, str)] == problems


def murmur_hash(key: bytes, multiplier: int = 0xC6A4A7935BD1E995, mask: int = 2**64 - 1) -> int:
    """Return MurmurHash64A with seed 42."""
    value = 42 ^ (len(key) * multiplier & mask)
    for at in range(0, len(key) - 7, 8):
        word = int.from_bytes(key[at : at + 8], "little") * multiplier & mask
        value = (value ^ ((word ^ word >> 47) * multiplier & mask)) * multiplier & mask
    if rest := key[len(key) // 8 * 8 :]:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 47) * multiplier & mask
    return value ^ value >> 47


def test_hashes_of_keys_of_every_size() -> None:
    keys = [None, *(bytes(range(n)) for n in range(40)), b"\xff" * 100]
    batch = encode_batch(base_offset=0, records=[Record(n, 0, key, b"v") for n, key in enumerate(keys)])
    (block,) = iter_blocks(io.BytesIO(batch), source=SOURCE)
    (part,) = unpack(block)
    assert key_hashes(part).tolist() == [42 if key is None else murmur_hash(key) for key in keys]


def test_modules_that_need_no_compiled_loops_do_not_import_numba() -> None:
    modules = "harness.spark.source, harness.broker_files.segments.arrow, harness.broker_files.segments.folder"
    subprocess.run([sys.executable, "-c", f"import sys, {modules}; sys.exit('numba' in sys.modules)"], check=True)


@pytest.mark.parametrize("chosen", [True, False])
def test_compiled_loops_are_kept_for_the_user(chosen: bool, tmp_path: Path) -> None:  # noqa: FBT001
    script = (
        "from harness.broker_files.segments import blocks; import io; list(blocks.iter_blocks(io.BytesIO(), source=''))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"COMPACTION_HARNESS_CACHE": str(tmp_path / "cache")}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "chosen")} if chosen else {}
    subprocess.run([sys.executable, "-c", script], env=environment, timeout=120, check=True)
    kept = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.nbc")}
    assert kept == {"chosen" if chosen else "cache"}
