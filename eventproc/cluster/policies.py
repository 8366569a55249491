"""The policies of streams, at the owner of each stream's bucket: look when the time has come, and submit what is due.

`keep_policies` serves scaling, retention, offload and compaction alike. The epoch of the bucket's owner fences every
request and task that it submits. A stream of a bucket that this instance receives is due immediately.

Crash windows: between the look and the request nothing has happened, and the next look decides again. Afterwards the
request is in the request stream like one of a user. The timers lie in memory: a new owner looks at every stream first,
so the death of an owner delays a look by no more than its pause.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import anyio
import attrs

from eventproc.base.clock import new_id
from eventproc.cluster.background_steps import STOPPED, repeat_step
from eventproc.cluster.buckets import OWNED_BUCKETS
from eventproc.store.catalog import WATCH_CATALOG, streams_with_policies
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import OwnerFenced, Rejected, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.requests import RequestOrigin
from eventproc.store.task_queue import TaskStatus, find_task, forget_task, is_task_open, submit_task
from eventproc.workflows.policies import (
    RETENTION_MS,
    STREAMS_A_STEP,
    CompactTopicTask,
    OffloadTask,
    PassedOffsets,
    PolicyLook,
    look_at_stream,
    wanted_request,
)
from eventproc.workflows.request_runner import submit

LOG = logging.getLogger("eventproc.host")

LOOKS_A_READ: Final = 32
"""Streams that one read looks at. Higher: longer reads, about 0.3 ms for each busy stream; lower: more of them."""

WALK_MS_MIN: Final = 1_000
"""Shortest pause between two walks over the names of all streams, after streams came, went or changed."""

WALK_SHARE: Final = 20
"""A walk pauses at least so many times as long as it took. Higher: a new policy in a large catalog is noticed later."""

WALK_STEP_MS_MAX: Final = WALK_MS_MIN // WALK_SHARE
"""What a step of a walk counts at most. One that took longer did not work: the process was stopped, or waited."""

FAILED_MS: Final = 30_000
"""Pause after a failure that may pass."""

OFFLOAD_MS_MAX: Final = 3_600_000
"""Longest pause between two offloads of a stream that fail one after the other; it doubles from `RETENTION_MS` on.
Higher: events stay longer in the database after the cause has passed; lower: more failed tasks."""


async def keep_policies(db: Database) -> None:
    """Keep the policies of all streams of this instance's buckets, until cancelled or closed.

    It never ends the user's program.
    """
    loop = _PolicyLoop(db)
    buckets = db.shared[OWNED_BUCKETS]
    with db.subscribe([WATCH_CATALOG]) as changes, buckets.notifying(changes):
        await repeat_step(
            partial(loop.run, changes),
            partial(anyio.sleep, FAILED_MS / 1000),
            LOG,
            "the policies of streams wait after a failure",
            expected=(Retryable, OSError),
        )


class _PolicyLoop:
    """What one run of the loop leaves for the next."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._timers = PolicyTimers()
        self._offloads = defaultdict[str, _OffloadMemory](_OffloadMemory)
        """By stream that has a policy."""
        self._walk_at_ms = 0
        self._walked = False
        """Whether every stream with a policy has a timer."""

    async def run(self, changes: Subscription) -> None:
        """Do what is due, and wait until the next run is. After a change or a failure that one walks."""
        try:
            if await changes.wait(await self._do_due()):
                self._walked = False
        except Exception:
            self._walked = False
            raise

    async def _do_due(self) -> int | None:
        """Do what is due; return how long to wait for the next run, None if only a change asks for one."""
        clock = self._db.clock
        if not self._walked and clock.monotonic_ms() >= self._walk_at_ms:
            self._walked = True  # a change during the walk resets it
            took_ms = await self._walk()
            self._walk_at_ms = clock.monotonic_ms() + max(WALK_MS_MIN, WALK_SHARE * took_ms)
        while names := self._timers.take_due(clock.monotonic_ms(), LOOKS_A_READ):
            await self._look_at(names)
        wake_ms = [self._timers.next_ms(), None if self._walked else self._walk_at_ms]
        soonest_ms = min((each for each in wake_ms if each is not None), default=None)
        return None if soonest_ms is None else max(soonest_ms - clock.monotonic_ms(), 0)

    async def _walk(self) -> int:
        """Give every owned stream with a policy a timer; return how many ms that worked."""
        owner_of = self._db.shared[OWNED_BUCKETS].owner_of
        last: str | None = ""
        took_ms, now_ms = 0, self._db.clock.monotonic_ms()
        while last is not None:
            step = partial(streams_with_policies, after=last, limit=STREAMS_A_STEP)
            found, last = await self._db.read(step)
            owned = [each for each in found if owner_of(each) is not None]
            began_ms, now_ms = now_ms, self._db.clock.monotonic_ms()
            took_ms += min(now_ms - began_ms, WALK_STEP_MS_MAX)
            self._timers.add(owned, now_ms)
        return took_ms

    async def _look_at(self, names: list[str]) -> None:
        """Look at streams and submit what they ask for. A stream of another owner loses its timer.

        A stream whose policies cannot be kept is logged, and waits without the others.
        """
        owner_of = self._db.shared[OWNED_BUCKETS].owner_of
        owners = {name: owner for name in names if (owner := owner_of(name)) is not None}
        now_ms = self._db.clock.monotonic_ms()
        memories = {name: self._offloads[name] for name in owners}
        passed = {name: each.passed if each.due_ms <= now_ms else None for name, each in memories.items()}
        try:
            looks = await self._db.read(partial(_look, passed=passed))
            for without in set(names).difference(look.stream for look in looks):
                self._offloads.pop(without, None)
            for look in looks:
                memory = memories[look.stream]
                if memory.due_ms <= now_ms:
                    memory.due_ms = now_ms + RETENTION_MS
                for request in look.requests:
                    await self._submit(owners[look.stream], look.stream, request.kind)
                next_ms = self._db.clock.monotonic_ms() + look.next_ms
                self._timers.set(look.stream, min(next_ms, memory.due_ms))
        except STOPPED:
            raise
        except (Retryable, OSError):
            self._timers.add(owners, self._db.clock.monotonic_ms() + FAILED_MS)
            raise
        except Exception:
            if len(owners) > 1:
                for name in owners:
                    if name not in self._timers:
                        await self._look_at([name])
                return
            LOG.exception("%s: its policies wait after a failure", *owners)
            self._timers.add(owners, self._db.clock.monotonic_ms() + FAILED_MS)

    async def _submit(self, owner: Owner, name: str, kind: str) -> None:
        new, memory = new_id(self._db.clock), self._offloads[name]
        step = partial(_submit, owner=owner, name=name, kind=kind, request_id=new, memory=memory)
        try:
            if (pause_ms := await self._db.write(step, step=Step.REQUEST_SUBMIT)) is not None:
                memory.last_task, memory.pause_ms = new, pause_ms
                memory.due_ms = self._db.clock.monotonic_ms() + pause_ms
        except OwnerFenced:
            LOG.info("%s: another instance keeps its policies", name)
        except Rejected as why:  # a request of a user came first, or the stream is being sealed
            LOG.info("%s: the policy waits: %s", name, why)


