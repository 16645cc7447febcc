"""A digest of all batches of a log, equal for equal logs: observations contain it, and checkers compare it."""

from __future__ import annotations

DIGEST_MODULUS = 65_521


def batch_digest(base_offset: int, crc: int) -> int:
    """Return one batch's share of a log's digest, which is the exclusive or of all shares.

    Order does not matter and nothing overflows 63 bits, so SQL computes the same without sorting.
    """
    return crc * (base_offset % DIGEST_MODULUS + 1)
