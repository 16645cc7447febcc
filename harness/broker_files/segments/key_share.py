"""The part of a log that has some of its keys, for a log that is larger than the room for it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.broker_files.segments.batches import CODEC_MASK, HEADER, Batch, CorruptLogError, iter_entries
from harness.broker_files.segments.codecs import compress, decompress
from harness.broker_files.segments.encode import seal_batch

_ATTRIBUTES, _COUNT = 5, 12
"""Places in `HEADER`."""


@dataclass(frozen=True)
class KeyShare:
    """The keys whose hash is ``number`` modulo ``count``, a power of two; by default, all keys."""

    number: int = 0
    count: int = 1

    def halves(self) -> tuple["KeyShare", "KeyShare"]:
        """Return two shares with these keys."""
        return KeyShare(self.number, 2 * self.count), KeyShare(self.number + self.count, 2 * self.count)

    def batches_of(self, batches: memoryview, bound: int, *, source: str) -> bytes | memoryview:
        """Return complete batches without the records of other keys, as if a cleaner had removed these.

        The result keeps what the checkers need beyond records: control batches; the headers of transactional batches,
        of the first batch of each leader epoch and of the last batch; and every batch that ends at the ``bound``, an
        offset, or after it. If a batch cannot be read, the result keeps everything from there on, and the checkers
        report the damage.
        """
        if self.count == 1:
            return batches
        parts: list[bytes | memoryview] = []
        leader_epoch, end = None, 0
        try:
            for entry in iter_entries(batches, source=source):
                part: bytes | memoryview = batches[end : end + entry.size_bytes]
                if isinstance(entry, Batch) and not entry.is_control and entry.last_offset < bound:
                    is_last = end + entry.size_bytes == len(batches)
                    is_needed = entry.is_transactional or entry.leader_epoch != leader_epoch or is_last
                    count, part = self._records_of(entry, batches[end:])
                    leader_epoch = entry.leader_epoch
                    if not (count or is_needed):
                        part = b""
                parts.append(part)
                end += entry.size_bytes
        except (CorruptLogError, ValueError):
            parts.append(batches[end:])
        return b"".join(parts)

    def _records_of(self, batch: Batch, header: memoryview) -> tuple[int, bytes]:
        """Return the number of the batch's records with these keys, and the batch with only them. Raises ValueError."""
        from harness.broker_files.segments.kernels import copy_records_of_share  # noqa: PLC0415  (loads numba)

        records = np.frombuffer(bytearray(decompress(batch.codec, batch.payload)), np.uint8)
        out = np.empty_like(records)
        count, size_bytes = copy_records_of_share(records, batch.record_count, self.number, self.count, out)
        if count < 0:
            raise ValueError("a record that no broker writes")
        fields = list(HEADER.unpack_from(header))
        if not count:
            # A cleaner writes an emptied batch without a codec (``DefaultRecordBatch.writeEmptyHeader``).
            fields[_ATTRIBUTES] &= ~CODEC_MASK
        fields[_COUNT] = count
        return count, seal_batch(fields, compress(batch.codec, out[:size_bytes].tobytes()) if count else b"")


ALL_KEYS: Final = KeyShare()
