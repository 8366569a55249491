"""Processes that keep a read model in a database of the user are killed and suspended: each event is applied once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from eventproc import Event, RetryPolicy
from eventproc.runtime import Eventproc
from eventproc.testing import CrashDirectory
from tests.processors.read_model import app_of, applied, apply, database, finish
from tests.processors.support import GROUP, STREAM, grow
from tests.support.child_process import stop_outside
from tests.support.postgres import DATABASE, Server, running_server

pytestmark = pytest.mark.subprocess

POISON = b"x"
EVENTS = 80
POINTS = (
    *(("processor.progress.begun", 2), ("processor.progress.commit", 1), ("processor.progress.committed", 2)),
    ("group.refresh.committed", 1),
)
LONG = RetryPolicy(attempts=None, wait_ms=10, wait_ms_max=100, jitter_ms=10)
"""SQLite refuses a writer that another one holds up for long."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new database of the user."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/user.db"
    server: Server = request.getfixturevalue("server")
    name = f"user_{tmp_path.name.replace('-', '_')}".lower()
    server.execute(f"CREATE DATABASE {name}")
    return address_of(server, name)


def address_of(server: Server, name: str) -> str:
    """Return the address of a database of the server, for SQLAlchemy."""
    return server.url.replace("postgresql://", "postgresql+psycopg://").replace(f"@/{DATABASE}", f"@/{name}")


async def make(ep: Eventproc, count: int) -> None:
    """Write events; every seventh is undecodable."""
    await ep.create_scope("s")
    await ep.create_stream(STREAM)
    await append(ep, range(count))


async def append(ep: Eventproc, numbers: range) -> None:
    async with (await ep.stream(STREAM)).writer() as writer:
        for number in numbers:
            payload = POISON if number % 7 == 3 else b"%d" % number
            await writer.post(payload, key=f"k{number % 5}")


async def project(ep: Eventproc, url: str, is_endless: bool) -> None:
    """Keep the read model; say "round" after each transaction in which events were applied."""
    engine = database(url)
    event.listen(engine, "commit", lambda _: os.write(1, b"round\n"))
    app = app_of(engine, apply, payload=int, round_events=10, retry=LONG)
    async with ep.run(app) as running:
        await (running.wait() if is_endless else running.wait_idle())


async def verify(ep: Eventproc, url: str, count: int) -> None:
    engine = database(url)
    numbers = [number for number in range(count) if number % 7 != 3]
    assert applied(engine) == numbers
    with engine.connect() as tx:
        rows = tx.execute(sa.text("SELECT key, number FROM applied")).all()
    if engine.dialect.name == "sqlite":  # whose rows are in the order of their insertion
        for key in {key for key, _ in rows}:
            of_key = [number for each, number in rows if each == key]
            assert all(before < after for before, after in pairwise(of_key)), of_key
    letters = await ep.dead_letters(GROUP).count()
    assert letters.letters == count - len(numbers)
    assert (await ep.processor(GROUP)).group.events == 0


def test_a_kill_between_the_commits_of_both_databases_repeats_and_loses_nothing(
    url: str, eventproc_crash: CrashDirectory
) -> None:
    crash = eventproc_crash
    crash.run(make, EVENTS)
    for point, nth in POINTS:
        process = crash.start(project, url, False, at=point, nth=nth)
        while process.hear():
            pass
        process.wait_killed()
    crash.run(project, url, False)
    crash.run(verify, url, EVENTS)
    crash.check()


@pytest.mark.hunt(seeds=1)
def test_two_processes_share_a_read_model_while_streams_scale_and_one_is_killed(
    url: str, eventproc_crash: CrashDirectory, seed: int
) -> None:
    random, crash = Random(seed), eventproc_crash
    crash.run(make, 0)
    living = crash.start(project, url, True)
    for turn in range(4):
        other = crash.start(project, url, True)
        crash.run(grow, append, range(200 * turn, 200 * turn + 200))
        dead, living = (other, living) if random.random() < 0.5 else (living, other)
        dead.kill()
    living.kill()
    crash.run(project, url, False)
    crash.run(verify, url, 800)
    crash.check()


async def project_and_wait(ep: Eventproc, url: str) -> None:
    """Keep the read model; say "gated" before the third round, and wait for a line of input."""
    engine, rounds = database(url), 0

    def apply_and_count(tx: sa.Connection, events: Sequence[Event[int]]) -> None:
        nonlocal rounds
        rounds += 1
        apply(tx, events)

    def begin(_: object) -> None:
        nonlocal rounds
        if rounds == 2:
            rounds += 1
            os.write(1, b"gated\n")
            os.read(0, 100)

    app = app_of(engine, apply_and_count, payload=int, round_events=10, retry=LONG)
    event.listen(engine, "begin", begin)
    await finish(ep, app)


async def expire_all(ep: Eventproc) -> None:
    """Take every member for dead."""
    group = await ep.group(GROUP)
    for member in (await ep.processor(GROUP)).members:
        await group.reader_offline(member.reader)


def test_a_suspended_process_whose_segments_were_taken_is_fenced_in_the_users_database(
    url: str, eventproc_crash: CrashDirectory
) -> None:
    crash = eventproc_crash
    crash.run(make, EVENTS)
    suspended = crash.start(project_and_wait, url)
    suspended.wait_for("gated")
    stop_outside(suspended, crash.path / "write.lock")
    crash.run(expire_all)
    crash.run(project, url, False)
    crash.run(verify, url, EVENTS)
    suspended.resume()
    suspended.say("go")
    assert suspended.finish() == 0
    crash.run(verify, url, EVENTS)
    crash.check()


async def write_while_the_server_dies(ep: Eventproc, server: Server) -> None:
    """Keep the read model while its server dies and starts again; answers of commits are lost."""
    engine = database(address_of(server, DATABASE))
    async with ep.run(app_of(engine, payload=int, round_events=10, retry=LONG)) as running:
        await append(ep, range(500))
        await anyio.to_thread.run_sync(server.stop)
        await anyio.to_thread.run_sync(server.start)
        await append(ep, range(500, 1_000))
        await running.wait_idle()


def test_a_server_that_dies_meanwhile_has_each_event_once(eventproc_crash: CrashDirectory) -> None:
    with running_server() as server:
        eventproc_crash.run(make, 0)
        eventproc_crash.run(write_while_the_server_dies, server)
        eventproc_crash.run(verify, address_of(server, DATABASE), 1_000)
