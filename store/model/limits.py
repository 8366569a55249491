"""Limits of names, keys, events and streams: the unit, the reason, and what a higher or lower value costs.

A limit on something that is stored (accepted events, created streams) may be raised later, and never lowered. The
assertions below state how the limits depend on each other.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES: Final = 8
"""Bytes in front of each payload: 4 of type, 4 of length, as Pravega frames its events."""

EVENT_BYTES_MAX: Final = 8 * 1024 * 1024 - FRAME_BYTES
"""Payload of one event, bytes; framed it is 8 MiB, the most one transaction of the database takes.

Higher: one event would delay every other writer for longer than a group commit should take (20 ms).
Lower: clients of Pravega, which have the same limit, could write events that are refused here.
"""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Framed bytes of events in one transaction of the database, beyond which it takes no further function; at 260 MB/s
for commits of medium size, about 30 ms. Higher: longer holds of the lock; lower: more commits."""

KEY_CHARS_MAX: Final = 1024
"""Routing key, characters (code points). Keys are stored with their events and held in memory by keyed
processors; higher costs memory per waiting key, lower refuses paths and URLs that people use as keys."""

HEADERS_COUNT_MAX: Final = 64
"""Headers of one event. They are parsed with every read that asks for them."""

HEADER_NAME_CHARS_MAX: Final = 255
"""Name of one header, characters."""

HEADERS_BYTES_MAX: Final = 64 * 1024
"""All headers of one event as stored, bytes. Larger values belong in the payload."""

ID_CHARS_MAX: Final = 200
"""Id of an event, characters. Ids are held by two indexes while a stream remembers them."""

PRIORITY_MAX: Final = 9
"""Highest priority of an event; 0 is the lowest, and the default. Higher: a share group makes more look-ups."""

SCOPE_NAME_CHARS_MAX: Final = 255
"""Name of a scope, characters: one component of a path on any file system, as exports use it."""

STREAM_NAME_CHARS_MAX: Final = 250
"""Name of a stream, characters; five fewer than a scope's leave room for a suffix in derived names."""

SEGMENTS_MAX: Final = 1024
"""Active segments of a stream. Each epoch record lists them all, about 60 bytes each, so the largest one
is read and decoded in about a millisecond. Higher: slower scales and cuts; lower: less parallelism,
although a directory has one writer whatever the number of segments."""

PARTITIONS_MAX: Final = SEGMENTS_MAX - 1
"""Partitions of a topic: one segment fewer than a stream may have, because the reserve is a segment too."""

SEGMENT_PART_BITS: Final = 31
"""Bits of a segment number, and of an epoch: both are non-negative 32-bit integers in Pravega's ids, and
an id fits SQLite's signed 64-bit integer."""

EVENT_TIME_MAX: Final = 2**63 - 1
"""Highest event time, in ms: what an integer of a database holds."""

POINT_BITS: Final = 52
"""Bits of a routing key's point; points are the multiples of 2**-52 in [0, 1), exact as doubles."""

KEY_RANGE_WIDTH_MIN: Final = 2.0**-POINT_BITS
"""Narrowest result of a split: a range this wide holds at least one point, a narrower one may hold none."""

FINISHED_RANGES_MAX: Final = 256
"""Finished ranges kept beyond the completed prefix of a segment; then the processor reads no further.

Higher: more events are in flight past a stuck one, and each durable step of progress writes more bytes
(about 20 per range). Lower: one slow key stops its whole segment sooner.
"""

DURATION_MS_MAX: Final = 2**53
"""Longest duration of an option that has no limit of its own, in ms: about 285,000 years. In microseconds, and added to
a time, it is still an int of 64 bits."""

LEASE_MS_MIN: Final = 1_000
"""Shortest lease of a transaction. Pravega's is 10 s; shorter ones suit tests and quick failovers. Below a second,
the timers of the host, which run once a second, would decide."""

LEASE_MS_MAX: Final = 600_000
"""Longest lease of a transaction. Higher: a transaction whose owner hangs keeps its bytes for longer."""

