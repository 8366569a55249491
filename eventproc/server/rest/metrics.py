"""`/metrics`: what a serving process knows, as Prometheus scrapes it.

Nothing is counted for it: the tails of segments are counters already, and survive restarts. A scrape is one read of the
catalog, and one for each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from eventproc.groups import GroupDescription
from eventproc.runtime import Eventproc
from eventproc.store.catalog import count_streams, current_epoch, list_streams
from eventproc.store.catalog.cuts import head_cut, tail_cut
from eventproc.store.catalog.sizes import StreamSize, size_before
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.list_pages import ListPage
from eventproc.store.requests import pending_requests

STREAMS_MAX: Final = 1_000
"""Streams with metrics of their own, the first ones by name; `eventproc_streams` counts all. Higher: longer reads of
the database, and larger answers: about 0.5 kB for each."""

GROUPS_MAX: Final = 200
"""Reader groups with a lag. Each takes a read of a few look-ups per segment."""


@attrs.frozen
class StreamMeasure:
    """A stream: all that was written since it was created, what of it can be read, and its active segments."""

    name: str
    written: StreamSize
    readable: StreamSize
    segments: int


@attrs.frozen
class DirectoryMeasure:
    """What the directory says: all its streams are counted, and the first ones measured."""

    streams_count: int
    streams: tuple[StreamMeasure, ...]
    requests_pending: int


def measure_directory(tx: Tx) -> DirectoryMeasure:
    """Return the measures of a directory. Cost: a few look-ups for each active segment of the measured streams."""
    found: list[StreamMeasure] = []
    for stream in list_streams(tx, page=ListPage(limit=STREAMS_MAX)):
        written = size_before(tx, stream, tail_cut(tx, stream))
        dropped = size_before(tx, stream, head_cut(tx, stream))
        readable = StreamSize(written.bytes - dropped.bytes, written.events - dropped.events)
        found.append(StreamMeasure(stream.name, written, readable, len(current_epoch(tx, stream).segments)))
    return DirectoryMeasure(count_streams(tx), tuple(found), pending_requests(tx))


class Gauge(NamedTuple):
    """A number of now: its name without `eventproc_`, what it counts, and its value."""

    name: str
    about: str
    value: int


async def render_metrics(ep: Eventproc, gauges: Iterable[Gauge], accept: str) -> tuple[bytes, str]:
    """Return the metrics and their media type.

    gauges: what the process knows of itself.
    accept: the header of that name, which chooses between Prometheus' text and OpenMetrics.
    """
    measured = await ep.db.read(measure_directory)
    cluster = await ep.cluster.describe()
    groups: list[GroupDescription] = []
    for info in await ep.groups(limit=GROUPS_MAX):
        try:
            groups.append(await (await ep.group(info.name)).describe())
        except NotFound:  # deleted meanwhile
            continue
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    alone = (
        Gauge("streams", "Streams and topics of the directory.", measured.streams_count),
        Gauge("requests_pending", "Requests to change streams and scopes.", measured.requests_pending),
        Gauge("instances", "Openings of the directory that are alive.", len(cluster.instances)),
        Gauge("servers", "Processes that serve Pravega's clients.", len(cluster.servers)),
        Gauge("host_present", "1 if an instance runs the requests.", int(cluster.host is not None)),
        *gauges,
    )
    registry.register(_Families([*_gauges(alone), *_of_streams(measured.streams), *_of_groups(groups)]))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Families(Collector):
    """Hands over what was measured."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def _gauges(found: Iterable[Gauge]) -> Iterator[Metric]:
    for each in found:
        yield GaugeMetricFamily(f"eventproc_{each.name}", each.about, value=each.value)


def _of_streams(measured: Iterable[StreamMeasure]) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "eventproc_stream_events", "Events written since creation.", labels=["stream"]
    )
    size = CounterMetricFamily("eventproc_stream_bytes", "Bytes written since creation.", labels=["stream"])
    left = GaugeMetricFamily("eventproc_stream_readable_events", "Events that are kept.", labels=["stream"])
    kept = GaugeMetricFamily("eventproc_stream_readable_bytes", "Bytes that are kept.", labels=["stream"])
    active = GaugeMetricFamily("eventproc_stream_segments", "Active segments.", labels=["stream"])
    for each in measured:
        events.add_metric([each.name], each.written.events)
        size.add_metric([each.name], each.written.bytes)
        left.add_metric([each.name], each.readable.events)
        kept.add_metric([each.name], each.readable.bytes)
        active.add_metric([each.name], each.segments)
    yield from (events, size, left, kept, active)


def _of_groups(groups: Iterable[GroupDescription]) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "eventproc_group_lag_events", "Events that the group has not finished.", labels=["group"]
    )
    size = GaugeMetricFamily(
        "eventproc_group_lag_bytes", "Bytes that the group has not finished.", labels=["group"]
    )
    readers = GaugeMetricFamily("eventproc_group_readers", "Readers of the group.", labels=["group"])
    for each in groups:
        lag.add_metric([each.name], each.events)
        size.add_metric([each.name], each.bytes)
        readers.add_metric([each.name], len(each.members))
    yield from (lag, size, readers)
