"""The status of a processor: counters of this process, what each process publishes, and the description of all."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from pathlib import Path

import attrs

from eventproc.groups import PROCESSOR, GroupDescription, describe_group, get_group, list_groups, set_paused
from eventproc.processors.errors import NotAProcessorGroup, failure_text
from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of


@attrs.frozen(kw_only=True)
class Blocker:
    """The call that has been under way, or failing, for longest.

    since_ms: wall clock of its first attempt. error: of the last failed attempt, None while the first runs.
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
    """Counts of one processor in this process since it was started; `committed` is the part that is durable.

    finished: events, however that came. last_commit_ms: wall clock, None before the first. last_error: of a call.
    """

    def __init__(self) -> None:
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


class ProcessorState(enum.StrEnum):
    """What a processor is doing in this process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class ProcessorStatus:
    """A processor, of one moment.

    Of its group, in all processes: lag_events, lag_bytes (not finished durably), lag_ms (how long ago the first of
    them was appended, None without one). Of this process: segments owned, in_flight (calls running), waiting
    (read, not finished), counts since the start, last_commit_ms (wall clock), the blocker, and the error that
    stopped it.
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
    finished: int
    emitted: int
    failed_calls: int
    dead_letters: int
    skipped: int
    truncated: int
    restarts: int
    last_commit_ms: int | None
    last_error: str | None
    blocker: Blocker | None
    error: str | None


@attrs.frozen(kw_only=True)
class MemberStatus:
    """What a processor in one process tells the others, a few seconds late; counts since it was started there."""

    processor: str
    state: ProcessorState
    failed_calls: int
    dead_letters: int
    skipped: int
    truncated: int
    restarts: int
    last_error: str | None
    blocker: Blocker | None

    def to_json(self) -> str:
        """Return it as the group keeps it."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> MemberStatus | None:
        """Return what `to_json` wrote; None for what another version of this library wrote otherwise."""
        try:
            fields: Mapping[str, object] = json.loads(text)
            blocker = fields["blocker"]
            read = dict(fields) | {
                "state": ProcessorState(str(fields["state"])),
                "blocker": Blocker(**blocker) if isinstance(blocker, dict) else None,
            }
            return cls(**read)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):
            return None


@attrs.frozen(kw_only=True)
class ProcessorMember:
    """One process's part in a processor. pid: None in memory. alive: whether that process is there, if stopped.

    segments: how many it owns. status: what it said last, None before the first time.
    """

    reader: str
    pid: int | None
    alive: bool
    joined_ms: int
    segments: int
    status: MemberStatus | None


@attrs.frozen
class ProcessorDescription:
    """A processor in all processes, of one moment. group: streams, lag, segments and their owners."""

    group: GroupDescription
    members: tuple[ProcessorMember, ...]

    @property
    def name(self) -> str:
        """The group's name, "scope/group"."""
        return self.group.name

    @property
    def alive(self) -> int:
        """How many processes work in it."""
        return sum(each.alive for each in self.members)

    @property
    def last_progress_ms(self) -> int | None:
        """When progress was last made durable in a segment that is not finished, wall clock."""
        return max((each.moved_ms for each in self.group.segments if each.moved_ms is not None), default=None)

    @property
    def blocker(self) -> Blocker | None:
        """The call that has been under way, or failing, for longest, of the processes that live."""
        found = [each.status.blocker for each in self.members if each.alive and each.status is not None]
        return min((each for each in found if each is not None), key=lambda each: each.since_ms, default=None)


def describe_processor(tx: Tx, path: Path | None, name: str) -> ProcessorDescription:
    """Return the processor whose group is `name`. Raises NotFound, NotAProcessorGroup.

    path: the directory, None in memory. Cost: see `describe_group`; 10 us a member.
    """
    verify_processor(tx, name)
    group = describe_group(tx, name)
    members = tuple(
        ProcessorMember(
            reader=each.reader,
            pid=None if path is None else pid_of(path, each.instance),
            alive=path is None or is_alive(path, each.instance),
            joined_ms=each.joined_ms,
            segments=each.owned,
            status=None if each.status is None else MemberStatus.from_json(each.status),
        )
        for each in group.members
    )
    return ProcessorDescription(group, members)


def describe_processors(tx: Tx, path: Path | None) -> list[ProcessorDescription]:
    """Return all processors, by name of their groups."""
    names = [each.name for each in list_groups(tx) if each.kind == PROCESSOR]
    return [describe_processor(tx, path, name) for name in names]


def pause_processor(tx: Tx, name: str, *, paused: bool) -> None:
    """Pause a processor, or let it go on, in all processes. Raises NotFound, NotAProcessorGroup."""
    verify_processor(tx, name)
    set_paused(tx, name, paused)


def verify_processor(tx: Tx, name: str) -> None:
    """Raise NotFound unless there is a group `name`, and NotAProcessorGroup when it is one of readers."""
    kind = get_group(tx, name).kind
    if kind != PROCESSOR:
        raise NotAProcessorGroup(group=name, kind=kind)
