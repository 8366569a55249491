"""Reader groups: readers, in any number of processes, that share streams; each segment is one reader's at a time."""

from __future__ import annotations

from eventproc.groups.assignors import AssignableSegment, AssignmentInput, Assignor, Targets
from eventproc.groups.changes import (
    GroupUpdate,
    add_stream,
    ensure_group,
    list_groups,
    set_paused,
    verify_streams,
)
from eventproc.groups.describe import (
    GroupDescription,
    GroupInfo,
    MemberDescription,
    SegmentLag,
    SharedSegment,
    ShareGroupDescription,
    ShareHolder,
    describe_group,
    describe_share_group,
    group_info,
)
from eventproc.groups.membership import MemberOptions, Membership, join
from eventproc.groups.names import group_name, stream_names
from eventproc.groups.operations import GroupCheckpoint, ResetPreview, adopt_recreated_streams
from eventproc.groups.reader import GroupReader
from eventproc.groups.start_positions import GroupEnd, GroupResetEnd, GroupStart, check_start
from eventproc.groups.state import SegmentOwnership
from eventproc.groups.stored_state import folded_state
from eventproc.store.groups import (
    EQUAL,
    GROUP,
    PROCESSOR,
    READERS,
    SHARE,
    DeletedPolicy,
    GroupOptions,
    GroupRecord,
    GroupStream,
    RetainedPart,
    SegmentKey,
    TruncatedPolicy,
    delete_group,
    get_group,
    watch_group,
    watch_progress,
)

__all__ = [
    "EQUAL",
    "GROUP",
    "PROCESSOR",
    "READERS",
    "SHARE",
    "AssignableSegment",
    "AssignmentInput",
    "Assignor",
    "DeletedPolicy",
    "GroupCheckpoint",
    "GroupDescription",
    "GroupEnd",
    "GroupInfo",
    "GroupOptions",
    "GroupReader",
    "GroupRecord",
    "GroupResetEnd",
    "GroupStart",
    "GroupStream",
    "GroupUpdate",
    "MemberDescription",
    "MemberOptions",
    "Membership",
    "ResetPreview",
    "RetainedPart",
    "SegmentKey",
    "SegmentLag",
    "SegmentOwnership",
    "ShareGroupDescription",
    "ShareHolder",
    "SharedSegment",
    "Targets",
    "TruncatedPolicy",
    "add_stream",
    "adopt_recreated_streams",
    "check_start",
    "delete_group",
    "describe_group",
    "describe_share_group",
    "ensure_group",
    "folded_state",
    "get_group",
    "group_info",
    "group_name",
    "join",
    "list_groups",
    "set_paused",
    "stream_names",
    "verify_streams",
    "watch_group",
    "watch_progress",
]
