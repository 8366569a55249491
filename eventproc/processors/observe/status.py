"""The status of a processor: counters of this process, what each process publishes, and the description of all."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from eventproc.groups import (
    GROUP,
    PROCESSOR,
    GroupDescription,
    ShareGroupDescription,
    describe_any,
    list_groups,
    set_paused,
)
from eventproc.processors.errors import NotAProcessorGroup, failure_text
from eventproc.processors.observe.call_durations import CallDurations, CallMeter
from eventproc.store.database import Peers, Tx
from eventproc.store.groups import online_members
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import get
from eventproc.store.records.plain import derived

ProcessorActivity: TypeAlias = Literal["running", "paused", "stopped", "stream deleted"]
"""What a processor is doing, in all processes; see `ProcessorDescription.state`."""


@attrs.frozen(kw_only=True)
class Blocker:
    """The call that has been running or failing for longest.

    Attributes:
        stream: The stream of its event.
        segment: The segment, such as "0.0".
        number: Number of the event in its segment.
        offset: Offset of the event in its segment.
        key: Routing key of the event, None for none.
        attempt: Number of the present or next call, from 1.
        since_ms: When its first call began (wall clock, ms since 1970).
        error: Error of the last failed call, None while the first runs.
    """

    stream: str
    segment: str
    number: int
    offset: int
    key: str | None
    attempt: int
    since_ms: int
    error: str | None


class Counters:
    """Counts of one processor in this process since its start.

    finished: events that were handled, skipped or became dead letters.
    committed: those of them that are durable.
    last_commit_ms: wall clock, None before the first commit.
    commit_age_ms: age of the last event when that commit was durable; None before the first one that finished an event.
    last_error: error of the last failed call.
    calls: measures the calls.
    """

    def __init__(self) -> None:
        self.calls = CallMeter()
        self.commit_age_ms: int | None = None
        self.finished = 0
        self.committed = 0
        self.failed_calls = 0
        self.dead_letters = 0
        self.skipped = 0
        self.emitted = 0
        self.restarts = 0
        self.last_commit_ms: int | None = None
        self.last_error: str | None = None

    def note_failure(self, error: Exception) -> None:
        """Count a failed call."""
        self.failed_calls += 1
        self.last_error = failure_text(error)

    def note_commit(self, finished: int, wall_ms: int, appended_ms: int | None) -> None:
        """Note a durable commit.

        finished: how many events were finished when it was taken. appended_ms: when the last of them was appended.
        """
        self.last_commit_ms = wall_ms
        if appended_ms is not None and finished != self.committed:
            self.commit_age_ms = max(0, wall_ms - appended_ms)  # clocks of machines differ
        self.committed = finished


class ProcessorState(enum.StrEnum):
    """What a processor is doing in this process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class ProcessorStatus:
    """The status of a processor at one moment. The lag is its group's, in all processes; the rest is this process.

    Attributes:
        name: The processor's name.
        group: Its group, as "scope/group".
        order: "segment", "key" or "none".
        state: What it is doing.
        lag_events: Events that are not durably finished.
        lag_bytes: Their bytes, as stored.
        lag_ms: How long ago the first of them was appended, in ms; None without one.
        segments: Segments that this process owns.
        in_flight: Calls that run.
        waiting: Events that were handed out and are not finished.
        retrying: Events of them whose last call failed, and that wait for the next one.
        finished: Events finished since the start.
        emitted: Events emitted durably since the start.
        failed_calls: Calls that failed since the start.
        dead_letters: Events that became dead letters since the start.
        skipped: Events that were skipped since the start.
        truncated: Events that were truncated before they were handled, since the start.
        restarts: Handlers restarted since the start.
        last_commit_ms: When progress was last committed (wall clock, ms since 1970); None before the first commit.
        commit_age_ms: How old the last event was when that commit was durable, since it was appended.
        calls: How long calls of the handler take; None before the first one ended.
        last_error: Error of the last failed call.
        blocker: The call that has been running or failing for longest, at least 1 s.
        error: The error that stopped the processor, None otherwise.
    """

    name: str
    group: str
    order: str
    state: ProcessorState
    lag_events: int
    lag_bytes: int
    lag_ms: int | None
    segments: int
    in_flight: int
    waiting: int
    retrying: int
    finished: int
    emitted: int
    failed_calls: int
    dead_letters: int
    skipped: int
    truncated: int
    restarts: int
    last_commit_ms: int | None
    commit_age_ms: int | None
    calls: CallDurations | None
    last_error: str | None
    blocker: Blocker | None
    error: str | None