EXECUTION_PER_LEASE_MAX: Final = 1_000
"""Longest total time of one transaction, in leases, however often it is pinged."""

EXECUTION_MS_MAX: Final = 24 * 3600 * 1000
"""Longest time that a transaction with a lease stays open."""

ROUND_TRANSACTIONS: Final = 100
"""Transactions of one stream that one step commits. Higher: longer holds of the lock; lower: more commits."""

PREPARED_ROWS: Final = 2_000
"""Index rows that one step of a commit moves, at 10 us each. A larger transaction is packed into fewer rows first.
Higher: others wait longer for the write lock; lower: more transactions are packed, which costs a
read and also 10 us per row."""

PREPARED_INLINE_BYTES: Final = 4 * 2**20
"""Bytes inside index rows that one step of a commit moves: they are written again. More is packed first."""

PREPARE_BYTES: Final = 2**19
"""Bytes of events that one preparing step rewrites, up to one staging more: about 5 ms of work under the write
lock, while others wait. Higher: fewer steps, and longer waits (8 MiB took 20 to 100 ms)."""

PREPARE_ROWS: Final = 1_000
"""Index rows that one preparing step replaces, up to those of one staging more."""

PREPARATIONS_MAX: Final = 3
"""How often a commit is prepared again because of a scale; after that the next scale of the stream waits for it."""

TXN_MEMORY_MS: Final = 24 * 3600 * 1000
"""How long the result of a transaction is kept. Longer keeps more rows; shorter leaves slow callers without
an answer."""

TXNS_FINISHED_MAX: Final = 100_000
"""Results of committed transactions that are kept per stream, the latest ones, about 0.4 kB each. Higher: more disk;
lower: at thousands of transactions a second, a caller that repeats a commit late finds no result."""

TXNS_ABORTED_MAX: Final = 10_000
"""Results of aborted transactions that are kept per stream, the latest ones. Higher: more disk, and longer steps of
forgetting, at 1 ms per 10,000; lower: the owner of a transaction that was aborted finds no reason."""

TXN_MEMORY_MS_MIN: Final = 60_000
"""How long every result is kept, however many follow. Longer: more disk at thousands of transactions a second;
shorter: a process that was suspended while its commit ran may find no result."""

TXNS_LISTED_MAX: Final = 500
"""Transactions that one listing returns unless its caller chooses another number."""

LOCK_MS: Final = 30_000
"""Default time for which a consumer holds an event, as in Kafka. Higher: an event of a hung consumer waits longer.
Lower: a slow handler loses its events to others."""

DELIVERIES_MAX: Final = 5
"""Default number of deliveries after which an event becomes a dead letter, as in Kafka."""

GRACE_MS: Final = 30_000
"""How long the end of a running app waits for its handlers: longer than most take, and shorter than service managers
wait."""

SET_BACK_MS: Final = 1_000
"""By how much the wall clock must be set back so that what waits for a time follows it. Higher: it waits for as long.
Lower: less than what a process may be wrong about a server's clock."""

PAGE_ENTRIES: Final = 1000
"""Entries of a page unless the caller chooses another number. Higher: longer reads, and more memory for a page."""

assert EVENT_BYTES_MAX + FRAME_BYTES <= BATCH_BYTES_MAX, "the largest event fits one transaction"
assert EVENT_BYTES_MAX < 2**31, "the length in an event's frame is a signed 32-bit integer"
assert HEADERS_BYTES_MAX < EVENT_BYTES_MAX, "headers accompany a payload, they do not replace it"
assert HEADER_NAME_CHARS_MAX * HEADERS_COUNT_MAX < HEADERS_BYTES_MAX, "names leave room for values"
assert SEGMENTS_MAX * KEY_RANGE_WIDTH_MIN < 1.0, "the key space can be divided into that many ranges"
assert STREAM_NAME_CHARS_MAX <= SCOPE_NAME_CHARS_MAX
assert LEASE_MS_MIN <= LEASE_MS_MAX <= EXECUTION_MS_MAX
