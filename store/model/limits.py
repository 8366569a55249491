"""Limits of names, keys, events and streams: the unit, the reason, and what a higher or lower value costs.

A limit that is persisted somewhere (an event that was accepted, a stream that was made) may be raised
later, never lowered. The assertions below say how the limits hang together.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES: Final = 8
"""Bytes in front of each payload: 4 of type, 4 of length, as Pravega frames its events."""

EVENT_BYTES_MAX: Final = 8 * 1024 * 1024 - FRAME_BYTES
"""Payload of one event, bytes; framed it is 8 MiB, the most one transaction of the database takes.

Higher: one event would hold up every other writer for longer than a group commit should take (20 ms).
Lower: Pravega's clients, which have the same limit, could write what we refuse.
"""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Framed bytes of events in one transaction of the database, beyond which it takes no further function; at 260 MB/s
for middling commits, some 30 ms. Higher: longer holds of the lock; lower: more commits."""

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

LEASE_MS_MIN: Final = 1_000
"""Shortest lease of a transaction. Pravega's is 10 s; shorter ones suit tests and quick failovers, and below a second
the host's look at its timers, once a second, would be what decides."""

LEASE_MS_MAX: Final = 600_000
"""Longest lease of a transaction. Higher: one whose owner hangs keeps its bytes for longer."""

EXECUTION_PER_LEASE_MAX: Final = 1_000
"""Leases that one transaction may last in all, however often it is pinged."""

EXECUTION_MS_MAX: Final = 24 * 3600 * 1000
"""Longest time that a transaction with a lease stays open."""

ROUND_TRANSACTIONS: Final = 100
"""Transactions of one stream that one step commits. Higher: longer holds of the lock; lower: more commits."""

PREPARED_ROWS: Final = 2_000
"""Index rows that one step of a commit moves, at 10 us each. A transaction of more is packed into fewer first.
Higher: others wait longer for the write lock; lower: more transactions are packed, at 10 us a row too, and a read."""

PREPARED_INLINE_BYTES: Final = 4 * 2**20
"""Bytes inside index rows that one step of a commit moves: they are written again. More is packed first."""

PREPARE_BYTES: Final = 2**20
"""Bytes of events that one preparing step writes anew, give or take one staging: some 8 ms of work under the write
lock, which others wait for. Higher: fewer steps, and longer waits (8 MiB took 20 to 100 ms)."""

PREPARE_ROWS: Final = 1_000
"""Index rows that one preparing step replaces, give or take those of one staging."""

PREPARATIONS_MAX: Final = 3
"""Times that a commit is prepared again because a scale came between; then the stream's next scale waits for it."""

TXN_MEMORY_MS: Final = 24 * 3600 * 1000
"""How long it is known what became of a transaction. Longer keeps more rows; shorter leaves slower callers without
an answer."""

TXNS_LISTED_MAX: Final = 500
"""Transactions that one listing returns."""

assert EVENT_BYTES_MAX + FRAME_BYTES <= BATCH_BYTES_MAX, "the largest event fits one transaction"
assert EVENT_BYTES_MAX < 2**31, "the length in an event's frame is a signed 32-bit integer"
assert HEADERS_BYTES_MAX < EVENT_BYTES_MAX, "headers accompany a payload, they do not replace it"
assert HEADER_NAME_CHARS_MAX * HEADERS_COUNT_MAX < HEADERS_BYTES_MAX, "names leave room for values"
assert SEGMENTS_MAX * KEY_RANGE_WIDTH_MIN < 1.0, "the key space can be cut into that many ranges"
assert STREAM_NAME_CHARS_MAX <= SCOPE_NAME_CHARS_MAX
assert LEASE_MS_MIN <= LEASE_MS_MAX <= EXECUTION_MS_MAX
