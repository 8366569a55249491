"""What can be measured of a store: one table, apart from how the values are shown.

`/metrics` shows them to Prometheus, and `store_instruments.py` to OpenTelemetry. Nothing is counted for it: the tails
of segments are counters already, and survive restarts. A look is one read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import anyio
import attrs
from anyio import to_thread

from eventproc.base.durations import Distribution, Durations, Labels
from eventproc.cluster import ClusterDescription
from eventproc.cluster.membership import describe_cluster
from eventproc.ingestion.loop import read_situation
from eventproc.ingestion.status import (
    IngestWorkerInfo,
    SupervisorStatus,
    describe_supervisor,
    describe_workers,
)
from eventproc.ingestion.visibility import list_supervisors
from eventproc.runtime.overview import Backlog, backlogs
from eventproc.store.catalog import count_streams, current_epoch, list_streams
from eventproc.store.catalog.queries import head_cut, tail_cut
from eventproc.store.catalog.sizes import StreamSize, size_before
from eventproc.store.chunks.index import count_chunks
from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.delayed_events import count_all_delayed
from eventproc.store.file_store import REQUEST_DURATIONS
from eventproc.store.groups import SHARE, count_deliveries
from eventproc.store.inspection.database_file import database_bytes
from eventproc.store.key_states import StateRecord, list_state_records, measure_state
from eventproc.store.model.ingestion import TaskState
from eventproc.store.model.list_pages import ListPage, NameFilter
from eventproc.store.requests import count_requests
from eventproc.store.segments.free_pages import free_space
from eventproc.store.task_queue import count_tasks
from eventproc.store.transactions import count_open
from eventproc.store.watermarks import stored_watermark
from eventproc.streams.fetch import EVENTS_READ
from eventproc.streams.sends import EVENTS_SENT, SEND_DURATIONS

T = TypeVar("T")

STREAMS_MAX: Final = 1_000
"""Streams with measures of their own, the first ones by name; `eventproc.streams` counts all. Higher: longer reads of
the database, and larger answers: about 0.5 kB for each."""

SUPERVISORS_MAX: Final = 200
"""Supervisors with measures of their own. Each takes two look-ups per segment of its streams."""

STATES_MAX: Final = 200
"""States by key with measures of their own, the first ones by the names of their groups."""

PAUSE_PER_COUNT: Final = 100
"""A state is counted again when so many times the time that its last count took are over: all rows are read. Higher:
older figures. Lower: more than 1 % of a core."""

COUNT_WAIT_S: Final = 1.0
"""How long a look waits for states that are being counted: about ten million keys. Higher: scrapers and exports give up
where a state is large. Lower: a first look shows fewer states."""

COUNT_MS_MAX: Final = 600_000
"""How long a count may take before another one begins."""

NAMES: Final = frozenset({"stream", "group", "supervisor"})
"""Labels of measures whose values are names, which not every reader may know."""

Point: TypeAlias = tuple[Labels, float]
"""The values of the labels of a measure, and its value."""

ProcessValues: TypeAlias = dict[str, Callable[[], float]]

PROCESS_VALUES: Final[SharedSlot[ProcessValues]] = SharedSlot(dict)
"""What this process knows of itself, by the names of measures; called on the event loop."""


class QueryMeasure(Protocol):
    """A streaming query of Spark, as its driver describes it."""

    @property
    def label(self) -> str:
        """Its name, or its id."""
        ...

    @property
    def batch(self) -> int | None:
        """The batch of its last trigger, None before the first one."""
        ...

    @property
    def events(self) -> int:
        """Events behind."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes behind."""
        ...


QUERIES: Final[SharedSlot[list[Callable[[], Sequence[QueryMeasure]]]]] = SharedSlot(list)
"""What describes the queries that run in this process; called on a thread, outside of a transaction."""


@contextmanager
def reporting(db: Database, values: Mapping[str, Callable[[], float]]) -> Iterator[None]:
    """Let looks have these values of the process while the block runs. values: by the names of their measures."""
    shown = db.shared[PROCESS_VALUES]
    shown.update(values)
    try:
        yield
    finally:
        for name in values:
            shown.pop(name, None)


