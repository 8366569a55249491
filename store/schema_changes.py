"""What was added to the tables of the first schema, by numbered migrations: the tables, the columns, and the rows.

A migration that was released never changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from eventproc.store.database import Tx
from eventproc.store.schema import run_script

ADDED_2 = """
-- Attributes of segments: numbers that Pravega's clients set under 16-byte ids.
CREATE TABLE IF NOT EXISTS attribute (
    stream_id INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    id BLOB NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (stream_id, segment, id)
) WITHOUT ROWID;

-- Outcomes of a policy that repeats its request each minute; of each stream and kind only the newest is kept.
CREATE INDEX IF NOT EXISTS request_repeated
ON request (target) WHERE origin = 'policy' AND kind = 'truncate' AND status != 'pending';
"""
"""What the second migration adds. A directory that was made while these were part of the first one has them already."""

ADDED_3 = """
-- What the caller of an id asked for, if the body was planned from it (JSON). NULL: the body says it.
ALTER TABLE request ADD COLUMN asked BLOB;
ALTER TABLE joined ADD COLUMN asked BLOB;
"""
"""What the third migration adds."""

ADDED_5 = """
-- Chunk files to be deleted: no row of `chunk` may name them any more. Readers with an older snapshot may still read
-- them for a while after `since_ms` (wall).
CREATE TABLE unused_file (
    path TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""What the fifth migration adds."""

ADDED_7 = """
-- The catalog of the tables, in the layout of Iceberg's SQL catalogs, so that other engines open it.
CREATE TABLE iceberg_tables (
    catalog_name TEXT NOT NULL,
    table_namespace TEXT NOT NULL,
    table_name TEXT NOT NULL,
    metadata_location TEXT,
    previous_metadata_location TEXT,
    iceberg_type TEXT,
    PRIMARY KEY (catalog_name, table_namespace, table_name)
) WITHOUT ROWID;
CREATE TABLE iceberg_namespace_properties (
    catalog_name TEXT NOT NULL,
    namespace TEXT NOT NULL,
    property_key TEXT NOT NULL,
    property_value TEXT NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
) WITHOUT ROWID;
INSERT INTO iceberg_namespace_properties VALUES ('eventproc', 'tables', 'exists', 'true');
"""
"""What the seventh migration adds."""

ADDED_8 = """
-- Where a worker runs, and its last sign of life (wall). NULL: an older version registered it.
ALTER TABLE ingest_worker ADD COLUMN machine TEXT;
ALTER TABLE ingest_worker ADD COLUMN pid INTEGER;
ALTER TABLE ingest_worker ADD COLUMN seen_ms INTEGER;
"""
"""What the eighth migration adds."""

ADDED_9 = """
-- What tasks have logged, the newest lines of each. They go with the row of the task, and after a week.
CREATE TABLE ingest_log (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX ingest_log_of ON ingest_log (task, id);
CREATE INDEX ingest_log_age ON ingest_log (at_ms);
"""
"""What the ninth migration adds."""

ADDED_10 = """
-- Events that are appended to their streams when they are due (wall). NULL: never, for the reason in `failure`.
CREATE TABLE delayed_event (
    -- Orders those that are due at the same time as they were written.
    id INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    stream_id INTEGER NOT NULL,
    stream TEXT NOT NULL,
    due_ms INTEGER,
    -- Of payload, key and headers: bounds a transaction before any of them is read.
    size_bytes INTEGER NOT NULL,
    payload BLOB NOT NULL,
    -- In UTF-8, because a server takes no text with NUL.
    routing_key BLOB,
    event_time INTEGER,
    -- A JSON object, or NULL.
    headers TEXT,
    -- Of the topic, or NULL if its strategy chooses.
    partition_number INTEGER,
    failure TEXT,
    -- The schedule of which it is the next tick, or NULL.
    schedule TEXT
);
CREATE INDEX delayed_event_due ON delayed_event (due_ms, id);
CREATE UNIQUE INDEX delayed_event_schedule ON delayed_event (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX delayed_event_of ON delayed_event (stream_id, event_id);
"""
"""What the tenth migration adds."""

ADDED_11 = """
-- Where the first event of an id lies, which no other event of the stream may have until `until_ms` (wall). `delayed`:
-- the event_id of the delayed event that has the id and is not appended yet; then all but the key is NULL.
CREATE TABLE event_id (
    stream_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    segment INTEGER,
    "offset" INTEGER,
    number INTEGER,
    time_ms INTEGER,
    until_ms INTEGER,
    delayed TEXT,
    PRIMARY KEY (stream_id, id)
) WITHOUT ROWID;
-- Finds what the sweep forgets.
CREATE INDEX event_id_until ON event_id (until_ms) WHERE until_ms IS NOT NULL;
-- Finds a delayed event by its id.
CREATE INDEX event_id_waiting ON event_id (id) WHERE delayed IS NOT NULL;
"""
"""What the eleventh migration adds."""

ADDED_12 = """
-- A range that nobody holds is available from `until_ms` on (wall).
ALTER TABLE delivery ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
UPDATE delivery SET until_ms = 0 WHERE session IS NULL;
DROP INDEX delivery_available;
CREATE INDEX delivery_available ON delivery (group_name, priority, until_ms) WHERE session IS NULL;
CREATE INDEX delivery_held ON delivery (group_name, session) WHERE session IS NOT NULL;
-- Streams whose events may have priorities, so that share groups look ahead in them.
CREATE TABLE prioritized_stream (stream_id INTEGER PRIMARY KEY);
-- When the next call of a worker with a limit may begin, by the name that its event is counted under (wall, us).
CREATE TABLE rate_limit (
    group_name TEXT NOT NULL,
    key BLOB NOT NULL,
    free_us INTEGER NOT NULL,
    PRIMARY KEY (group_name, key)
) WITHOUT ROWID;
-- Jobs that were submitted with an id, so that their outcome can be asked for. `progress`: parts in a million.
CREATE TABLE job (
    -- Orders them as they were submitted.
    id INTEGER PRIMARY KEY,
    group_name TEXT NOT NULL,
    job_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    progress INTEGER,
    error TEXT,
    submitted_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    due_ms INTEGER,
    routing_key BLOB,
    payload BLOB NOT NULL,
    result BLOB
);
CREATE UNIQUE INDEX job_of ON job (group_name, job_id);
CREATE INDEX job_listed ON job (group_name, id);
CREATE INDEX job_ended ON job (changed_ms) WHERE state IN ('done', 'failed', 'cancelled');
CREATE INDEX job_cancelled ON job (group_name, changed_ms) WHERE state = 'cancelled';
"""
"""What the twelfth migration adds."""


ADDED_14 = """
-- What a processor keeps for a routing key of its stream. The key is in UTF-8, because a server takes no text with NUL.
-- `version`: that of the class of the value. `expires_ms` (wall). NULL: never.
CREATE TABLE key_state (
    stream_id INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (stream_id, group_name, key)
) WITHOUT ROWID;
-- Finds what the sweep forgets.
CREATE INDEX key_state_expires ON key_state (expires_ms) WHERE expires_ms IS NOT NULL;
"""
"""What the fourteenth migration adds."""

ADDED_15 = """
-- The highest event time of what is finished of a segment without a gap. NULL: none yet. See docs/design/event-time.md.
ALTER TABLE group_segment ADD COLUMN event_ms INTEGER;
-- How far event time has come for a processor with timers. It never falls.
CREATE TABLE watermark (
    stream_id INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    reached_ms INTEGER NOT NULL,
    PRIMARY KEY (stream_id, group_name)
) WITHOUT ROWID;
-- The event time at which the key is called, and its point in the key space, times 2**52. NULL: it has no timer.
ALTER TABLE key_state ADD COLUMN timer_ms INTEGER;
ALTER TABLE key_state ADD COLUMN key_point INTEGER;
-- Finds the timers that are due.
CREATE INDEX key_state_timer ON key_state (stream_id, group_name, timer_ms, key_point) WHERE timer_ms IS NOT NULL;
"""
"""What the fifteenth migration adds."""


def adding(script: str) -> Callable[[Tx], None]:
    """Return the step of a migration that runs the statements of `script`."""
    return partial(run_script, script=script)


def add_priorities(tx: Tx) -> None:
    """Add what the twelfth schema has and the eleventh one has not.

    `finished` of a share group becomes the first event that it has not taken in: its ranges say what is not finished.
    """
    run_script(tx, ADDED_12)
    for key, body in tx.execute("SELECT key, body FROM record WHERE kind = 'group' ORDER BY key").fetchall():
        if _kind_of(bytes(body)) != "share":
            continue
        rows = tx.execute(
            "SELECT stream_id, segment, finished FROM group_segment WHERE group_name = ? ORDER BY stream_id, segment",
            (key,),
        ).fetchall()
        for stream_id, segment, text in rows:
            where = (key, stream_id, segment)
            last = tx.execute(
                "SELECT high, end_offset FROM delivery WHERE group_name = ? AND stream_id = ? AND segment = ?"
                " ORDER BY low DESC LIMIT 1",
                where,
            ).fetchone()
            numbers = json.loads(text)
            ends = [numbers[:2], numbers[-2:], [0, 0] if last is None else [*last]]
            tx.execute(
                "UPDATE group_segment SET finished = ? WHERE group_name = ? AND stream_id = ? AND segment = ?",
                (json.dumps(max(ends), separators=(",", ":")), *where),
            )


def _kind_of(body: bytes) -> object:
    """Return the kind in the record of a group; None for a damaged one, which stays damaged."""
    try:
        return json.loads(body.partition(b":")[2]).get("kind")
    except (ValueError, AttributeError):  # not JSON, or another shape
        return None


def unite_groups(tx: Tx) -> None:
    """Let share groups have the records of groups, as in the fourth schema. A damaged one stays damaged."""
    for key, body in tx.execute("SELECT key, body FROM record WHERE kind = 'share group'").fetchall():
        number, _, text = bytes(body).partition(b":")
        try:
            plain = json.loads(text)
            after = {"kind": "share", "share": plain.pop("options", {}), **plain}
            body = b"%b:%b" % (number, json.dumps(after, separators=(",", ":")).encode())
        except (ValueError, AttributeError, TypeError):  # not JSON, or another shape
            pass
        tx.execute(
            "UPDATE record SET kind = 'group', body = ? WHERE kind = 'share group' AND key = ?", (body, key)
        )
