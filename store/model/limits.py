"""Limits of names, keys, events and streams: the unit, the reason, and what a higher or lower value costs.

A limit that is persisted somewhere (an event that was accepted, a stream that was made) may be raised
later, never lowered. The assertions below say how the limits hang together.
"""

from __future__ import annotations

from typing import Final

EVENT_FRAME_BYTES: Final = 8
"""Bytes in front of each payload: 4 of type, 4 of length, as Pravega frames its events."""

EVENT_BYTES_MAX: Final = 8 * 1024 * 1024 - EVENT_FRAME_BYTES
"""Payload of one event, bytes; framed it is 8 MiB, the most one transaction of the database takes.

Higher: one event would hold up every other writer for longer than a group commit should take (20 ms).
Lower: Pravega's clients, which have the same limit, could write what we refuse.
"""

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
"""Framed bytes of events in one database transaction; at 260 MB/s for middling commits, some 30 ms."""

KEY_CHARS_MAX: Final = 1024
"""Routing key, characters (code points). Keys are stored with their events and held in memory by keyed
processors; higher costs memory per waiting key, lower refuses paths and URLs that people use as keys."""

HEADERS_COUNT_MAX: Final = 64
"""Headers of one event. They are parsed with every read that asks for them."""

HEADER_NAME_CHARS_MAX: Final = 255
"""Name of one header, characters."""

HEADERS_BYTES_MAX: Final = 64 * 1024
"""All headers of one event as stored, bytes. What is larger belongs into the payload."""

SCOPE_NAME_CHARS_MAX: Final = 255
"""Name of a scope, characters: one component of a path on any file system, as exports use it."""

STREAM_NAME_CHARS_MAX: Final = 250
"""Name of a stream, characters; five fewer than a scope's leave room for a suffix in derived names."""

SEGMENTS_MAX: Final = 1024
"""Active segments of a stream. Each epoch record lists them all, about 60 bytes each, so the largest one
is read and decoded in about a millisecond. Higher: slower scales and cuts; lower: less parallelism,
although a directory has one writer whatever the number of segments."""

SEGMENT_PART_BITS: Final = 31
"""Bits of a segment number, and of an epoch: both are non-negative 32-bit integers in Pravega's ids, and
an id fits SQLite's signed 64-bit integer."""

POSITION_BITS: Final = 52
"""Bits of a routing key's position; positions are the multiples of 2**-52 in [0, 1), exact as doubles."""

KEY_RANGE_WIDTH_MIN: Final = 2.0**-POSITION_BITS
"""Narrowest result of a split: a range this wide holds at least one position, a narrower one may hold none."""

FINISHED_RANGES_MAX: Final = 256
"""Finished ranges kept beyond the completed prefix of a segment; then the processor stops reading on.

Higher: more events are in flight past a stuck one, and each durable step of progress writes more bytes
(about 20 per range). Lower: one slow key stops its whole segment sooner.
"""

assert EVENT_BYTES_MAX + EVENT_FRAME_BYTES <= GROUP_BYTES_MAX, "the largest event fits one transaction"
assert EVENT_BYTES_MAX < 2**31, "the length in an event's frame is a signed 32-bit integer"
assert HEADERS_BYTES_MAX < EVENT_BYTES_MAX, "headers accompany a payload, they do not replace it"
assert HEADER_NAME_CHARS_MAX * HEADERS_COUNT_MAX < HEADERS_BYTES_MAX, "names leave room for values"
assert SEGMENTS_MAX * KEY_RANGE_WIDTH_MIN < 1.0, "the key space can be cut into that many ranges"
assert STREAM_NAME_CHARS_MAX <= SCOPE_NAME_CHARS_MAX