@attrs.frozen
class StreamMeasure:
    """A stream: all that was written since it was created, what of it can be read, and its active segments.

    delayed: events that are not due yet.
    """

    name: str
    written: StreamSize
    readable: StreamSize
    segments: int
    delayed: int


@attrs.define
class StateCount:
    """How large a state by key was when it was counted last.

    next_ms: monotonic; from when it is counted again. is_known: it was counted.
    """

    keys: int = 0
    value_bytes: int = 0
    next_ms: int = 0
    is_known: bool = False


STATE_COUNTS: Final[SharedSlot[dict[str, StateCount]]] = SharedSlot(dict)
"""The last counts of this process, by group. Counted by one read at a time."""


@attrs.frozen(kw_only=True)
class StoreLook:
    """A store at one moment. All its streams are counted, and the first ones measured.

    states: those by key that were counted, by group. watermarks: in ms since 1970, by group.
    requests: those of the last day by kind, status and origin. tasks: those of the last day by kind and status.
    deliveries: of share groups, by group and state. chunks: number and bytes of the chunk files.
    process: what the process knows of itself, by the names of measures. sent, read: events of its clients, by stream.
    durations: of its calls, by the names of histograms. queries: of Spark, which run in this process.
    """

    streams_count: int
    streams: list[StreamMeasure]
    groups: list[Backlog]
    states: Mapping[str, StateCount]
    watermarks: Mapping[str, int]
    deliveries: Mapping[tuple[str, str], int]
    requests: Mapping[tuple[str, str, str], int]
    transactions_open: int
    tasks: Mapping[tuple[str, str], int]
    cluster: ClusterDescription
    supervisors: list[SupervisorStatus]
    workers: list[IngestWorkerInfo]
    database_bytes: int
    free_bytes: int
    chunks: tuple[int, int]
    process: Mapping[str, float]
    sent: Mapping[str, int]
    read: Mapping[str, int]
    durations: Mapping[str, Mapping[Labels, Distribution]]
    queries: list[QueryMeasure]

    @property
    def requests_pending(self) -> int:
        """Requests without an outcome."""
        return sum(count for (_, status, _), count in self.requests.items() if status == "pending")

    @property
    def has_host(self) -> bool:
        """Whether an instance runs the requests."""
        return self.cluster.host is not None

    @property
    def living_workers(self) -> list[IngestWorkerInfo]:
        """The workers of ingestion that are alive."""
        return [each for each in self.workers if each.alive]

    @property
    def dead_workers(self) -> list[IngestWorkerInfo]:
        """The workers of ingestion that died in the last hour."""
        return [each for each in self.workers if not each.alive]


async def look_at_store(db: Database, readable: NameFilter | None = None) -> StoreLook:
    """Return what is measured. Raises Closed, DatabaseStopped, and Retryable errors.

    readable: the names that a reader may know, of whose objects the measures are that are not of the server; None: all.
    Cost: two reads, with a few look-ups for each active segment of the measured streams and groups; in a driver of
    Spark a question to the JVM, and a read, for each query.
    """
    own = {
        "process": {name: value() for name, value in db.shared[PROCESS_VALUES].items()},
        "sent": _of_streams(db.shared[EVENTS_SENT], readable),
        "read": _of_streams(db.shared[EVENTS_READ], readable),
        "queries": [found for describe in db.shared[QUERIES] for found in await to_thread.run_sync(describe)],
        "durations": {each.name: _durations(each, db, readable) for each in HISTOGRAMS},
    }
    with anyio.move_on_after(COUNT_WAIT_S):  # the read goes on, and a later look has what it counts
        await db.read(partial(_count_states, counts=db.shared[STATE_COUNTS], readable=readable))
    return await db.read(partial(_look, db=db, own=own, readable=readable))


def _of_streams(counts: Counter[str], readable: NameFilter | None) -> dict[str, int]:
    """Return the counts of the streams that a reader may know."""
    return {each: count for each, count in counts.items() if readable is None or readable.allows(each)}


def _durations(
    histogram: Histogram, db: Database, readable: NameFilter | None
) -> Mapping[Labels, Distribution]:
    """Return durations, of the streams that a reader may know."""
    found = histogram.durations_of(db).copy()
    if readable is None:
        return found
    is_of_streams = histogram.labels[0] == "stream"
    return {each: found[each] for each in found if is_of_streams and readable.allows(each[0])}


