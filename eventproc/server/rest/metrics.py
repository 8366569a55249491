"""`/metrics`: what a serving process knows, as Prometheus scrapes it.

Nothing is counted for it: the tails of segments are counters already, and survive restarts. A scrape is one read of the
catalog, one of all groups, and one for each supervisor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from eventproc.ingestion.status import SupervisorStatus
from eventproc.runtime import Eventproc
from eventproc.runtime.overview import Backlog, backlogs
from eventproc.store.catalog import count_streams, current_epoch, list_streams
from eventproc.store.catalog.queries import head_cut, tail_cut
from eventproc.store.catalog.sizes import StreamSize, size_before
from eventproc.store.database import Tx
from eventproc.store.ingestion import supervisor_ids
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ingestion import TaskState
from eventproc.store.model.list_pages import ListPage
from eventproc.store.requests import pending_requests

STREAMS_MAX: Final = 1_000
"""Streams with metrics of their own, the first ones by name; `eventproc_streams` counts all. Higher: longer reads of
the database, and larger answers: about 0.5 kB for each."""

SUPERVISORS_MAX: Final = 200
"""Supervisors with metrics of their own. Each takes a read of two look-ups per segment of its streams."""


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


_TOTALS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "processed": ("events", "Events that tasks have read; by each replica, and again after a failure."),
        "processed_bytes": ("bytes", "Bytes of the payloads of these events."),
        "unparseable": ("unparseable_events", "Events that are no rows of the schema."),
        "thrown_away": ("thrown_away_rows", "Rows outside of the message times, or refused by the filter."),
        "rows": ("rows", "Rows that were written, after the roll-up."),
        "published": ("publications", "Sequences that were published."),
        "hung": ("hung_tasks", "Tasks that were replaced because they gave no sign, or made no progress."),
    }
)
"""Counters of a supervisor: the field of its totals, and the name and meaning of the metric."""


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
    groups = await ep.db.read(backlogs)
    supervisors: list[SupervisorStatus] = []
    for name in await ep.db.read(partial(supervisor_ids, page=ListPage(limit=SUPERVISORS_MAX))):
        try:
            supervisors.append(await (await ep.supervisor(name)).status())
        except NotFound:  # ended meanwhile
            continue
    workers = await ep.ingestion_workers()
    living = [each for each in workers if each.alive]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    alone = (
        Gauge("streams", "Streams and topics of the directory.", measured.streams_count),
        Gauge("requests_pending", "Requests to change streams and scopes.", measured.requests_pending),
        Gauge("instances", "Openings of the directory that are alive.", len(cluster.instances)),
        Gauge("servers", "Processes that serve Pravega's clients.", len(cluster.servers)),
        Gauge("host_present", "1 if an instance runs the requests.", int(cluster.host is not None)),
        Gauge("ingestion_workers", "Workers of ingestion that are alive.", len(living)),
        Gauge("ingestion_dead_workers", "Workers that died in the last hour.", len(workers) - len(living)),
        Gauge(
            "ingestion_slots", "Tasks that the living workers can run.", sum(each.slots for each in living)
        ),
        Gauge("ingestion_used_slots", "Tasks that they run.", sum(len(each.tasks) for each in living)),
        *gauges,
    )
    families = [
        *_gauges(alone),
        *_of_streams(measured.streams),
        *_of_groups(groups),
        *_of_supervisors(supervisors),
    ]
    registry.register(_Families(families))
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


def _of_groups(groups: Iterable[Backlog]) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "eventproc_group_lag_events", "Events that the group has not finished.", labels=["group"]
    )
    size = GaugeMetricFamily(
        "eventproc_group_lag_bytes", "Bytes that the group has not finished.", labels=["group"]
    )
    age = GaugeMetricFamily(
        "eventproc_group_lag_seconds", "Age of the oldest event that it has not finished.", labels=["group"]
    )
    readers = GaugeMetricFamily(
        "eventproc_group_readers", "Readers, consumers or processes of the group.", labels=["group"]
    )
    letters = GaugeMetricFamily(
        "eventproc_group_dead_letters", "Events that the group gave up, and that wait.", labels=["group"]
    )
    for each in groups:
        lag.add_metric([each.group], each.events)
        size.add_metric([each.group], each.bytes)
        age.add_metric([each.group], (each.age_ms or 0) / 1000)
        readers.add_metric([each.group], each.members)
        letters.add_metric([each.group], each.dead_letters)
    yield from (lag, size, age, readers, letters)


def _of_supervisors(found: Iterable[SupervisorStatus]) -> Iterator[Metric]:
    healthy = GaugeMetricFamily(
        "eventproc_supervisor_healthy", "1 unless a person is needed.", labels=["supervisor"]
    )
    state = GaugeMetricFamily(
        "eventproc_supervisor_state", "1 for the state of the supervisor.", labels=["supervisor", "state"]
    )
    lag = GaugeMetricFamily(
        "eventproc_supervisor_lag_events", "Events that no task has read.", labels=["supervisor"]
    )
    tasks = GaugeMetricFamily(
        "eventproc_supervisor_tasks", "Tasks that have not ended.", labels=["supervisor", "state"]
    )
    ended = CounterMetricFamily(
        "eventproc_supervisor_ended_tasks", "Tasks that have ended.", labels=["supervisor", "state"]
    )
    counters = {
        field: CounterMetricFamily(f"eventproc_supervisor_{name}", about, labels=["supervisor"])
        for field, (name, about) in _TOTALS.items()
    }
    for each in found:
        healthy.add_metric([each.id], each.healthy)
        state.add_metric([each.id, each.state.value], 1)
        lag.add_metric([each.id], each.lag)
        running = [
            sum(task.state is TaskState.RUNNING for task in part) for part in (each.active, each.publishing)
        ]
        for name, count in zip(("waiting", "reading", "publishing"), (each.waiting, *running), strict=True):
            tasks.add_metric([each.id, name], count)
        for name in ("succeeded", "failed", "stopped"):
            ended.add_metric([each.id, name], getattr(each.totals, name))
        for field, family in counters.items():
            family.add_metric([each.id], getattr(each.totals, field))
    yield from (healthy, state, lag, tasks, ended, *counters.values())
