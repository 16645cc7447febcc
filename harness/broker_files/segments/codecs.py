"""Record compression: the five codecs of a magic-2 batch, with a limit of the unpacked size."""

import mmap
from typing import Final, Literal, TypeAlias, get_args

import cramjam

Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
"""Codecs by bits 0-2 of the batch attributes (CompressionType); higher numbers are not assigned."""

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""A larger batch is a decompression bomb, as no broker accepts batches of nearly this size."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = len(_XERIAL_MAGIC) + 8  # then version and oldest compatible version, an int32 each


def decompress(codec: Codec, payload: memoryview) -> bytes:
    """Unpack a batch's records. Raises ``ValueError`` if it is malformed or exceeds ``MAX_DECOMPRESSED_BYTES``."""
    if codec == "none":
        return payload.tobytes()
    # The size of a stream is unknown, and the library fails if the buffer is too small. Only the written pages of a
    # private anonymous map take memory.
    out = memoryview(mmap.mmap(-1, MAX_DECOMPRESSED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return out[: decompress_into(codec, payload, out)].tobytes()


def decompress_into(codec: Codec, payload: memoryview, out: memoryview) -> int:
    """Unpack into ``out``, of ``MAX_DECOMPRESSED_BYTES``; return the size in bytes. Raises as ``decompress`` does."""
    if codec == "none":
        out[: len(payload)] = payload
        return len(payload)
    unpack = _decompress_snappy if codec == "snappy" else getattr(cramjam, codec).decompress_into
    try:
        return int(unpack(payload, out))
    except cramjam.DecompressionError as error:
        raise ValueError(f"{codec} does not unpack within {MAX_DECOMPRESSED_BYTES} bytes: {error}") from error


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress as librdkafka does: to a gzip member, a raw snappy block, an lz4 frame or a zstd frame."""
    if codec == "none":
        return data
    return bytes(cramjam.snappy.compress_raw(data) if codec == "snappy" else getattr(cramjam, codec).compress(data))


def _decompress_snappy(payload: memoryview, out: memoryview) -> int:
    """Unpack one raw block (from librdkafka) or blocks in the xerial framing of snappy-java."""
    if payload[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(payload, out)
    written, position = 0, _XERIAL_HEADER_BYTES
    while position < len(payload):
        start = position + 4
        available = len(payload) - start
        if available < 0:
            raise ValueError("snappy stream ends inside a block length")
        size = int.from_bytes(payload[position:start], signed=True)
        if not 0 <= size <= available:
            raise ValueError(f"snappy block announces {size} bytes, {available} are left")
        position = start + size
        written += _snappy_block(payload[start:position], out[written:])
    return written


def _snappy_block(block: memoryview, out: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > len(out):
        raise ValueError(f"snappy announces more than {MAX_DECOMPRESSED_BYTES} bytes")
    cramjam.snappy.decompress_raw_into(block, out[:size])
    return size
