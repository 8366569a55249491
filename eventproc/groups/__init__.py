"""Reader groups: readers, in any number of processes, that share streams; each segment is one reader's at a time."""

from __future__ import annotations

from eventproc.groups.change import (
    PROCESSOR,
    READERS,
    GroupStart,
    add_stream,
    delete_group,
    ensure_group,
    expire_reader,
    get_group,
    group_name,
    list_groups,
    set_paused,
)
from eventproc.groups.describe import GroupDescription, MemberDescription, SegmentLag, describe_group
from eventproc.groups.keys import Assigned, GroupStream, SegmentKey
from eventproc.groups.membership import Membership, join
from eventproc.groups.table import GROUP, Group, state_of, watch_group

__all__ = [
    "GROUP",
    "PROCESSOR",
    "READERS",
    "Assigned",
    "Group",
    "GroupDescription",
    "GroupStart",
    "GroupStream",
    "MemberDescription",
    "Membership",
    "SegmentKey",
    "SegmentLag",
    "add_stream",
    "delete_group",
    "describe_group",
    "ensure_group",
    "expire_reader",
    "get_group",
    "group_name",
    "join",
    "list_groups",
    "set_paused",
    "state_of",
    "watch_group",
]