@attrs.frozen(kw_only=True)
class MemberStatus:
    """What a processor in one process publishes for the others, a few seconds late; counts since its start there.

    retrying: as in `ProcessorStatus`, now. calls, commit_age_ms: as there.
    """

    processor: str
    state: ProcessorState
    failed_calls: int
    dead_letters: int
    skipped: int
    truncated: int
    restarts: int
    last_error: str | None
    blocker: Blocker | None
    retrying: int = 0
    calls: CallDurations | None = None
    commit_age_ms: int | None = None

    def differs_in_durations_alone(self, other: MemberStatus) -> bool:
        """Return whether everything except how long calls and commits take is equal."""
        return attrs.evolve(self, calls=other.calls, commit_age_ms=other.commit_age_ms) == other

    def to_json(self) -> str:
        """Return the text that the group stores."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> MemberStatus | None:
        """Return what `to_json` wrote; None for the different text of another version of eventproc."""
        try:
            fields: Mapping[str, object] = json.loads(text)
            blocker, calls = fields["blocker"], fields.get("calls")
            read = dict(fields) | {
                "state": ProcessorState(str(fields["state"])),
                "blocker": Blocker(**blocker) if isinstance(blocker, dict) else None,
                "calls": CallDurations(**calls) if isinstance(calls, dict) else None,
            }
            return cls(**read)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):
            return None


@attrs.frozen(kw_only=True)
class ProcessorMember:
    """One process that takes part in a processor.

    Attributes:
        reader: Its name in the group.
        pid: Its process id; None in memory.
        alive: Whether the process exists; it may be suspended.
        joined_ms: When it joined (wall clock, ms since 1970).
        segments: How many segments it owns.
        status: What it published last, None before the first time.
    """

    reader: str
    pid: int | None
    alive: bool
    joined_ms: int
    segments: int
    status: MemberStatus | None


@attrs.frozen
class ProcessorDescription:
    """A processor, or a worker, in all processes at one moment.

    Attributes:
        group: Its streams, lag, segments and their owners; that of a worker is a share group, whose segments have none.
        members: The processes that take part.
    """

    __repr__ = short_repr_of_fields

    group: GroupDescription | ShareGroupDescription
    members: tuple[ProcessorMember, ...]

    @derived
    def name(self) -> str:
        """The group's name, "scope/group"."""
        return self.group.name

    @derived
    def state(self) -> ProcessorActivity:
        """Whether processes run it; "stream deleted": its group must be reset."""
        if isinstance(self.group, GroupDescription) and self.group.replaced:
            return "stream deleted"
        if self.group.paused:
            return "paused"
        return "running" if self.alive else "stopped"

    @derived
    def alive(self) -> int:
        """How many of its processes exist."""
        return sum(each.alive for each in self.members)

    @derived
    def blocker(self) -> Blocker | None:
        """The call that has been running or failing for longest, in any process that exists."""
        found = [each.blocker for each in self._published]
        return min((each for each in found if each is not None), key=lambda each: each.since_ms, default=None)

    @derived
    def calls(self) -> CallDurations | None:
        """How long calls of the handler take, in the process where they take longest."""
        return slowest(self._published)

    @derived
    def commit_age_ms(self) -> int | None:
        """How old the last event was at the last commit, in the process where that took longest."""
        return oldest_commit(self._published)

    @property
    def _published(self) -> list[MemberStatus]:
        return [each.status for each in self.members if each.alive and each.status is not None]


def slowest(found: Iterable[MemberStatus]) -> CallDurations | None:
    """Return how long calls take in the process where they take longest; None if none has ended."""
    known = (each.calls for each in found if each.calls is not None)
    return max(known, key=lambda each: (each.p99_ms, each.mean_ms), default=None)


def oldest_commit(found: Iterable[MemberStatus]) -> int | None:
    """Return how old the last event was at the last commit, in the process where that took longest."""
    return max((each.commit_age_ms for each in found if each.commit_age_ms is not None), default=None)


def describe_processor(tx: Tx, peers: Peers, name: str) -> ProcessorDescription:
    """Return the processor or the worker whose group is `name`. Raises NotFound and NotAProcessorGroup.

    peers: the openings of the database.
    Cost: as `describe_any`, and 10 us for each member.
    """
    _verify_kind(tx, name)
    group = describe_any(tx, name, peers)
    owned = {each.reader: each.owned for each in group.members} if isinstance(group, GroupDescription) else {}
    members = tuple(
        ProcessorMember(
            reader=reader,
            pid=peers.pid_of(instance),
            alive=peers.is_alive(instance),
            joined_ms=joined_ms,
            segments=owned.get(reader, 0),
            status=None if status is None else MemberStatus.from_json(status),
        )
        for reader, instance, joined_ms, status in online_members(tx, name)
    )
    return ProcessorDescription(group, members)


def describe_processors(tx: Tx, peers: Peers, page: ListPage = COMPLETE) -> list[ProcessorDescription]:
    """Return the processors and workers, by scope and name of their groups. Cost: as `list_groups`."""
    found = list_groups(tx, None, page, kinds=[PROCESSOR], workers=True)
    return [describe_processor(tx, peers, each.name) for each in found]


def published_statuses(tx: Tx, group: str) -> list[MemberStatus]:
    """Return what the processes of a processor or a worker published. One query, and 10 us for each."""
    texts = [text for *_, text in online_members(tx, group) if text is not None]
    return [status for status in map(MemberStatus.from_json, texts) if status is not None]


def pause_processor(tx: Tx, name: str, *, paused: bool) -> None:
    """Pause a processor or a worker in all processes, or let it continue. Raises NotFound and NotAProcessorGroup."""
    _verify_kind(tx, name)
    set_paused(tx, name, paused)


def _verify_kind(tx: Tx, name: str) -> None:
    group = get(tx, GROUP, name).value
    if group.kind != PROCESSOR and not group.worker:
        raise NotAProcessorGroup(group=name, kind=group.kind)
