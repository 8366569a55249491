"""Events as columns: what a writer hands over, what a segment stores, what a reader gets back.

A batch of events is never a list of objects here. It is one list per column on the side of the caller
(`EventBlock`), and one buffer per column on the side of the database (`EncodedBlock`), so that a stored blob
becomes Arrow columns without a loop per event, and a batch costs a handful of calls whatever its size.

Framing: each event lies in the segment as Pravega frames it: a 4-byte big-endian type, 0, a 4-byte
big-endian length, the payload (architecture.md section 3). An offset counts these bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from struct import Struct
from typing import Final, NamedTuple

import attrs

from eventproc.store.model.limits import FRAME_BYTES

NO_TIME: Final = -(2**63)
"""Stored event time of an event that has none."""

Headers = Mapping[str, str]

_UINT: Final = Struct("@I")  # in the machine's own order, as arrays are
_DOUBLE: Final = Struct("@d")


class _FrameHeads(dict[int, bytes]):
    """Length of a payload -> its frame's head; payloads of a stream share few lengths."""

    def __missing__(self, length: int) -> bytes:
        head = length.to_bytes(FRAME_BYTES, "big")
        if len(self) < 65_536:
            self[length] = head
        return head


_FRAME_HEAD = _FrameHeads()


@attrs.define(eq=False)
class EventBlock:
    """Events in order, one list per column; a column that no event uses is None.

    payloads: n values of bytes. keys: n routing keys, None for an event without. positions: n routing
    positions in [0,1), NaN for an event without key. event_times: n user times in ms, or None.
    headers: n mappings or None. All present lists have the same length.
    """

    payloads: list[bytes]
    keys: list[str | None] | None = None
    positions: list[float] | None = None
    event_times: list[int | None] | None = None
    headers: list[Headers | None] | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def encode(self) -> EncodedBlock:
        """Return the columns as buffers. About 0.3 us per event of 100 bytes, 1.5 us for one alone."""
        if len(self.payloads) == 1:
            return self._encode_one()
        lengths = array("I", map(len, self.payloads))
        frames = chain.from_iterable(zip(map(_FRAME_HEAD.__getitem__, lengths), self.payloads, strict=True))
        return EncodedBlock(
            block=self,
            lengths=lengths,
            data=b"".join(frames),
            keys=None if self.keys is None else _encode_keys(self.keys),
        )

    def _encode_one(self) -> EncodedBlock:
        """Encode one event, as an awaited write does: without columns being made, and joined, for one value."""
        (payload,) = self.payloads
        key = None if self.keys is None else self.keys[0]
        text = b"" if key is None else key.encode()
        keys = None if key is None else KeyColumn(array("I", (len(text),)), text, None)
        return EncodedBlock(self, array("I", (len(payload),)), _FRAME_HEAD[len(payload)] + payload, keys)


@attrs.define(eq=False)
class EncodedBlock:
    """An `EventBlock` with its costly columns ready, so that little is left to do under the write lock."""

    block: EventBlock
    lengths: array[int]
    data: bytes
    keys: KeyColumn | None

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.lengths)

    @property
    def size_bytes(self) -> int:
        """Bytes that these events take in their segment."""
        return len(self.data)


@attrs.define(eq=False)
class KeyColumn:
    """UTF-8 keys: their byte lengths, their text, and one byte per event that is 0 where there is no key."""

    lengths: array[int]
    text: bytes
    present: bytes | None


class Columns(NamedTuple):
    """Columns as one blob stores them, in its order; None where no event has a value.

    ends: uint32, byte ends of the frames relative to the blob. keys: see `decode_keys`. positions:
    float64. times: int64 append times, None when all equal the extent's. event_times: int64 with
    NO_TIME. headers: JSON list. data: the frames.
    """

    ends: bytes
    keys: bytes | None
    positions: bytes | None
    times: bytes | None
    event_times: bytes | None
    headers: bytes | None
    data: bytes


def join_blocks(parts: Sequence[EncodedBlock], *, times: bytes | None = None) -> Columns:
    """Return the columns of `parts`, one after the other, as one blob stores them."""
    if len(parts) == 1:
        return _one_event(parts[0], times) if len(parts[0].lengths) == 1 else _join_one(parts[0], times)
    lengths = array("I", chain.from_iterable(part.lengths for part in parts))
    ends = array("I", accumulate(map(FRAME_BYTES.__add__, lengths)))
    blocks = [part.block for part in parts]
    return Columns(
        ends=ends.tobytes(),
        keys=_join_keys(parts),
        positions=_join_positions(blocks),
        times=times,
        event_times=_join_event_times(blocks),
        headers=_join_headers(blocks),
        data=b"".join([part.data for part in parts]),
    )


