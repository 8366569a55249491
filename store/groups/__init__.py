"""What is durable of reader groups: a record each, and rows of their segments and members.

`eventproc/groups/` decides what happens in a group. The records lie here, below the workflows, because deleting a scope
deletes its groups.
"""

from __future__ import annotations

from eventproc.store.groups.records import (
    GROUP,
    GroupOptions,
    GroupRecord,
    GroupStream,
    TruncatedPolicy,
    group_names,
    last_generation,
    topic_of,
)
from eventproc.store.groups.rows import (
    SegmentKey,
    SegmentProgress,
    delete_group,
    delete_member,
    delete_segment_rows,
    insert_member,
    member_statuses,
    progress_by_segment,
    progress_of,
    progress_times,
    progress_topic,
    silent_members,
    watch_group,
    watch_progress,
    write_owner,
    write_segment,
    write_sign_of_life,
    write_status,
    write_waiting,
)

__all__ = [
    "GROUP",
    "GroupOptions",
    "GroupRecord",
    "GroupStream",
    "SegmentKey",
    "SegmentProgress",
    "TruncatedPolicy",
    "delete_group",
    "delete_member",
    "delete_segment_rows",
    "group_names",
    "insert_member",
    "last_generation",
    "member_statuses",
    "progress_by_segment",
    "progress_of",
    "progress_times",
    "progress_topic",
    "silent_members",
    "topic_of",
    "watch_group",
    "watch_progress",
    "write_owner",
    "write_segment",
    "write_sign_of_life",
    "write_status",
    "write_waiting",
]
