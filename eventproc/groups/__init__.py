"""Reader groups: readers, in any number of processes, that share streams; each segment is one reader's at a time."""

from __future__ import annotations

from eventproc.groups.change import (
    PROCESSOR,
    READERS,
    add_stream,
    ensure_group,
    get_group,
    list_groups,
    set_paused,
    verify_streams,
)
from eventproc.groups.describe import GroupDescription, MemberDescription, SegmentLag, describe_group
from eventproc.groups.group import ReaderGroup
from eventproc.groups.keys import Assigned, SegmentKey
from eventproc.groups.member import join
from eventproc.groups.membership import Membership
from eventproc.groups.names import group_name, stream_names
from eventproc.groups.openings import GroupEnd, GroupEndAnew, GroupStart, check_start
from eventproc.groups.operations import GroupCheckpoint, follow_names
from eventproc.groups.preview import ResetPreview, preview_reset
from eventproc.groups.reader import GroupReader
from eventproc.groups.table import folded_state, watch_group, watch_progress
from eventproc.store.groups import GROUP, Group, GroupOptions, GroupStream, TruncatedPolicy, delete_group

__all__ = [
    "GROUP",
    "PROCESSOR",
    "READERS",
    "Assigned",
    "Group",
    "GroupCheckpoint",
    "GroupDescription",
    "GroupEnd",
    "GroupEndAnew",
    "GroupOptions",
    "GroupReader",
    "GroupStart",
    "GroupStream",
    "MemberDescription",
    "Membership",
    "ReaderGroup",
    "ResetPreview",
    "SegmentKey",
    "SegmentLag",
    "TruncatedPolicy",
    "add_stream",
    "check_start",
    "delete_group",
    "describe_group",
    "ensure_group",
    "folded_state",
    "follow_names",
    "get_group",
    "group_name",
    "join",
    "list_groups",
    "preview_reset",
    "set_paused",
    "stream_names",
    "verify_streams",
    "watch_group",
    "watch_progress",
]