@attrs.define
class _OffloadMemory:
    """What the owner of a stream's bucket remembers of its offload or compaction. A new owner begins without it.

    last_task: the last one that the policy got here. Its outcome goes when the next one is submitted, so that the
    offloads of busy streams do not hide the tasks of people.
    pause_ms: how long to wait after it, longer if others failed before. due_ms: when to look again, monotonic.
    """

    passed: PassedOffsets = attrs.field(factory=dict)
    last_task: str | None = None
    pause_ms: int = RETENTION_MS
    due_ms: int = 0


class PolicyTimers:
    """When to look at which stream, in monotonic ms. Each stream has one entry."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}

    def add(self, names: Iterable[str], at_ms: int) -> None:
        """Look at that time at those of the streams that have no entry yet; the others keep their entries."""
        for name in names:
            if name not in self._due:
                self.set(name, at_ms)

    def set(self, name: str, at_ms: int) -> None:
        """Look at the stream at that time."""
        self._due[name] = at_ms
        heapq.heappush(self._queue, (at_ms, name))

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def take_due(self, now_ms: int, most: int) -> list[str]:
        """Remove and return the streams whose time has come, at most so many, the longest due first."""
        names: list[str] = []
        while self._queue and self._queue[0][0] <= now_ms and len(names) < most:
            at_ms, name = heapq.heappop(self._queue)
            if self._due.get(name) == at_ms:
                del self._due[name]
                names.append(name)
        return names

    def next_ms(self) -> int | None:
        """Return when the next stream is due, None if there is none."""
        return self._queue[0][0] if self._queue else None


def _look(tx: Tx, passed: Mapping[str, PassedOffsets | None]) -> list[PolicyLook]:
    looks = (look_at_stream(tx, name, offsets) for name, offsets in passed.items())
    return [look for look in looks if look is not None]


def _submit(
    tx: Tx, owner: Owner, name: str, kind: str, request_id: str, memory: _OffloadMemory
) -> int | None:
    """Submit what the policy asks for in this transaction: groups and segments may have changed since the look.

    Return the pause before the next offload if one was submitted, None otherwise.
    """
    owner.check(tx)
    wanted = wanted_request(tx, name, kind, memory.passed)
    if wanted is None:
        return None
    pause_ms = None
    if not isinstance(wanted, OffloadTask | CompactTopicTask):
        submit(tx, wanted, request_id, origin=RequestOrigin.POLICY)
    elif is_task_open(tx, kind, wanted.resource):
        return None  # it moves what is due; what becomes due meanwhile is for the next look
    else:
        pause_ms = RETENTION_MS
        if memory.last_task is not None and (last := find_task(tx, memory.last_task)) is not None:
            if last.status is TaskStatus.FAILED:
                pause_ms = min(2 * memory.pause_ms, OFFLOAD_MS_MAX)
            forget_task(tx, last.id)
        arguments = attrs.asdict(wanted)
        submit_task(tx, task_id=request_id, kind=kind, resource=wanted.resource, arguments=arguments)
    LOG.info("%s: the policy asks for %s %s", name, kind, request_id)
    return pause_ms
