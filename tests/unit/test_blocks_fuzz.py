"""Broken logs: both readers say the same, with file and position, in bounded memory and time."""

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from both_readers import assert_same
from sample_logs import random_log, sealed

from harness.broker_files.segments import codecs
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch

HEADER_BYTES = 61
HUGE = (-(2**31), -1, 0, 1, 2**31 - 1, 2**30, 300 << 20)
ADDRESS_SPACE_BYTES = 3 << 30
RESIDENT_BYTES = 1 << 30


def cut(rng: random.Random, log: list[bytes]) -> bytes:
    data = b"".join(log)
    return data[: rng.randrange(len(data))] + bytes(rng.choice((0, 0, 11, 100)))


def flipped(rng: random.Random, log: list[bytes]) -> bytes:
    data = bytearray(b"".join(log))
    for _ in range(rng.choice((1, 1, 5))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def flipped_and_sealed(rng: random.Random, log: list[bytes]) -> bytes:
    at = rng.randrange(len(log))
    entry = bytearray(log[at])
    for _ in range(rng.choice((1, 1, 4))):
        entry[rng.randrange(21, len(entry))] ^= 1 << rng.randrange(8)
    log[at] = sealed(bytes(entry))
    return b"".join(log)


def garbage_in_a_payload(rng: random.Random, log: list[bytes]) -> bytes:
    at = rng.randrange(len(log))
    log[at] = sealed(log[at][:HEADER_BYTES] + rng.randbytes(rng.choice((0, 1, 9, 60))))
    return b"".join(log)


def reordered(rng: random.Random, log: list[bytes]) -> bytes:
    one, other = rng.randrange(len(log)), rng.randrange(len(log))
    log[one], log[other] = log[other], log[one]
    return b"".join(log)


def duplicated(rng: random.Random, log: list[bytes]) -> bytes:
    at = rng.randrange(len(log))
    return b"".join([*log[:at], *log[max(0, at - 2) :]])


def spliced(rng: random.Random, log: list[bytes]) -> bytes:
    data = b"".join(log)
    first, second, third = sorted(rng.randrange(len(data)) for _ in range(3))
    return data[:first] + data[second:third] + data[first:]


def huge_numbers(rng: random.Random, log: list[bytes]) -> bytes:
    at, field = rng.randrange(len(log)), rng.choice((8, 23, 57))
    entry = log[at][:field] + struct.pack(">i", rng.choice(HUGE)) + log[at][field + 4 :]
    log[at] = entry if field == 8 else sealed(entry)
    return b"".join(log)


def huge_offsets(rng: random.Random, log: list[bytes]) -> bytes:
    offset = rng.choice((2**63 - 1, 2**63 - 2, -1, -(2**63)))
    return b"".join([*log, struct.pack(">q", offset) + encode_batch(base_offset=0, last_offset=2)[8:]])


BREAK: list[Callable[[random.Random, list[bytes]], bytes]] = [
    cut, flipped, flipped_and_sealed, garbage_in_a_payload, reordered, duplicated, spliced, huge_numbers, huge_offsets,
]  # fmt: skip


@pytest.mark.parametrize("broken", BREAK)
def test_the_verdict_is_the_references(broken: Callable[[random.Random, list[bytes]], bytes]) -> None:
    for seed in range(120):
        rng = random.Random(seed)  # noqa: S311
        data = broken(rng, random_log(rng, 8, old=True))
        assert_same(data, rng.choice((1, 300, 1 << 16)), verify_crc=rng.random() < 0.7)


def test_cut_anywhere() -> None:
    data = b"".join(random_log(random.Random(9), 4, old=True))  # noqa: S311
    for size in range(len(data)):
        assert_same(data[:size], 200)


def bomb(codec: codecs.Codec) -> bytes:
    packed = codecs.compress(codec, bytes(codecs.MAX_DECOMPRESSED_BYTES + 1))
    header = encode_batch(base_offset=0)[:21] + struct.pack(">h", codecs.CODECS.index(codec))
    return sealed(header + encode_batch(base_offset=0)[23:] + packed)


READ_ALL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.blocks import iter_blocks, unpack
errors = []
for path in sys.argv[2:]:
    try:
        with open(path, "rb") as file:
            for block in iter_blocks(file, source=path):
                for records in unpack(block):
                    pass
        errors.append(None)
    except CorruptLogError as error:
        errors.append(str(error))
with open("/proc/self/status") as file:
    (peak,) = (line for line in file if line.startswith("VmHWM:"))
print(json.dumps([errors, int(peak.split()[1]) * 1024]))
"""
"""Its peak is `VmHWM`: `ru_maxrss` begins with what the parent had at the fork."""


def test_bombs_and_huge_numbers_take_no_memory(tmp_path: Path) -> None:
    """Read in a separate process with a limited address space."""
    small = encode_batch(base_offset=0, records=[Record(0, 0, b"k", b"v")])
    counts = small[:23] + struct.pack(">i", 2**31 - 1) + small[27:57] + struct.pack(">i", 2**31 - 1) + small[61:]
    long_log = b"".join(
        encode_batch(base_offset=n * 100, records=[Record(n * 100, 0, b"k", bytes(200_000))], codec="zstd")
        for n in range(3000)
    )
    announced, longest = (small[:8] + struct.pack(">i", size) + small[12:] for size in (255 << 20, 2**31 - 1))
    bombs = dict.fromkeys(codecs.CODECS[1:], "does not unpack within")
    bombs["snappy"] = "announces more than"
    files = {
        "counts": (sealed(counts), "record 2 of 2147483647: the batch ends inside it"),
        "length": (longest, "impossible length 2147483647"),
        "announced": (announced, f"batch is cut: {len(small)} of 267386892 bytes"),
        "zeros": (small + bytes(50_000_000) + b"\1", "impossible length 0"),
        "long": (long_log, None),
        **{str(codec): (bomb(codec), f"{codec} {reason} 268435456 bytes") for codec, reason in bombs.items()},
    }
    for name, (data, _) in files.items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", READ_ALL, str(ADDRESS_SPACE_BYTES), *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    errors, peak_bytes = json.loads(done.stdout)
    for (name, (_, reason)), error in zip(files.items(), errors, strict=True):
        at = len(small) if name == "zeros" else 0
        assert error is None if reason is None else error.startswith(f"{tmp_path / name} at byte {at}: {reason}"), error
    assert peak_bytes < RESIDENT_BYTES, peak_bytes
