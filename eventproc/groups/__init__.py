"""Reader groups: readers, in any number of processes, that share streams; each segment is one reader's at a time."""

from __future__ import annotations

from eventproc.groups.assignors import (
    AssignableSegment as AssignableSegment,
    AssignmentInput as AssignmentInput,
    Assignor as Assignor,
)
from eventproc.groups.changes import (
    GroupUpdate as GroupUpdate,
    ShareUpdate as ShareUpdate,
    add_stream as add_stream,
    drop_stream as drop_stream,
    ensure_group as ensure_group,
    ensure_worker_group as ensure_worker_group,
    list_groups as list_groups,
    set_paused as set_paused,
    verify_streams as verify_streams,
)
from eventproc.groups.describe import (
    GroupDescription as GroupDescription,
    GroupInfo as GroupInfo,
    SegmentLag as SegmentLag,
    SharedSegment as SharedSegment,
    ShareGroupDescription as ShareGroupDescription,
    ShareHolder as ShareHolder,
    describe_any as describe_any,
    describe_group as describe_group,
    describe_share_group as describe_share_group,
    group_info as group_info,
)
from eventproc.groups.membership import MemberOptions as MemberOptions, Membership as Membership, join as join
from eventproc.groups.names import group_name as group_name, stream_names as stream_names
from eventproc.groups.operations import (
    GroupCheckpoint as GroupCheckpoint,
    ResetPreview as ResetPreview,
    adopt_recreated_streams as adopt_recreated_streams,
)
from eventproc.groups.reader import GroupReader as GroupReader
from eventproc.groups.start_positions import (
    GroupEnd as GroupEnd,
    GroupResetEnd as GroupResetEnd,
    GroupStart as GroupStart,
    check_start as check_start,
)
from eventproc.groups.state import SegmentOwnership as SegmentOwnership
from eventproc.groups.stored_state import folded_state as folded_state
from eventproc.store.groups import (
    EQUAL as EQUAL,
    GROUP as GROUP,
    PROCESSOR as PROCESSOR,
    READERS as READERS,
    DeletedPolicy as DeletedPolicy,
    GroupOptions as GroupOptions,
    RetainedPart as RetainedPart,
    SegmentKey as SegmentKey,
    TruncatedPolicy as TruncatedPolicy,
    delete_group as delete_group,
    get_group as get_group,
    watch_group as watch_group,
    watch_progress as watch_progress,
    watch_share as watch_share,
)