def _look(tx: Tx, db: Database, own: Mapping[str, Any], readable: NameFilter | None) -> StoreLook:
    """own: what the process knows, by the fields of a look. readable: as of `look_at_store`."""
    is_alive = db.peers.is_alive
    records, counts = _states(tx, readable), db.shared[STATE_COUNTS]
    groups = backlogs(tx, readable)
    names = list_supervisors(tx, ListPage(limit=SUPERVISORS_MAX, readable=readable))
    situations = (read_situation(tx, each, is_alive, with_lags=True) for each in names)
    return StoreLook(
        streams_count=count_streams(tx, readable=readable),
        streams=[*_measure_streams(tx, readable)],
        groups=groups,
        states={
            each.group: count
            for each in records
            if (count := counts.get(each.group)) is not None and count.is_known
        },
        watermarks={
            each.group: reached
            for each in records
            if (reached := stored_watermark(tx, each.group, each.stream_id)) is not None
        },
        deliveries=_count_deliveries(tx, (each.group for each in groups if each.kind == SHARE)),
        requests=count_requests(tx, readable),
        transactions_open=count_open(tx, _stream_ids(tx, readable)),
        tasks=count_tasks(tx),
        cluster=describe_cluster(tx, db),
        supervisors=[describe_supervisor(each) for each in situations if each is not None],
        workers=describe_workers(tx, ListPage(), is_alive),
        database_bytes=database_bytes(tx),
        free_bytes=0 if tx.on_server else free_space(tx).free_bytes,
        chunks=count_chunks(tx),
        **own,
    )


def _states(tx: Tx, readable: NameFilter | None) -> list[StateRecord]:
    return list_state_records(tx, ListPage(limit=STATES_MAX, readable=readable))


def _stream_ids(tx: Tx, readable: NameFilter | None) -> frozenset[int] | None:
    """Return the ids of the streams that a reader may know; None: all."""
    if readable is None:
        return None
    return frozenset(each.stream_id for each in list_streams(tx, page=ListPage(readable=readable)))


def _measure_streams(tx: Tx, readable: NameFilter | None) -> Iterator[StreamMeasure]:
    delayed = count_all_delayed(tx)
    for stream in list_streams(tx, page=ListPage(limit=STREAMS_MAX, readable=readable)):
        written = size_before(tx, stream, tail_cut(tx, stream))
        dropped = size_before(tx, stream, head_cut(tx, stream))
        kept = StreamSize(written.bytes - dropped.bytes, written.events - dropped.events)
        segments = len(current_epoch(tx, stream).segments)
        yield StreamMeasure(stream.name, written, kept, segments, delayed.get(stream.stream_id, 0))


def _count_states(tx: Tx, counts: dict[str, StateCount], readable: NameFilter | None) -> None:
    """Count the states that were not counted for long."""
    for record in _states(tx, readable):
        began, count = tx.clock.monotonic_ms(), counts.setdefault(record.group, StateCount())
        if began < count.next_ms:
            continue
        count.next_ms = began + COUNT_MS_MAX  # until then no other look counts it, too
        count.keys, count.value_bytes = measure_state(tx, record)
        ended = tx.clock.monotonic_ms()
        count.next_ms = ended + max(1, ended - began) * PAUSE_PER_COUNT
        count.is_known = True


