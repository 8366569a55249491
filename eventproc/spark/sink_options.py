"""The options of the format "eventproc" as a sink, checked before a job begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.spark.option_names import known_options, store_of
from eventproc.store.address import StoreAddress
from eventproc.store.model.argument_checks import INT_MAX, invalid_argument
from eventproc.store.model.names import StreamName

SINK_NAME_CHARS_MAX: Final = 200
"""Longest name of a sink, in characters: it is a key in the database."""

_COMMON: Final = ("path", "stream", "streamColumn", "key", "eventTime", "partition", "sink")
_STREAMING: Final = (*_COMMON, "checkpointLocation", "queryName")

_BATCH: Final = (*_COMMON, "batch", "columns", "schema")
"""The last two are those of the source: a view of Spark SQL has one set of options for reading and writing."""


@attrs.frozen(kw_only=True)
class SinkOptions:
    """The checked options of a writer. docs/design/spark-sink.md describes each.

    stream: the stream to write to; None: each row names its own.
    """

    address: StoreAddress
    stream: str | None = None
    stream_column: str | None = None
    key: str | None = None
    event_time: str | None = None
    partition: str | None = None
    sink: str | None = None
    batch: int | None = None
    checkpoint: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the options name."""
        found = (self.stream_column, self.key, self.event_time, self.partition)
        return tuple(each for each in found if each is not None)


def parse_sink_options(options: Mapping[str, str], *, streaming: bool, overwrite: bool) -> SinkOptions:
    """Return the options of a writer. Raises InvalidArgument, naming the option."""
    given = known_options(options, _STREAMING if streaming else _BATCH, "the sink of the format eventproc")
    if (
        overwrite and not streaming
    ):  # a streaming query in complete mode appends each result, as in Kafka's sink
        raise invalid_argument(
            "mode", "overwrite", "a stream can only be appended to; truncate it separately"
        )
    address = store_of(given)
    stream, column = given.get("stream"), given.get("streamcolumn")
    if stream is not None:
        StreamName.parse(stream)
        if column is not None:
            raise invalid_argument("option streamColumn", column, "give either stream or streamColumn")
    sink, batch = given.get("sink"), given.get("batch")
    if sink is not None and not 0 < len(sink) <= SINK_NAME_CHARS_MAX:
        raise invalid_argument("option sink", sink, f"it must have 1 to {SINK_NAME_CHARS_MAX} characters")
    if not streaming and (sink is None) != (batch is None):
        raise invalid_argument("option batch", batch, "give both sink and batch, or neither")
    if batch is not None and not (batch.isascii() and batch.isdigit() and int(batch) <= INT_MAX):
        raise invalid_argument("option batch", batch, f"it must be a whole number, 0 to {INT_MAX}")
    return SinkOptions(
        address=address,
        stream=stream,
        stream_column=column,
        key=given.get("key"),
        event_time=given.get("eventtime"),
        partition=given.get("partition"),
        sink=sink,
        batch=None if batch is None else int(batch),
        checkpoint=given.get("checkpointlocation"),
    )
