"""The records of a batch, decompressed into bounded memory: a small batch may stand for gigabytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from eventproc.server.kafka.kafka_errors import KafkaCode, KafkaRefusal
from eventproc.store.model.limits import BATCH_BYTES_MAX

RECORDS_BYTES_MAX: Final = BATCH_BYTES_MAX
"""Bytes of the records of a batch: what a transaction of the store takes."""

_XERIAL_HEAD: Final = b"\x82SNAPPY\0"
_XERIAL_HEAD_BYTES: Final = 16
"""Java's clients write blocks of snappy behind a head of this size."""

_BLOCK_LENGTH: Final = struct.Struct(">i")

_NO_ROOM: Final = "whole buffer"
"""What cramjam says when the room does not suffice."""


class Decompressor:
    """Decompresses for one server, whose event loop calls it; it keeps one buffer of RECORDS_BYTES_MAX."""

    def __init__(self) -> None:
        self._room = bytearray()

    def decompress(self, data: bytes | memoryview, codec: int, bytes_max: int) -> bytes:
        """Return the records of a batch. Raises KafkaRefusal for what is too large or cannot be decompressed."""
        if bytes_max <= 0:
            raise _too_large()
        try:
            match codec:  # the numbers of the protocol
                case 0:
                    found = bytes(data)
                case 1:
                    found = _gunzip(data)
                case 2:
                    found = self._unsnap(bytes(data))
                case 3:
                    found = self._into(cramjam.lz4.decompress_into, data)
                case 4:
                    found = self._into(cramjam.zstd.decompress_into, data)
                case _:
                    raise _corrupt(f"compression {codec} is unknown")
        except (cramjam.DecompressionError, zlib.error, struct.error) as why:
            if _NO_ROOM in str(why):
                raise _too_large() from None
            raise _corrupt(f"the records cannot be decompressed: {why}") from None
        if len(found) > bytes_max:
            raise _too_large()
        return found

    def _into(
        self, decompress: Callable[[bytes | memoryview, bytearray], int], data: bytes | memoryview
    ) -> bytes:
        if not self._room:
            self._room = bytearray(RECORDS_BYTES_MAX)
        count = decompress(data, self._room)
        return bytes(memoryview(self._room)[:count])

    def _unsnap(self, data: bytes) -> bytes:
        if not data.startswith(_XERIAL_HEAD):
            return _unsnap_block(data, RECORDS_BYTES_MAX)
        at, blocks, left = _XERIAL_HEAD_BYTES, [], RECORDS_BYTES_MAX
        while at < len(data):
            (length,) = _BLOCK_LENGTH.unpack_from(data, at)
            at += _BLOCK_LENGTH.size
            if not 0 <= length <= len(data) - at:
                raise _corrupt(f"a block of snappy has length {length}")
            blocks.append(_unsnap_block(data[at : at + length], left))
            at += length
            left -= len(blocks[-1])
        return b"".join(blocks)


def _unsnap_block(block: bytes, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise _too_large()
    return bytes(cramjam.snappy.decompress_raw(block))


def _gunzip(data: bytes | memoryview) -> bytes:
    inflating = zlib.decompressobj(wbits=31)  # with the head of gzip
    found = inflating.decompress(data, RECORDS_BYTES_MAX + 1)
    if not inflating.eof and len(found) <= RECORDS_BYTES_MAX:
        raise _corrupt("the records end too early")
    return found


def _corrupt(text: str) -> KafkaRefusal:
    return KafkaRefusal(KafkaCode.CORRUPT_MESSAGE, text)


def _too_large() -> KafkaRefusal:
    text = f"a batch has {RECORDS_BYTES_MAX:,} bytes of records at most, and a request twice as many"
    return KafkaRefusal(KafkaCode.MESSAGE_TOO_LARGE, text)
