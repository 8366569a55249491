"""The schema of the database: every table, and the reason for its shape.

What exists is changed by numbered migrations only (architecture.md section 1). A table is an index-organised
b-tree (WITHOUT ROWID) wherever rows are found by a natural key, because the cost of a small commit is the number of
b-trees that it touches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from eventproc.store.database import Tx

CONCURRENT_TABLES: Final = (
    "segment",
    "extent",
    "blob",
    "writer",
    "group_segment",
    "delayed_event",
    "event_id",
    "prioritized_stream",
    "key_state",
    "watermark",
)
"""What functions may change that a server commits beside others: rows with the ids of their own streams.

Of these tables they read no other rows either. They may read every other table, which only a function that is committed
alone may change. So it makes no difference whether they run one after the other.
"""

TABLES = """
-- One versioned value per row. Each room defines its own kinds (store/records).
CREATE TABLE record (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- One immutable row per epoch of a stream; `body` is the record of kind `epoch`. The index finds the epoch at a time
-- with one look-up, however long the history is.
CREATE TABLE epoch (
    stream_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (stream_id, number)
) WITHOUT ROWID;
CREATE INDEX epoch_time ON epoch (stream_id, created_ms);

-- The tags of streams, for lists by tag; `stream` is the full name. They are in the streams' records, too.
CREATE TABLE stream_tag (
    scope TEXT NOT NULL,
    tag TEXT NOT NULL,
    stream TEXT NOT NULL,
    PRIMARY KEY (scope, tag, stream)
) WITHOUT ROWID;

-- Numbers that only grow, such as the last stream id.
CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- One row per segment that may still be read. `head` is where readable bytes begin. The tail follows from the last
-- extent; if no extent is left, `base_*` holds its position and time. `sealed_length` is NULL while the segment accepts
-- appends; `sealed_epoch` is the first epoch without it. Extents that end at or before `freed` are deleted.
CREATE TABLE segment (
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    head_number INTEGER NOT NULL DEFAULT 0,
    freed INTEGER NOT NULL DEFAULT 0,
    base_offset INTEGER NOT NULL DEFAULT 0,
    base_number INTEGER NOT NULL DEFAULT 0,
    base_time INTEGER NOT NULL DEFAULT 0,
    sealed_length INTEGER,
    sealed_epoch INTEGER,
    PRIMARY KEY (stream_id, segment)
) WITHOUT ROWID;

-- Finds the segments that the reaper must visit. Appends do not touch it.
CREATE INDEX segment_to_free ON segment (stream_id, segment) WHERE freed < head;

-- A run of events of one segment. `place` is the blob that holds their columns, beginning at byte
-- `place_offset` of its data; NULL means that the columns are `inline`, for a small append.
CREATE TABLE extent (
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    first_number INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    place INTEGER,
    place_offset INTEGER NOT NULL DEFAULT 0,
    inline BLOB,
    PRIMARY KEY (stream_id, segment, start)
) WITHOUT ROWID;
-- Lets the reaper check that no extent refers to a blob. Small appends do not touch it.
CREATE INDEX extent_place ON extent (place) WHERE place IS NOT NULL;

-- Columns of the events of one or more extents of one stream. `data` is the last column, so that reading the others
-- does not load its pages. `checksum` is the CRC-32 of all columns. With a `chunk` (format 2) the columns are in that
-- file: `ends` is empty, `checksum` is NULL, and `data` holds the position in the file.
CREATE TABLE blob (
    id INTEGER PRIMARY KEY,
    stream_id INTEGER NOT NULL,
    format INTEGER NOT NULL,
    chunk INTEGER,
    checksum INTEGER,
    ends BLOB NOT NULL,
    keys BLOB,
    positions BLOB,
    times BLOB,
    event_times BLOB,
    headers BLOB,
    data BLOB NOT NULL
);
-- Lets the sweep check that no blob uses a file.
CREATE INDEX blob_chunk ON blob (chunk) WHERE chunk IS NOT NULL;

-- Arrow files in the long-term store. A file holds the events [start, start + length) of one segment, or `length` bytes
-- of events of several segments (`segment` is NULL), to which only blobs refer. `path` is relative to the folder;
-- `bytes` and `checksum` (CRC-32) are those of the file.
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,
    stream_id INTEGER NOT NULL,
    segment INTEGER,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    first_number INTEGER NOT NULL,
    count INTEGER NOT NULL,
    path TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX chunk_range ON chunk (stream_id, segment, start);
CREATE UNIQUE INDEX chunk_path ON chunk (path);

-- Ranges that a program outside the database reads and that must exist until `until_ms` (wall). `plan` identifies what
-- was planned; `ranges` is JSON: lists of [segment, start, end], each list to be read in order.
CREATE TABLE hold (
    stream_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    plan TEXT NOT NULL,
    ranges TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (stream_id, name)
) WITHOUT ROWID;

-- The last batch that each run of a Spark sink committed to a stream. Only the run with the highest `turn` of a
-- name may commit. `offsets` is JSON: where that batch ended in its sources, if known.
CREATE TABLE sink (
    stream_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    run TEXT NOT NULL,
    turn INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    offsets TEXT,
    PRIMARY KEY (stream_id, name, run)
) WITHOUT ROWID;

-- The last sequence of a named writer on a stream, and its time.
CREATE TABLE writer (
    stream_id INTEGER NOT NULL,
    writer TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (stream_id, writer)
) WITHOUT ROWID;

-- A transaction, kept for a day after its end. Unfinished ones (finished = 0) are adjacent, by stream, for seal and
-- the timers. `version` grows by one with each change. `lease_ms` is NULL if the transaction lasts as long as the
-- process of `instance`; `lease_until_ms` and `execution_until_ms` are monotonic ms of the boot. `position` is its
-- place in the order of commits, set by the decision, like `events`, `bytes` and `rows`: until then the last staged
-- row holds them. `prepared` counts its preparations. `appended` is JSON: [segment, offset, first number, count] for
-- each segment. `reason` is that of an abort; for a transaction that is decided to commit, the last failure of the
-- commit. A joint transaction has one row per stream, all with its id; `joint` is the group whose progress it moves, ''
-- if it moves none. It is NULL for a transaction of one stream.
CREATE TABLE txn (
    finished INTEGER NOT NULL,
    stream_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    stream TEXT NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    instance TEXT NOT NULL,
    lease_ms INTEGER,
    boot TEXT NOT NULL,
    lease_until_ms INTEGER,
    execution_until_ms INTEGER,
    position INTEGER,
    events INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    rows INTEGER NOT NULL DEFAULT 0,
    prepared INTEGER NOT NULL DEFAULT 0,
    appended TEXT,
    reason TEXT,
    finished_ms INTEGER,
    joint TEXT,
    PRIMARY KEY (finished, stream_id, id)
) WITHOUT ROWID;
-- The order of commits. Open transactions are not in it.
CREATE INDEX txn_position ON txn (stream_id, finished, position) WHERE position IS NOT NULL;
-- Aborted transactions, which have no position, for forgetting all but the latest ones. With `state`, so that counting
-- them reads only the index.
CREATE INDEX txn_aborted ON txn (stream_id, id, state) WHERE state = 'aborted';
-- The ends of leases, for the host's timers. A transaction that is committed directly is never in it.
CREATE INDEX txn_lease ON txn (boot, lease_until_ms, instance, version) WHERE state = 'open';
-- The rows of joint transactions, one per stream. No other transaction is in it.
CREATE INDEX txn_joint ON txn (id) WHERE joint IS NOT NULL;

-- Events of a transaction that are not visible yet. `seq` counts its stagings, `part` the segments of one staging.
-- `keyed` is 0 if no event has a key, 1 if some have, and 2 if the events belong to the key range of their segment,
-- even when it is sealed. `packed` is 1 if a commit has packed small rows. (writer, sequence) is the last identity in
-- it. `total_*` are the totals of the transaction up to this row, so that staging touches no other row.
CREATE TABLE staged (
    stream_id INTEGER NOT NULL,
    txn TEXT NOT NULL,
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    length INTEGER NOT NULL,
    count INTEGER NOT NULL,
    keyed INTEGER NOT NULL,
    packed INTEGER NOT NULL DEFAULT 0,
    writer TEXT,
    sequence INTEGER,
    total_events INTEGER NOT NULL DEFAULT 0,
    total_bytes INTEGER NOT NULL DEFAULT 0,
    total_rows INTEGER NOT NULL DEFAULT 0,
    place INTEGER,
    place_offset INTEGER NOT NULL DEFAULT 0,
    inline BLOB,
    PRIMARY KEY (stream_id, txn, seq, part)
) WITHOUT ROWID;
-- For the reaper, as for extents.
CREATE INDEX staged_place ON staged (place) WHERE place IS NOT NULL;

-- A request of a workflow: the intent while pending, the outcome afterwards. The deadline is (boot id, monotonic
-- ms). It bounds only the time until `started`, the workflow's first transaction. `origin` says who asked.
CREATE TABLE request (
    id TEXT PRIMARY KEY,
    target TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,
    status TEXT NOT NULL,
    error BLOB,
    created_ms INTEGER NOT NULL,
    finished_ms INTEGER,
    deadline_boot TEXT,
    deadline_ms INTEGER,
    started INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL DEFAULT 'person'
) WITHOUT ROWID;
-- At most one intent per (target, kind).
CREATE UNIQUE INDEX request_intent ON request (target, kind) WHERE status = 'pending';

-- The id of a request that joined an equal pending one. It finds that one as long as that one is kept.
CREATE TABLE joined (
    id TEXT PRIMARY KEY,
    request TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX joined_request ON joined (request);

-- Progress of a group on a segment that it has not processed to its end. `owner` is the reader that may update it,
-- fenced by `owner_epoch`, a generation of the group, which grows with each change of owner and is never reused.
-- `target` is the reader that will own it. `waiting` lists the unfinished predecessors (JSON; NULL: it may be read).
-- `moved_ms` is when progress was last stored. The system's own groups have no owner here.
CREATE TABLE group_segment (
    group_name TEXT NOT NULL,
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    number INTEGER NOT NULL,
    finished TEXT NOT NULL,
    owner TEXT,
    owner_epoch INTEGER NOT NULL DEFAULT 0,
    target TEXT,
    waiting TEXT,
    moved_ms INTEGER,
    PRIMARY KEY (group_name, stream_id, segment)
) WITHOUT ROWID;
-- Finds the groups of a stream, for retention by consumption. Progress does not touch it.
CREATE INDEX group_segment_stream ON group_segment (stream_id, group_name);

-- Readers that are members of a group. `epoch` is the generation in which the reader joined. `seen_ms` is its last sign
-- of life (monotonic), updated if the group has a lease. `status` is for display (JSON).
CREATE TABLE group_member (
    group_name TEXT NOT NULL,
    reader TEXT NOT NULL,
    instance TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    joined_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    status TEXT,
    PRIMARY KEY (group_name, reader)
) WITHOUT ROWID;

-- Events [low, high), bytes [start_offset, end_offset), of a segment that a share group delivered `count` times and has
-- not finished. `session` (one opening of a consumer) holds them until `until_ms`, monotonic ms of `boot`, or until
-- `instance` dies; NULL: they are available again. The progress of a share group is in `group_segment`.
CREATE TABLE delivery (
    group_name TEXT NOT NULL,
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    start_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    count INTEGER NOT NULL,
    session TEXT,
    consumer TEXT,
    instance TEXT,
    boot TEXT,
    until_ms INTEGER,
    PRIMARY KEY (group_name, stream_id, segment, low)
) WITHOUT ROWID;
-- Lets a waiting consumer of another process see that events became available again.
CREATE INDEX delivery_available ON delivery (group_name, count) WHERE session IS NULL;

-- Key-value tables of Pravega's clients. `tail` is the position of the next entry; positions are versions too.
-- `key_length` is that of every key, 0 for any.
CREATE TABLE ktable (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    tail INTEGER NOT NULL,
    key_length INTEGER NOT NULL
);

-- The latest entry of each key of a table.
CREATE TABLE kentry (
    tbl INTEGER NOT NULL,
    key BLOB NOT NULL,
    version INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tbl, key)
) WITHOUT ROWID;
-- The order in which the entries of a table were written.
CREATE UNIQUE INDEX kentry_order ON kentry (tbl, version);

-- The owner of work that only one instance may do. `owner_epoch` grows with each new owner.
CREATE TABLE owner (
    name TEXT PRIMARY KEY,
    instance TEXT NOT NULL,
    owner_epoch INTEGER NOT NULL
) WITHOUT ROWID;

-- Streams with bytes that can no longer be read: truncated (deleted = 0) or deleted (deleted = 1). `not_before_ms`
-- (wall): until then all remaining bytes are held.
CREATE TABLE reap (
    stream_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL DEFAULT 0
);

-- Specs of ingestion supervisors; rows are only added. `spec` is JSON; NULL: the supervisor was terminated.
CREATE TABLE supervisor (
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (id, version)
) WITHOUT ROWID;

-- What a supervisor remembers between two runs (JSON), and when its next run is due (wall). The row of a terminated
-- supervisor goes when its last task has ended.
CREATE TABLE supervisor_state (
    id TEXT PRIMARY KEY,
    memory TEXT NOT NULL,
    due_ms INTEGER NOT NULL
) WITHOUT ROWID;
-- The next run of all supervisors.
CREATE INDEX supervisor_due ON supervisor_state (due_ms);

-- The queue of a supervisor. An equal notice that waits already is not added.
CREATE TABLE supervisor_notice (
    id INTEGER PRIMARY KEY,
    supervisor TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX supervisor_notice_once ON supervisor_notice (supervisor, kind, body);

-- How far a supervisor's published rows go: the only truth. `number` is that of the event at `offset`. `closed`: the
-- segment is sealed and was published to its end. A row exists from the moment at which a group gets the segment.
CREATE TABLE ingest_offset (
    supervisor TEXT NOT NULL,
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    number INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (supervisor, stream_id, segment)
) WITHOUT ROWID;

-- The streams that a supervisor reads, each in the incarnation in which it found it first.
CREATE TABLE ingest_stream (
    supervisor TEXT NOT NULL,
    name TEXT NOT NULL,
    stream_id INTEGER NOT NULL,
    PRIMARY KEY (supervisor, name)
) WITHOUT ROWID;

-- Task groups that read (`active`) or publish (`pending`). `gid` counts from 0; `base` is unique and names the group's
-- sequences. `version` is that of the spec, `fingerprint` the hash of what its rows depend on. `starts` and `ends` are
-- JSON lists of [stream_id, segment, offset]; `ends` is NULL while active. `min_ms`, `max_ms`: times of accepted rows.
CREATE TABLE ingest_group (
    base TEXT PRIMARY KEY,
    supervisor TEXT NOT NULL,
    gid INTEGER NOT NULL,
    version INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    starts TEXT NOT NULL,
    ends TEXT,
    min_ms INTEGER,
    max_ms INTEGER,
    deadline_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX ingest_group_of ON ingest_group (supervisor, gid);

-- Tasks: the replicas of a group. `read` is how far sequence `n` was read, and `planned` the end of the slice that is
-- being read; both as `starts` above. `worker` is the instance that runs it. `seen_ms`: its last report. `counted` is 1
-- when the supervisor has seen the task's end.
CREATE TABLE ingest_task (
    id TEXT PRIMARY KEY,
    supervisor TEXT NOT NULL,
    base TEXT NOT NULL,
    replica INTEGER NOT NULL,
    state TEXT NOT NULL,
    worker TEXT,
    n INTEGER NOT NULL,
    read TEXT NOT NULL,
    planned TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    started_ms INTEGER,
    seen_ms INTEGER,
    finished_ms INTEGER,
    error TEXT,
    stats TEXT NOT NULL DEFAULT '{}',
    counted INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX ingest_task_of ON ingest_task (supervisor, base);
CREATE INDEX ingest_task_live ON ingest_task (state, created_ms) WHERE finished_ms IS NULL;

-- The sequences of a group: what is published together. `ends` is NULL while open. State: open, closed, published.
CREATE TABLE ingest_sequence (
    base TEXT NOT NULL,
    n INTEGER NOT NULL,
    starts TEXT NOT NULL,
    ends TEXT,
    state TEXT NOT NULL,
    PRIMARY KEY (base, n)
) WITHOUT ROWID;

-- Processes that run tasks, by instance. A worker is alive as long as the lock of its instance is held.
CREATE TABLE ingest_worker (
    instance TEXT PRIMARY KEY,
    slots INTEGER NOT NULL,
    started_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Files of tables: one row per Parquet file, of the interval [start_ms, end_ms). `unused_ms`: when the file
-- was replaced or dropped; NULL while it is used. `path` is relative to the folder of tables. `sequence` is "base/n" of
-- the publication.
CREATE TABLE published (
    id INTEGER PRIMARY KEY,
    supervisor TEXT NOT NULL,
    datasource TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    version TEXT NOT NULL,
    partition INTEGER NOT NULL,
    path TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    min_ms INTEGER NOT NULL,
    max_ms INTEGER NOT NULL,
    sequence TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    unused_ms INTEGER
);
CREATE INDEX published_interval ON published (datasource, start_ms);
"""

_POSTGRES_WORDS: Final = {
    "id INTEGER PRIMARY KEY": "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "INTEGER": "bigint",
    "BLOB": "bytea",
    "TEXT": 'text COLLATE "C"',  # compares bytes, as SQLite does
    "WITHOUT ROWID": "",
}
_POSTGRES_WORD: Final = re.compile("|".join(rf"\b{each}\b" for each in _POSTGRES_WORDS))


def create_tables(tx: Tx) -> None:
    """Create every table of the first schema in the transaction `tx`; the database must have none of them."""
    run_script(tx, TABLES)


def for_postgres(statement: str) -> str:
    """Return a statement that creates or alters tables or indexes, as PostgreSQL understands it.

    A column `id INTEGER PRIMARY KEY` becomes an identity, because SQLite numbers the rows of these tables.
    """
    return _POSTGRES_WORD.sub(lambda found: _POSTGRES_WORDS[found[0]], statement)


def advance_identities(tx: Tx, tables: Iterable[str]) -> None:
    """Let PostgreSQL number new rows of tables behind the highest id, after rows were inserted with ids."""
    for table in tables:
        tx.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} HAVING max(id) IS NOT NULL"
        )


def run_script(tx: Tx, script: str) -> None:
    """Run the statements of a script that creates or alters tables, in the transaction `tx`."""
    for statement in _statements(script):
        tx.execute(statement)


def _statements(script: str) -> list[str]:
    code = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    return [each.strip() for each in code.split(";") if each.strip()]
