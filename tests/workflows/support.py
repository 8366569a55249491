"""Support for the tests of workflows: a system in memory whose processes die at chosen commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import anyio
import attrs

import eventproc
from eventproc.base.clock import new_id
from eventproc.cluster.host import CONTROLLER
from eventproc.cluster.internal_processors import INTERNAL_PROCESSORS, run_internal_processors
from eventproc.runtime import Eventproc
from eventproc.store.catalog import REQUEST_STREAM, SCOPE, STREAM, StreamRecord, get_stream
from eventproc.store.catalog.stream_records import EPOCH
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner, claim
from eventproc.store.progress import EventRef
from eventproc.store.records import Versioned, get, keys
from eventproc.store.requests import Request
from eventproc.store.segments import read
from eventproc.testing import Deaths, VirtualClock, check, run_until_death
from eventproc.workflows.requests import AnyRequest
from eventproc.workflows.sweeps import free_due

FEW_WORKERS = tuple(attrs.evolve(each, concurrency=min(each.concurrency, 4)) for each in INTERNAL_PROCESSORS)
"""The host's processors with few workers: starting workers takes half the time of a short life."""


@attrs.frozen
class Life:
    """An open memory without a host of its own: `run` is one, for as long as there is something to do."""

    ep: Eventproc
    faults: Deaths
    clock: VirtualClock

    @property
    def db(self) -> Database:
        return self.ep.db

    def new_id(self) -> str:
        return new_id(self.clock)

    async def claim(self) -> Owner:
        return await self.db.write(partial(claim, name=CONTROLLER, instance="test"))

    async def run(self) -> None:
        """Be the host until no request is pending and nothing is left to reap."""
        owner = await self.claim()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_internal_processors, self.db, owner, FEW_WORKERS)
            for (request_id,) in await self.db.read(_pending):
                await self.ep.requests.wait(request_id)
            tasks.cancel_scope.cancel()
        while await self.db.write(owner.fencing(free_due)):
            pass

    async def perform(self, request: AnyRequest, *, request_id: str | None = None) -> Request:
        """Submit, run, and return what became of it; a refusal at the door is raised."""
        submitted = await self.ep.requests.submit(request, request_id=request_id)
        await self.run()
        return await self.ep.requests.get(submitted.id)

    async def done(self, request: AnyRequest) -> Request:
        """Submit and run; raise what it was refused for."""
        ended = await self.perform(request)
        if ended.error is not None:
            raise ended.error
        return ended

    async def record(self, name: str) -> Versioned[StreamRecord]:
        return await self.db.read(lambda tx: get_stream(tx, name))

    async def check(self) -> None:
        await check(self.db)


@asynccontextmanager
async def open_life() -> AsyncIterator[Life]:
    faults, clock = Deaths(), VirtualClock()
    async with eventproc.open_memory(host=False, clock=clock, faults=faults) as ep:
        await ep.create_scope("s")
        yield Life(ep, faults, clock)


def event_of(request_id: str, tx: Tx) -> EventRef:
    """Return the reference to the event of a request, as its processor makes it."""
    wanted = {SegmentId(number): (0, None) for number in range(2)}
    for run in read(tx, REQUEST_STREAM.stream_id, wanted).runs:
        for event in run.events(REQUEST_STREAM.name):
            if event.payload.decode() == request_id:
                return EventRef.of(event, group=REQUEST_STREAM.name, stream_id=REQUEST_STREAM.stream_id)
    raise AssertionError(f"no event of {request_id}")


Act: TypeAlias = Callable[[Life], Awaitable[None]]


async def nothing(life: Life) -> None:
    """Prepare or verify nothing."""


async def die_everywhere(
    when: str, main: Act, *, prepare: Act = nothing, verify: Act, rerun: bool = True
) -> int:
    """Run `main` once for each of its commits, dying "before" or "after" that one, then, if `rerun`, again to its end.

    Each time on a database of its own. Return how many commits `main` makes, undisturbed.
    """
    nth, died = 0, True
    while died:
        async with open_life() as life:
            await prepare(life)
            nth += 1
            if when == "before":
                life.faults.die_before_commit(nth)
            else:
                life.faults.die_after_commit(nth)
            died = await run_until_death(partial(main, life))
            life.faults.heal()
            await life.check()
            if died and rerun:
                await main(life)
                await life.check()
            await verify(life)
    return nth - 1


def _pending(tx: Tx) -> list[tuple[str]]:
    return tx.execute("SELECT id FROM request WHERE status = 'pending'").fetchall()


def summary(tx: Tx) -> dict[str, object]:
    """Return everything that must be the same after a death as without one: all but times and ids of requests."""
    found: dict[str, object] = {"scopes": [get(tx, SCOPE, key).value.state.value for key in keys(tx, SCOPE)]}
    for key in keys(tx, STREAM):
        stream = get(tx, STREAM, key)
        found[key] = (stream.version, attrs.evolve(stream.value, created_ms=0, truncated_ms=None))
    for row in tx.execute("SELECT stream_id, number, body FROM epoch").fetchall():
        found[f"epoch {row[:2]}"] = EPOCH.decode("", row[2]).segments
    for table, columns in {
        "segment": "stream_id, segment, head, head_number, sealed_length, sealed_epoch",
        "reap": "stream_id, deleted",
        "txn": "stream_id, position, state, version, epoch, events, bytes, rows, prepared, appended, reason",
        "request": "target, kind, status",
    }.items():
        rows = tx.execute(f"SELECT {columns} FROM {table} ORDER BY {columns}").fetchall()
        found[table] = [row for row in rows if row[0] not in (1, 2, 3)]
    rows = tx.execute(
        "SELECT stream_id, segment, sum(length), sum(count) FROM extent WHERE stream_id > 3 GROUP BY 1, 2"
    ).fetchall()
    found["extents"] = rows
    found["staged"] = tx.execute("SELECT segment, sum(length), sum(count) FROM staged GROUP BY 1").fetchall()
    found["blobs"] = tx.execute(
        "SELECT stream_id, count(*) FROM blob WHERE stream_id > 3 GROUP BY 1"
    ).fetchall()
    return found
