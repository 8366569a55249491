"""Share groups: many consumers on one segment, and an acknowledgement for each event."""

from __future__ import annotations

from eventproc.shares.changes import (
    ShareResetPreview,
    ensure_share_group,
    get_share_group,
    list_share_groups,
)
from eventproc.shares.consumer import ShareConsumer
from eventproc.shares.describe import (
    SharedSegment,
    ShareGroupDescription,
    ShareGroupInfo,
    ShareHolder,
    ShareState,
    describe_share_group,
    list_share_infos,
)
from eventproc.shares.events import SharedEvent
from eventproc.shares.group import ShareGroup
from eventproc.store.groups import DELIVERIES_MAX, LOCK_MS, ShareOptions

__all__ = [
    "DELIVERIES_MAX",
    "LOCK_MS",
    "ShareConsumer",
    "ShareGroup",
    "ShareGroupDescription",
    "ShareGroupInfo",
    "ShareHolder",
    "ShareOptions",
    "ShareResetPreview",
    "ShareState",
    "SharedEvent",
    "SharedSegment",
    "describe_share_group",
    "ensure_share_group",
    "get_share_group",
    "list_share_groups",
    "list_share_infos",
]
