"""Share groups: many consumers on one segment, and an acknowledgement for each event."""

from __future__ import annotations

from eventproc.shares.changes import (
    ShareResetPreview as ShareResetPreview,
    ensure_share_group as ensure_share_group,
)
from eventproc.shares.consumer import ShareConsumer as ShareConsumer
from eventproc.shares.events import Delivery as Delivery
from eventproc.shares.group import ShareGroup as ShareGroup
from eventproc.store.groups import ShareOptions as ShareOptions