def _join_one(part: EncodedBlock, times: bytes | None) -> Columns:
    """Return the columns of one part, which nothing has to be joined for."""
    block, keys = part.block, part.keys
    return Columns(
        ends=array("I", accumulate(map(FRAME_BYTES.__add__, part.lengths))).tobytes(),
        keys=None if keys is None else _pack_keys(keys.lengths, keys.present, (keys.text,)),
        positions=None if block.positions is None else array("d", block.positions).tobytes(),
        times=times,
        event_times=None if block.event_times is None else _join_event_times((block,)),
        headers=None if block.headers is None else _join_headers((block,)),
        data=part.data,
    )


def _one_event(part: EncodedBlock, times: bytes | None) -> Columns:
    """Return the columns of one event, as an awaited write makes them: packed, without lists and arrays of one."""
    block, keys = part.block, part.keys
    assert keys is None or keys.present is None, "one event without a key has no column of keys"
    return Columns(
        _UINT.pack(len(part.data)),
        None if keys is None else b"".join((b"\0", _UINT.pack(len(keys.text)), keys.text)),
        None if block.positions is None else _DOUBLE.pack(block.positions[0]),
        times,
        None if block.event_times is None else _join_event_times((block,)),
        None if block.headers is None else _join_headers((block,)),
        part.data,
    )


def _encode_keys(keys: Sequence[str | None]) -> KeyColumn:
    present = None
    if None in keys:
        present = bytes(key is not None for key in keys)
        keys = [key or "" for key in keys]
    texts: Sequence[str] = keys  # type: ignore[assignment]  # the Nones are gone
    joined = "".join(texts)
    if joined.isascii():
        return KeyColumn(array("I", map(len, texts)), joined.encode("ascii"), present)
    encoded = [text.encode() for text in texts]
    return KeyColumn(array("I", map(len, encoded)), b"".join(encoded), present)


def _join_keys(parts: Sequence[EncodedBlock]) -> bytes | None:
    columns = [part.keys for part in parts]
    if all(column is None for column in columns):
        return None
    lengths, texts, present = array("I"), [], []
    all_present = True
    for part, column in zip(parts, columns, strict=True):
        if column is None:
            lengths.frombytes(bytes(4 * part.count))
            present.append(bytes(part.count))
            all_present = False
        else:
            lengths.extend(column.lengths)
            texts.append(column.text)
            present.append(column.present or b"\1" * part.count)
            all_present = all_present and column.present is None
    return _pack_keys(lengths, None if all_present else b"".join(present), texts)


def _pack_keys(lengths: array[int], present: bytes | None, texts: Iterable[bytes]) -> bytes:
    ends = array("I", accumulate(lengths)).tobytes()
    if present is None:
        return b"".join((b"\0", ends, *texts))
    return b"".join((b"\1", ends, present, *texts))


def _join_positions(blocks: Sequence[EventBlock]) -> bytes | None:
    if all(block.positions is None for block in blocks):
        return None
    nan = float("nan")
    column = array("d")
    for block in blocks:
        column.extend(block.positions if block.positions is not None else [nan] * len(block))
    return column.tobytes()


def _join_event_times(blocks: Sequence[EventBlock]) -> bytes | None:
    if all(block.event_times is None for block in blocks):
        return None
    column = array("q")
    for block in blocks:
        times = block.event_times or [None] * len(block)
        column.extend([NO_TIME if time is None else time for time in times])
    return column.tobytes()


def _join_headers(blocks: Sequence[EventBlock]) -> bytes | None:
    if all(block.headers is None for block in blocks):
        return None
    rows: list[Headers | None] = []
    for block in blocks:
        rows.extend(block.headers if block.headers is not None else [None] * len(block))
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()


def decode_keys(column: bytes, count: int, first: int, last: int) -> list[str | None]:
    """Return keys [first, last) of a stored key column of `count` events.

    Layout: one byte, 1 when presence bytes follow; `count` uint32 ends; presence bytes, if any; UTF-8.
    """
    ends = array("I")
    ends.frombytes(column[1 : 1 + 4 * count])
    text_at = 1 + 4 * count + (count if column[0] else 0)
    begin = ends[first - 1] if first else 0
    text = column[text_at + begin : text_at + ends[last - 1]]
    ends = ends[first:last]
    starts = chain((begin,), ends)
    keys: list[str | None]
    if text.isascii():
        string = text.decode("ascii")
        keys = [string[start - begin : end - begin] for start, end in zip(starts, ends, strict=False)]
    else:
        keys = [text[start - begin : end - begin].decode() for start, end in zip(starts, ends, strict=False)]
    if column[0]:
        present = column[1 + 4 * count + first : 1 + 4 * count + last]
        keys = [key if there else None for key, there in zip(keys, present, strict=True)]
    return keys