def _count_deliveries(tx: Tx, groups: Iterable[str]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for group in groups:
        counts = count_deliveries(tx, group).values()
        for state in ("in_flight", "available", "set_aside"):
            found[group, state] = sum(getattr(each, state) for each in counts)
    return found


@attrs.frozen
class Measure:
    """A row of the table.

    name: as OpenTelemetry shows it; Prometheus has underscores for its dots.
    unit: by the Unified Code for Units of Measure, as OpenTelemetry's conventions ask for it. Never "1": exporters to
        Prometheus take that for a ratio, and change the name.
    labels: what its values are distinguished by. points: its values in a look.
    is_counter: whether it only grows; else it is a gauge. operation: of a client, which it measures; "" for others.
    counts_names: whether it is a number of what the reader of a look may know, without the names.
    """

    name: str
    unit: str
    about: str
    labels: tuple[str, ...]
    points: Callable[[StoreLook], Iterable[Point]]
    is_counter: bool = False
    operation: str = ""
    counts_names: bool = False

    @property
    def is_of_names(self) -> bool:
        """Whether it measures what a look has of the names that its reader may know, and not the server."""
        return self.counts_names or not NAMES.isdisjoint(self.labels)

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, without the suffix of counters."""
        return self.name.replace(".", "_")


@attrs.frozen
class Histogram:
    """A row of the table of durations: of calls of this process, in s, while somebody shows them.

    labels: as of a measure; the value "" stands for none, such as the error of a call that succeeded.
    durations_of: those of an open store. is_of_store: not of all stores of the process together.
    operation: as of a measure.
    """

    name: str
    about: str
    labels: tuple[str, ...]
    durations_of: Callable[[Database], Durations]
    is_of_store: bool = True
    operation: str = ""

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, which ends with the unit."""
        return f"{self.name.replace('.', '_')}_seconds"


Value: TypeAlias = str | Callable[[T], float]
"""How to get a value: the path of the field that has it, or a function."""


def _getter(value: Value[T]) -> Callable[[T], float]:
    return attrgetter(value) if isinstance(value, str) else value


def _client(operation: str, name: str, about: str, field: str) -> Measure:
    """Return a measure of what clients in this process did, by stream, as the conventions for messaging call it."""

    def points(look: StoreLook) -> list[Point]:
        return [((stream,), count) for stream, count in getattr(look, field).items()]

    return Measure(f"messaging.client.{name}", "{message}", about, ("stream",), points, True, operation)


def _one(name: str, unit: str, about: str, value: Value[StoreLook], *, counts_names: bool = False) -> Measure:
    value_of = _getter(value)
    return Measure(
        f"eventproc.{name}",
        unit,
        about,
        (),
        lambda look: [((), value_of(look))],
        counts_names=counts_names,
    )


def _counted(name: str, unit: str, about: str, field: str) -> Measure:
    """Return the measure of how many values a field of a look has."""
    return _one(name, unit, about, lambda look: len(attrgetter(field)(look)))


def _process(name: str, unit: str, about: str) -> Measure:
    """Return a measure of the process, which has a value if something in it reports one."""

    def points(look: StoreLook) -> list[Point]:
        return [((), look.process[name])] if name in look.process else []

    return Measure(f"eventproc.{name}", unit, about, (), points)


@attrs.frozen
class _Kind:
    """A kind of object with measures of its own. field: where a look has them; name: the field with their names."""

    label: str
    field: str
    name: str

    def measure(
        self, name: str, unit: str, about: str, value: Value[Any], *, is_counter: bool = False
    ) -> Measure:
        """Return a measure of each object."""
        name_of, value_of = attrgetter(self.name), _getter(value)

        def points(look: StoreLook) -> list[Point]:
            return [((name_of(each),), value_of(each)) for each in getattr(look, self.field)]

        return Measure(f"eventproc.{self.label}.{name}", unit, about, (self.label,), points, is_counter)

    def by_state(
        self,
        name: str,
        unit: str,
        about: str,
        values: Callable[[SupervisorStatus], Mapping[str, int]],
        *,
        is_counter: bool = False,
    ) -> Measure:
        """Return a measure of each object in each of the states that `values` returns."""
        name_of = attrgetter(self.name)

        def points(look: StoreLook) -> Iterator[Point]:
            for each in getattr(look, self.field):
                for state, value in values(each).items():
                    yield (name_of(each), state), value

        labels = (self.label, "state")
        return Measure(f"eventproc.{self.label}.{name}", unit, about, labels, points, is_counter)


_STREAM: Final = _Kind("stream", "streams", "name")
_GROUP: Final = _Kind("group", "groups", "group")
_QUERY: Final = _Kind("query", "queries", "label")
_SUPERVISOR: Final = _Kind("supervisor", "supervisors", "id")


def _total(name: str, unit: str, about: str, field: str) -> Measure:
    return _SUPERVISOR.measure(name, unit, about, f"totals.{field}", is_counter=True)


def _tasks_by_state(found: SupervisorStatus) -> Mapping[str, int]:
    reading, publishing = (
        sum(task.state is TaskState.RUNNING for task in part) for part in (found.active, found.publishing)
    )
    return {"waiting": found.waiting, "reading": reading, "publishing": publishing}


def _ended_by_state(found: SupervisorStatus) -> Mapping[str, int]:
    return {name: getattr(found.totals, name) for name in ("succeeded", "failed", "stopped")}


MEASURES: Final = (
    _one("streams", "{stream}", "Streams and topics of the directory.", "streams_count", counts_names=True),
    _STREAM.measure("events", "{event}", "Events written since creation.", "written.events", is_counter=True),
    _STREAM.measure("bytes", "By", "Bytes written since creation.", "written.bytes", is_counter=True),
    _STREAM.measure("readable_events", "{event}", "Events that are kept.", "readable.events"),
    _STREAM.measure("readable_bytes", "By", "Bytes that are kept.", "readable.bytes"),
    _STREAM.measure("delayed_events", "{event}", "Events that are not due yet.", "delayed"),
    _STREAM.measure("segments", "{segment}", "Active segments.", "segments"),
    _GROUP.measure("lag_events", "{event}", "Events that the group has not finished.", "events"),
    _GROUP.measure("lag_bytes", "By", "Bytes that the group has not finished.", "bytes"),
    _GROUP.measure(
        "lag_seconds",
        "s",
        "Age of the oldest event that it has not finished.",
        lambda each: (each.age_ms or 0) / 1000,
    ),
    _GROUP.measure("readers", "{reader}", "Readers, consumers or processes of the group.", "members"),
    _GROUP.measure(
        "dead_letters", "{event}", "Events that the group gave up, and that wait.", "dead_letters"
    ),
    _GROUP.measure("paused", "{group}", "1 while the group is paused.", "paused"),
    Measure(
        "eventproc.group.state_keys",
        "{key}",
        "Keys of which its processor keeps a value.",
        ("group",),
        lambda look: [((group,), count.keys) for group, count in look.states.items()],
    ),
    Measure(
        "eventproc.group.state_bytes",
        "By",
        "Bytes of these values.",
        ("group",),
        lambda look: [((group,), count.value_bytes) for group, count in look.states.items()],
    ),
    Measure(
        "eventproc.group.watermark_seconds",
        "s",
        "How far event time has come for a processor with timers or windows, since 1970.",
        ("group",),
        lambda look: [((group,), reached_ms / 1000) for group, reached_ms in look.watermarks.items()],
    ),
    Measure(
        "eventproc.group.deliveries",
        "{event}",
        "Events that a share group has taken in and not finished: in flight, available, or set aside for later.",
        ("group", "state"),
        lambda look: look.deliveries.items(),
    ),
    _one(
        "transactions_open",
        "{transaction}",
        "Transactions that are not decided; a joint one counts for each stream.",
        "transactions_open",
        counts_names=True,
    ),
    _one(
        "requests_pending",
        "{request}",
        "Requests to change streams and scopes.",
        "requests_pending",
        counts_names=True,
    ),
    Measure(
        "eventproc.requests",
        "{request}",
        "Requests of the last day, of people and of policies.",
        ("kind", "state", "origin"),
        lambda look: look.requests.items(),
        counts_names=True,
    ),
    Measure(
        "eventproc.tasks",
        "{task}",
        "Tasks of the last day, and those that go on.",
        ("kind", "state"),
        lambda look: look.tasks.items(),
    ),
    _counted("instances", "{instance}", "Openings of the directory that are alive.", "cluster.instances"),
    _counted("servers", "{server}", "Processes that serve Pravega's clients.", "cluster.servers"),
    _one("host_present", "{host}", "1 if an instance runs the requests.", "has_host"),
    _QUERY.measure(
        "batch",
        "{batch}",
        "Number of the batch of the last trigger of a streaming query of Spark, in the process of its driver.",
        lambda each: each.batch or 0,
    ),
    _QUERY.measure("lag_events", "{event}", "Events that it has not read.", "events"),
    _QUERY.measure("lag_bytes", "By", "Bytes that it has not read.", "bytes"),
    _one("database_bytes", "By", "Size of the database, without its log.", "database_bytes"),
    _one(
        "database_free_bytes",
        "By",
        "Bytes of the database's file that hold nothing; 0 on a server.",
        "free_bytes",
    ),
    _one("chunk_files", "{file}", "Chunk files in the long-term store.", lambda look: look.chunks[0]),
    _one("chunk_bytes", "By", "Bytes of the chunk files.", lambda look: look.chunks[1]),
    _counted("ingestion_workers", "{worker}", "Workers of ingestion that are alive.", "living_workers"),
    _counted("ingestion_dead_workers", "{worker}", "Workers that died in the last hour.", "dead_workers"),
    _one(
        "ingestion_slots",
        "{task}",
        "Tasks that the living workers can run.",
        lambda look: sum(each.slots for each in look.living_workers),
    ),
    _one(
        "ingestion_used_slots",
        "{task}",
        "Tasks that they run.",
        lambda look: sum(len(each.tasks) for each in look.living_workers),
    ),
    _SUPERVISOR.measure("healthy", "{supervisor}", "1 unless a person is needed.", "healthy"),
    _SUPERVISOR.by_state(
        "state", "{supervisor}", "1 for the state of the supervisor.", lambda each: {each.state.value: 1}
    ),
    _SUPERVISOR.measure("lag_events", "{event}", "Events that no task has read.", "lag"),
    _SUPERVISOR.by_state("tasks", "{task}", "Tasks that have not ended.", _tasks_by_state),
    _SUPERVISOR.by_state("ended_tasks", "{task}", "Tasks that have ended.", _ended_by_state, is_counter=True),
    _total(
        "events",
        "{event}",
        "Events that tasks have read; by each replica, and again after a failure.",
        "processed",
    ),
    _total("bytes", "By", "Bytes of the payloads of these events.", "processed_bytes"),
    _total("unparseable_events", "{event}", "Events that are no rows of the schema.", "unparseable"),
    _total(
        "thrown_away_rows",
        "{row}",
        "Rows outside of the message times, or refused by the filter.",
        "thrown_away",
    ),
    _total("rows", "{row}", "Rows that were written, after the roll-up.", "rows"),
    _total("publications", "{publication}", "Sequences that were published.", "published"),
    _total(
        "hung_tasks",
        "{task}",
        "Tasks that were replaced because they gave no sign, or made no progress.",
        "hung",
    ),
    _client("send", "sent.messages", "Events that writers of this process have made durable.", "sent"),
    _client(
        "receive",
        "consumed.messages",
        "Events that readers, consumers, processors and workers of this process have read.",
        "read",
    ),
    _process("ready", "{store}", "1 if the store can be written and has a host: what /readyz says."),
    _process("controller_connections", "{connection}", "Connections of the controller."),
    _process("rest_connections", "{connection}", "Connections of REST."),
    _process("watchers", "{caller}", "Callers that watch changes."),
    _process("connections", "{connection}", "Connections of the segment store."),
    _process("strangers", "{connection}", "Connections of the segment store without a valid token."),
    _process("connection_bytes", "By", "Bytes of frames that connections hold."),
    _process("kafka_connections", "{connection}", "Connections of Kafka's clients."),
    _process("kafka_connection_bytes", "By", "Bytes of frames that Kafka's clients hold."),
    _process("containers", "{container}", "Containers of segments that this process owns."),
)
"""All measures. Names of Prometheus stay: dashboards and alerts have them."""

HISTOGRAMS: Final = (
    Histogram(
        "messaging.client.operation.duration",
        "Duration of a send of a writer, from its begin until its events are durable, or it failed.",
        ("stream", "error"),
        lambda db: db.shared[SEND_DURATIONS],
        operation="send",
    ),
    Histogram(
        "eventproc.object_storage.request.duration",
        "Duration of a request to object storage, with its repetitions: get, put, head, list or delete.",
        ("operation", "error"),
        lambda _: REQUEST_DURATIONS,
        is_of_store=False,
    ),
)
"""All durations of this process that are measured while somebody shows them."""
