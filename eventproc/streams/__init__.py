"""Streams as users see them: handle, writer, transaction, reader."""

from __future__ import annotations

from eventproc.streams.codec import Codec as Codec, register_codec as register_codec
from eventproc.streams.description import (
    MeasuredPart as MeasuredPart,
    PastScale as PastScale,
    ScopeInfo as ScopeInfo,
    SegmentDescription as SegmentDescription,
    StreamDescription as StreamDescription,
    StreamInfo as StreamInfo,
    TransactionDescription as TransactionDescription,
    TruncationDescription as TruncationDescription,
)
from eventproc.streams.joint_transaction import (
    JointTransaction as JointTransaction,
    ProgressHold as ProgressHold,
    ProgressSource as ProgressSource,
    StreamTarget as StreamTarget,
)
from eventproc.streams.new_events import NewEvent as NewEvent
from eventproc.streams.reader import Batch as Batch, StreamReader as StreamReader
from eventproc.streams.stream import Stream as Stream
from eventproc.streams.transaction import Transaction as Transaction
from eventproc.streams.writer import EventWriter as EventWriter
