"""Share groups: many consumers on one segment, and an acknowledgement for each event."""

from __future__ import annotations

from eventproc.shares.changes import ShareResetPreview, ensure_share_group
from eventproc.shares.consumer import ShareConsumer
from eventproc.shares.events import Delivery
from eventproc.shares.group import ShareGroup
from eventproc.store.groups import DELIVERIES_MAX, LOCK_MS, ShareOptions

__all__ = [
    "DELIVERIES_MAX",
    "LOCK_MS",
    "Delivery",
    "ShareConsumer",
    "ShareGroup",
    "ShareOptions",
    "ShareResetPreview",
    "ensure_share_group",
]
