"""Audits copies in which every key of a big partition differs, and prints the verdict, its seconds and its memory.

Brokers 1 and 2 have deleted all keys and removed the tombstones; broker 3 missed that and still has every value.

    python bench/many_differences.py --keys 20000000
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from crc32c import crc32c
from peak import Peak
from segments_data import KEY_BYTES, START_MS, TOPIC, VALUE_BYTES, encode_records

from harness.broker_files.segments.batches import CRC_FROM, HEADER, LOG_OVERHEAD, MAGIC
from harness.judge.verdict import ANOMALY, EXIT_CODES

BATCH_RECORDS = 1_000
SEGMENT_BATCHES = 5_000
RECORD_BYTES = KEY_BYTES + VALUE_BYTES + 18


def encoded(first: int, records: int) -> bytes:
    """Encode one batch: the keys ``first`` and following, one each, at the offsets of the same numbers."""
    scratch = np.empty(HEADER.size + records * RECORD_BYTES, np.uint8)
    offsets = np.arange(first, first + records)
    end = encode_records(scratch, HEADER.size, first, START_MS, offsets, offsets, np.zeros(records, np.bool_))
    last_ms = START_MS + (first + records) // 8
    HEADER.pack_into(
        scratch.data, 0, first, end - LOG_OVERHEAD, 0, MAGIC, 0, 0, records - 1, START_MS, last_ms, -1, -1, -1, records
    )
    view = scratch.data[:end]
    view[CRC_FROM - 4 : CRC_FROM] = crc32c(view[CRC_FROM:]).to_bytes(4)
    return bytes(view)


def write_replica(folder: Path, keys: int, *, deleted: bool) -> None:
    """Write a log directory. The last record, beyond all keys, is on every replica."""
    partition = folder / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    first_batches = [] if deleted else range(0, keys, BATCH_RECORDS)
    for start in range(0, len(first_batches), SEGMENT_BATCHES):
        batches = first_batches[start : start + SEGMENT_BATCHES]
        with (partition / f"{batches[0]:020}.log").open("wb") as file:
            for first in batches:
                file.write(encoded(first, min(BATCH_RECORDS, keys - first)))
    end = 2 * keys
    (partition / f"{end:020}.log").write_bytes(encoded(end, 1))
    if deleted:
        (partition / f"{0:020}.log").write_bytes(b"")
    for name, offset in (("replication-offset", end + 1), ("recovery-point-offset", end + 1), ("cleaner-offset", end)):
        (folder / f"{name}-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {offset}\n")


@click.command()
@click.option("--keys", default=20_000_000, show_default=True)
def main(keys: int) -> None:
    """Write the copies and audit them once."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        for broker in (1, 2, 3):
            write_replica(Path(top) / str(broker), keys, deleted=broker != 3)  # noqa: PLR2004
        line = [sys.executable, "-m", "harness.cli.main", "audit", "disk", f"--topic={TOPIC}", "--format=json"]
        started_s = time.monotonic()
        process = subprocess.Popen(
            [*line, *(f"--broker={broker}={top}/{broker}" for broker in (1, 2, 3))], stdout=subprocess.PIPE, text=True
        )
        peak = Peak(process.pid)
        out, _ = process.communicate()
        verdict = json.loads(out)
        print(f"exit code {process.returncode}, {len(verdict['findings'])} findings in the verdict")
        print(f"{verdict['verdict']}: {verdict['reason'][:300]}")
        print(f"{time.monotonic() - started_s:.0f} s, {peak.stop_gib():.2f} GiB")
        if process.returncode != EXIT_CODES[ANOMALY]:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
