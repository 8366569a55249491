"""Streams as users see them: handle, writer, transaction, reader."""

from __future__ import annotations

from eventproc.streams.codec import Codec, register_codec
from eventproc.streams.description import (
    MeasuredPart,
    PastScale,
    ScopeInfo,
    SegmentDescription,
    StreamDescription,
    StreamInfo,
    TransactionDescription,
    TruncationDescription,
)
from eventproc.streams.joint_transaction import JointTransaction, ProgressHold, ProgressSource, StreamTarget
from eventproc.streams.new_events import NewEvent
from eventproc.streams.reader import Batch, StreamReader
from eventproc.streams.stream import Stream
from eventproc.streams.transaction import Transaction
from eventproc.streams.writer import EventWriter

__all__ = [
    "Batch",
    "Codec",
    "EventWriter",
    "JointTransaction",
    "MeasuredPart",
    "NewEvent",
    "PastScale",
    "ProgressHold",
    "ProgressSource",
    "ScopeInfo",
    "SegmentDescription",
    "Stream",
    "StreamDescription",
    "StreamInfo",
    "StreamReader",
    "StreamTarget",
    "Transaction",
    "TransactionDescription",
    "TruncationDescription",
    "register_codec",
]
