"""Streams as users see them: handle, writer, reader."""

from __future__ import annotations

from eventproc.streams.batch import Batch
from eventproc.streams.reader import StreamReader
from eventproc.streams.send import NewEvent
from eventproc.streams.stream import SegmentDescription, Stream, StreamDescription
from eventproc.streams.writer import EventWriter

__all__ = [
    "Batch",
    "EventWriter",
    "NewEvent",
    "SegmentDescription",
    "Stream",
    "StreamDescription",
    "StreamReader",
]
