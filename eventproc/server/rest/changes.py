"""What changes in the directory, for callers that watch it: one source per process, and a bounded queue per caller.

Requests are followed in the internal stream that holds them, so that a position in it is a place to resume at. A
request is reported when it is found there, and again with its outcome. Scopes, groups and instances have no such
positions: they are compared with what was seen before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

import anyio
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from eventproc.cluster.membership import LOOK_MS
from eventproc.runtime import Eventproc
from eventproc.runtime.measures import reporting
from eventproc.server.access.authority import Caller
from eventproc.server.rest.operator_calls import RequestReport
from eventproc.server.rest.positions import Position, PositionSeal, format_position
from eventproc.server.rest.problems import HttpProblem
from eventproc.store.access.permissions import EVERYTHING, Permission
from eventproc.store.catalog import REQUEST_STREAM, SYSTEM_EPOCH, WATCH_SCOPES, scope_names
from eventproc.store.database import Tx, Watch
from eventproc.store.groups import OWNED, SHARE, WATCH_GROUPS, group_names
from eventproc.store.model.errors import EventprocError, Retryable
from eventproc.store.model.ids import SegmentId
from eventproc.store.progress import get_progress
from eventproc.store.records.plain import STRICT
from eventproc.store.requests import OUTCOMES, Request, RequestStatus, find_request
from eventproc.store.segments import is_event_boundary, read
from eventproc.streams.fetch import watch_stream

LOG = logging.getLogger("eventproc.server")

QUEUE_EVENTS: Final = 1_000
"""Events of about 0.4 kB that wait for one caller. A caller that is further behind is disconnected. Higher: more
memory."""

WATCHERS_MAX: Final = 64
"""Callers that watch in one process. Higher: more connections, and 0.4 MB for each one that is slow."""

LAST_EVENT_S: Final = 5
"""How long a caller has to take its last events when the server ends its stream, in s."""

RETRY_MS: Final = 1_000
"""How long to wait before the directory is read again after an error that is transient."""

TOO_SLOW: Final = (
    f"more than {QUEUE_EVENTS:,} events were waiting; read faster, and continue from the last id"
)
SERVER_ENDS: Final = "the server ends; continue at another one from the last id"

Names: TypeAlias = Mapping[str, frozenset[str]]
"""The names of what exists, by the name of the event that reports a change of it."""

_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@attrs.frozen
class NameChange:
    """A scope, a reader group or a share group that was created or deleted."""

    name: str
    change: Literal["created", "deleted"]


@attrs.frozen
class InstanceChange:
    """An instance that opened the directory, or that was closed or died. pid: its process; None in memory."""

    id: str
    pid: int | None
    change: Literal["added", "removed"]


@attrs.frozen
class Notice:
    """A sentence to the caller: why it must read the lists again, or why its stream ends."""

    reason: str


@attrs.frozen
class Change:
    """An event. resource: its readers need READ on this; None: every caller gets it. position: where to resume."""

    name: str
    resource: str | None
    data: str
    position: Position | None = None

    def text(self, seal: PositionSeal | None = None) -> str:
        """Return the event as it is sent, in lines. seal: of a caller that may not know the place."""
        if self.position is None:
            line = ""
        else:
            line = f"id: {seal.seal(self.position) if seal else format_position(self.position)}\n"
        return f"event: {self.name}\n{line}data: {self.data}\n\n"


def new_change(name: str, resource: str | None, value: object, position: Position | None = None) -> Change:
    """Return an event with a value as its data."""
    return Change(name, resource, _ENCODE(STRICT.unstructure(value)), position)


# Requests.


@attrs.frozen
class FollowedRequests:
    """How far the stream of requests was read, and the requests before that without an outcome, by their offset."""

    read: Position
    pending: Mapping[SegmentId, Mapping[int, str]] = attrs.field(factory=dict)


@attrs.frozen
class RequestChanges:
    """What follows. events: one per request that is new or has an outcome. is_all: whether nothing is left to read."""

    followed: FollowedRequests
    events: list[Change]
    is_all: bool


def begin_requests(tx: Tx) -> FollowedRequests:
    """Return the place where the host is: every request before it has an outcome."""
    return FollowedRequests(
        {
            segment: get_progress(tx, REQUEST_STREAM.name, REQUEST_STREAM.stream_id, segment).offset
            for segment in SYSTEM_EPOCH.ids
        }
    )


def is_kept(tx: Tx, position: Position) -> bool:
    """Return whether the requests behind a position can be read: it is one of this directory, and not truncated."""
    return all(
        is_event_boundary(tx, REQUEST_STREAM.stream_id, each, at_offset)
        for each, at_offset in position.items()
    )


def follow_requests(tx: Tx, before: FollowedRequests) -> RequestChanges | None:
    """Return what follows, the oldest change first; None if requests were truncated before they were read.

    Cost: one read of the stream, and a look-up of each request without an outcome.
    """
    wanted: dict[SegmentId, tuple[int, int | None]] = {each: (at, None) for each, at in before.read.items()}
    found = read(tx, REQUEST_STREAM.stream_id, wanted)
    if any(before.read[segment] < state.head for segment, state in found.states.items()):
        return None
    offsets = dict(before.read)
    pending = {segment: dict(before.pending.get(segment, {})) for segment in offsets}
    new: set[str] = set()
    for run in found.runs:
        for event in run.events(REQUEST_STREAM.name):
            pending[run.segment][event.offset] = event.payload.decode()
            new.add(event.payload.decode())
        offsets[run.segment] = run.end
    changed: list[tuple[int, SegmentId, int, Request]] = []
    for segment, waiting in pending.items():
        for offset, request_id in list(waiting.items()):
            request = find_request(tx, request_id)
            if request is None:  # an outcome of a policy, which a later one has replaced
                del waiting[offset]
            elif request.status is not RequestStatus.PENDING or request_id in new:
                changed.append((request.finished_ms or request.created_ms, segment, offset, request))
    events: list[Change] = []
    for _, segment, offset, request in sorted(changed, key=lambda each: each[:3]):
        if request.status is not RequestStatus.PENDING:
            del pending[segment][offset]
        reported = {each: next(iter(pending[each]), offsets[each]) for each in offsets}
        events.append(new_change("request", request.target, RequestReport.of(request), reported))
    return RequestChanges(FollowedRequests(offsets, pending), events, is_all=not found.runs)


def _probe_outcomes(tx: Tx) -> Hashable:
    return tuple(
        str(get_progress(tx, REQUEST_STREAM.name, REQUEST_STREAM.stream_id, segment))
        for segment in SYSTEM_EPOCH.ids
    )


WATCH_OUTCOMES: Final = Watch(OUTCOMES, _probe_outcomes)
"""What to subscribe to in order to learn of outcomes, whichever process runs the requests."""


# Callers.


class Watcher:
    """A caller that watches.

    caller: who it is. seal: of places, for a caller that may not know them.
    deadline: ends its response; it is set when its stream ends.
    """

    def __init__(self, caller: Caller, seal: PositionSeal) -> None:
        self.caller = caller
        self._seal = seal
        self.deadline = anyio.CancelScope()
        self.end_reason = ""
        self._send: MemoryObjectSendStream[Change]
        self._receive: MemoryObjectReceiveStream[Change]
        self._send, self._receive = anyio.create_memory_object_stream[Change](QUEUE_EVENTS)

    def offer(self, change: Change) -> None:
        """Queue an event if the caller may read it. A caller that is too far behind gets the end of its stream."""
        if self.end_reason or not self.may_read(change):
            return
        try:
            self._send.send_nowait(change)
        except anyio.WouldBlock:
            self.end(TOO_SLOW)

    def may_read(self, change: Change) -> bool:
        """Return whether the caller may read an event."""
        return change.resource is None or self.caller.may(Permission.READ, change.resource)

    def text(self, change: Change) -> str:
        """Return an event as the caller gets it."""
        return change.text(None if self.caller.readable is None else self._seal)

    def end(self, reason: str) -> None:
        """End the stream after what is queued; the caller has 5 s to take it."""
        if not self.end_reason:
            self.end_reason = reason
            self.deadline.deadline = anyio.current_time() + LAST_EVENT_S
            self._send.close()

    async def next(self, timeout_s: float) -> Change | None:
        """Return the next event, or None after the time. Raises EndOfStream at the end."""
        with anyio.move_on_after(timeout_s):
            return await self._receive.receive()
        return None

    def close(self) -> None:
        """Free the queue."""
        self._send.close()
        self._receive.close()


class ChangeFeed:
    """Follows the directory while callers watch it, and gives each of them what it may read. Run `run` meanwhile."""

    def __init__(self, ep: Eventproc) -> None:
        self._ep = ep
        self._watchers: dict[Watcher, None] = {}
        self._watched = anyio.Event()
        self._following = anyio.Event()
        self._ending = ""
        self._missed = ""  # why changes were missed; its watchers are not notified of that yet
        self._names: Names = {}
        self._instances: dict[str, int | None] = {}

    @property
    def watchers(self) -> int:
        """How many callers watch."""
        return len(self._watchers)

    def add(self, caller: Caller, seal: PositionSeal) -> Watcher:
        """Return a new watcher, which must be removed. Raises HttpProblem if there are too many, or at the end."""
        if self._ending or len(self._watchers) >= WATCHERS_MAX:
            reason = self._ending or f"{WATCHERS_MAX} callers watch this server already; end one of them"
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "1"})
        watcher = Watcher(caller, seal)
        self._watchers[watcher] = None
        self._watched.set()
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        self._watchers.pop(watcher, None)
        watcher.close()

    def end(self, reason: str = SERVER_ENDS) -> None:
        """End the streams of all watchers, and accept no more."""
        self._ending = reason
        for each in self._watchers:
            each.end(reason)
        self._following.set()

    async def wait_following(self) -> None:
        """Wait until changes from now on are reported."""
        await self._following.wait()

    async def run(self) -> None:
        """Follow the directory whenever somebody watches, until cancelled or until the directory is closed."""
        with reporting(self._ep.db, {"watchers": lambda: self.watchers}):
            while not self._ending:
                await self._watched.wait()
                try:
                    await self._follow()
                except Retryable as why:
                    LOG.warning("cannot follow the changes; trying again: %s", why)
                    self._missed = f"the server could not read for a while; read the lists again: {why}"
                    await anyio.sleep(RETRY_MS / 1000)
                except EventprocError as why:
                    self.end(f"the server cannot follow the directory any more: {why}")

    async def _follow(self) -> None:
        """Report changes until nobody watches."""
        db = self._ep.db
        self._instances = self._live()
        watches = [
            watch_stream(REQUEST_STREAM.stream_id),
            WATCH_OUTCOMES,
            WATCH_GROUPS,
            WATCH_SCOPES,
        ]
        with db.subscribe(watches) as changes:
            followed, self._names = await db.read(_begin)
            self._offer_missed()
            while self._watchers:
                self._following.set()
                changed = await changes.wait(LOOK_MS)
                self._offer(self._instance_changes())
                if changed:
                    followed = await self._report(followed)
        self._watched, self._following = anyio.Event(), anyio.Event()

    async def _report(self, followed: FollowedRequests) -> FollowedRequests:
        """Offer what was committed; return how far that is."""
        while True:
            found, names = await self._ep.db.read(partial(_look, before=followed))
            before, self._names = self._names, names
            self._offer(_name_changes(before, names))
            if found is None:
                begun, self._names = await self._ep.db.read(_begin)
                self._missed = "requests were truncated before the server read them; read the lists again"
                self._offer_missed()
                return begun
            self._offer(found.events)
            if found.is_all:
                return found.followed
            followed = found.followed

    def _offer_missed(self) -> None:
        """Tell watchers to read the lists again if changes were missed, once later changes are reported."""
        if self._missed:
            self._offer([new_change("reset", None, Notice(self._missed))])
            self._missed = ""

    def _live(self) -> dict[str, int | None]:
        peers = self._ep.db.peers
        return {each: peers.pid_of(each) for each in peers.live()}

    def _instance_changes(self) -> list[Change]:
        known, live = self._instances, self._ep.db.peers.live()
        gone = [InstanceChange(each, known.pop(each), "removed") for each in [*known] if each not in live]
        come = [each for each in live if each not in known]
        known.update((each, self._ep.db.peers.pid_of(each)) for each in come)
        added = [InstanceChange(each, known[each], "added") for each in come]
        return [new_change("instance", EVERYTHING, each) for each in (*gone, *added)]

    def _offer(self, changes: Collection[Change]) -> None:
        for each in changes:
            for watcher in self._watchers:
                watcher.offer(each)


def _begin(tx: Tx) -> tuple[FollowedRequests, Names]:
    """Return the pending requests, and the names. Requests that have an outcome already are nobody's news."""
    followed = begin_requests(tx)
    while True:
        found = follow_requests(tx, followed)
        if found is None:  # impossible: the stream is truncated up to the host's place at most
            return followed, _read_names(tx)
        followed = found.followed
        if found.is_all:
            return followed, _read_names(tx)


def _look(tx: Tx, before: FollowedRequests) -> tuple[RequestChanges | None, Names]:
    return follow_requests(tx, before), _read_names(tx)


def _read_names(tx: Tx) -> Names:
    """Return what exists, by the name of the event that reports a change of it."""
    return {
        "scope": frozenset(scope_names(tx)),
        "group": frozenset(group_names(tx, kinds=OWNED)),
        "share": frozenset(group_names(tx, kinds=[SHARE])),
    }


def _name_changes(before: Names, after: Names) -> list[Change]:
    found: list[Change] = []
    for kind in after:
        gone = [NameChange(each, "deleted") for each in sorted(before[kind] - after[kind])]
        come = [NameChange(each, "created") for each in sorted(after[kind] - before[kind])]
        found += [new_change(kind, each.name, each) for each in (*gone, *come)]
    return found
