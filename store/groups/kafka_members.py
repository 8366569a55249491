"""The records of a group of Kafka's clients: its members, and what they said in commits."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.model.ids import SegmentId
from eventproc.store.model.kafka_rounds import KafkaMembers
from eventproc.store.records import RecordKind


@attrs.frozen
class CommitNote:
    """What a member said when it committed in a segment, (stream id, segment)."""

    key: tuple[int, SegmentId]
    text: str


KAFKA_MEMBERS: Final = RecordKind(name="kafka members", value=KafkaMembers, immutable=True)
KAFKA_NOTES: Final = RecordKind(name="kafka note", value=CommitNote)


def note_key(group: str, key: tuple[int, SegmentId]) -> str:
    """Return the key of the record of what was said in the commit of a segment."""
    stream_id, segment = key
    return f"{group}/{stream_id:016d}/{segment:d}"


@attrs.frozen
class KafkaCommit:
    """What a client commits in a partition: the number of the next event to read, and what it says about that."""

    stream: str
    key: tuple[int, SegmentId]
    number: int
    note: str = ""


@attrs.frozen(kw_only=True)
class PendingCommits:
    """The commits of a transaction for one group. until_ms: when it ends at the latest, monotonic."""

    txn: str
    until_ms: int
    timeout_ms: int
    commits: tuple[KafkaCommit, ...]


KAFKA_PENDING: Final = RecordKind(name="kafka pending", value=PendingCommits)
