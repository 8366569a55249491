"""Reader groups: readers, in any number of processes, that share streams; each segment is one reader's at a time."""

from __future__ import annotations

from eventproc.groups.changes import (
    PROCESSOR,
    READERS,
    add_stream,
    ensure_group,
    get_group,
    list_groups,
    set_paused,
    verify_streams,
)
from eventproc.groups.describe import (
    GroupDescription,
    GroupInfo,
    MemberDescription,
    SegmentLag,
    describe_group,
    group_info,
    list_group_infos,
)
from eventproc.groups.group import ReaderGroup
from eventproc.groups.membership import Membership, join
from eventproc.groups.names import group_name, stream_names
from eventproc.groups.operations import GroupCheckpoint, ResetPreview, adopt_recreated_streams, preview_reset
from eventproc.groups.reader import GroupReader
from eventproc.groups.start_positions import GroupEnd, GroupResetEnd, GroupStart, check_start
from eventproc.groups.state import SegmentOwnership
from eventproc.groups.stored_state import folded_state
from eventproc.store.groups import (
    GROUP,
    GroupOptions,
    GroupRecord,
    GroupStream,
    SegmentKey,
    TruncatedPolicy,
    delete_group,
    watch_group,
    watch_progress,
)

__all__ = [
    "GROUP",
    "PROCESSOR",
    "READERS",
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
    "MemberDescription",
    "Membership",
    "ReaderGroup",
    "ResetPreview",
    "SegmentKey",
    "SegmentLag",
    "SegmentOwnership",
    "TruncatedPolicy",
    "add_stream",
    "adopt_recreated_streams",
    "check_start",
    "delete_group",
    "describe_group",
    "ensure_group",
    "folded_state",
    "get_group",
    "group_info",
    "group_name",
    "join",
    "list_group_infos",
    "list_groups",
    "preview_reset",
    "set_paused",
    "stream_names",
    "verify_streams",
    "watch_group",
    "watch_progress",
]
