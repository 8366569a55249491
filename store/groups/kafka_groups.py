"""A group of Kafka's clients as it is stored: its members in one record, and what they committed in rows.

The record is written before an answer that depends on it. A row of `group_member` says when a member was heard last,
and which round it takes part in. A row of `group_segment` that never moved is a partition without a committed offset.
`eventproc/groups/` decides what happens in a group. Source: docs/design/kafka-groups.md.
"""

from __future__ import annotations

from eventproc.store.database import Tx, Watch
from eventproc.store.groups.kafka_members import (
    KAFKA_MEMBERS,
    KAFKA_NOTES,
    CommitNote,
    note_key,
)
from eventproc.store.groups.records import GROUP, KAFKA, channel_of
from eventproc.store.groups.rows import SegmentKey, segment_rows, write_heartbeats
from eventproc.store.model.kafka_rounds import KafkaMembers, give_time
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text, progress_text
from eventproc.store.records import Versioned, create, delete, find, get, keys, replace, version_of


def find_members(
    tx: Tx, group: str, known: Versioned[KafkaMembers] | None = None
) -> Versioned[KafkaMembers] | None:
    """Return the members of a group; None if it never had some. known: those of this group that were found before."""
    if known is not None and version_of(tx, KAFKA_MEMBERS, group) == known.version:
        return known
    return find(tx, KAFKA_MEMBERS, group)


def write_members(tx: Tx, group: str, before: Versioned[KafkaMembers] | None, after: KafkaMembers) -> None:
    """Write the members, and wake those that wait for a round."""
    if before is None:
        create(tx, KAFKA_MEMBERS, group, after)
    else:
        replace(tx, KAFKA_MEMBERS, before, after)
    tx.wake(channel_of(group))


def watch_members(group: str) -> Watch:
    """Return the subscription to the rounds of a group. Each wake-up costs one look-up."""
    return Watch(channel_of(group), lambda tx: version_of(tx, KAFKA_MEMBERS, group))


def begin_epoch(tx: Tx, group: str, epoch: int) -> None:
    """Let all members take part in a round, and count as heard now."""
    tx.execute(
        "UPDATE group_member SET epoch = ?, seen_ms = ? WHERE group_name = ?", (epoch, tx.monotonic_ms, group)
    )


def hear_all(tx: Tx, scope: str) -> None:
    """Count the members of all groups of Kafka's clients in a scope as heard now, and give rounds their full time."""
    for name in keys(tx, KAFKA_MEMBERS, prefix=f"{scope}/"):
        write_heartbeats(tx, name)
        found = get(tx, KAFKA_MEMBERS, name)
        if (after := give_time(found.value, tx.monotonic_ms)) is not found.value:
            write_members(tx, name, found, after)


def is_kafka_group(tx: Tx, name: str) -> bool | None:
    """Return whether a group is one of Kafka's clients; None without such a group."""
    found = find(tx, GROUP, name)
    return None if found is None else found.value.kind == KAFKA


def commit_progress(tx: Tx, group: str, key: SegmentKey, progress: Progress) -> bool:
    """Store how far a group without owners to fence has come; return False if it has no row of the segment."""
    done = tx.execute(
        'UPDATE group_segment SET "offset" = ?, number = ?, finished = ?, moved_ms = ?'
        " WHERE group_name = ? AND stream_id = ? AND segment = ?",
        (progress.offset, progress.number, progress_text(progress), tx.now_ms, group, *key),
    )
    return done.rowcount == 1


def committed_progress(tx: Tx, group: str) -> dict[SegmentKey, Progress]:
    """Return how far the group has come in each segment in which something was committed, sorted. One query."""
    found = segment_rows(tx, group, "finished", "moved_ms IS NOT NULL")
    return {key: progress_of_text(text, group, *key) for key, (text,) in found}


def read_notes(tx: Tx, group: str) -> dict[SegmentKey, str]:
    """Return what was said in the last commits, of the segments for which something was. One look-up for each."""
    found = (get(tx, KAFKA_NOTES, each).value for each in keys(tx, KAFKA_NOTES, prefix=f"{group}/"))
    return {note.key: note.text for note in found}


def write_note(tx: Tx, group: str, key: SegmentKey, text: str) -> None:
    """Note what was said in a commit; nothing with an empty text. One look-up if nothing changes."""
    name, note = note_key(group, key), CommitNote(key, text)
    found = find(tx, KAFKA_NOTES, name)
    if found is None:
        if text:
            create(tx, KAFKA_NOTES, name, note)
    elif not text:
        delete(tx, KAFKA_NOTES, found)
    elif found.value != note:
        replace(tx, KAFKA_NOTES, found, note)
