"""What Pravega's controller knows of a reader group, whose readers agree among themselves on the rest.

They do so in a log that only they can read (`client_logs`). The controller has the group's configuration, and learns
where the group stands as far as it subscribes to streams: from the cuts up to which they may be truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.client_logs import GROUP_LOG_PREFIX, client_log_name, delete_client_log
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import RecordKind, delete_all

Release: TypeAlias = Literal["none", "manual", "automatic"]
"""Who says up to where a stream may be truncated: nobody, the user, or the last checkpoint of the group."""


@attrs.frozen(kw_only=True)
class PravegaGroup:
    """The configuration of a reader group of Pravega's clients, as they gave it.

    group_id: a UUID, which a group that is created again does not share. generation: 0, and one more with each update.
    starts, ends: where it reads, by the name of the stream; {} for the head, and for no end.
    """

    group_id: str
    generation: int
    refresh_ms: int
    checkpoint_ms: int
    checkpoints_max: int
    release: Release
    rollover_bytes: int
    starts: Mapping[str, Mapping[SegmentId, int]]
    ends: Mapping[str, Mapping[SegmentId, int]]


PRAVEGA_GROUP: Final = RecordKind(name="pravega group", value=PravegaGroup)


def group_log_name(group: str) -> str:
    """Return the name of the log in which the readers of a group agree."""
    return client_log_name(GROUP_LOG_PREFIX, group)


def delete_pravega_records(tx: Tx, group: str) -> None:
    """Delete what a group of Pravega's clients has besides its record and rows: its configuration and its log."""
    delete_all(tx, PRAVEGA_GROUP, [group])
    delete_client_log(tx, group_log_name(group))
