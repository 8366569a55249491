"""Processes that keep a state by key are killed: each event counts once in its key's state, with what it emitted."""

from __future__ import annotations

import json
from collections import defaultdict
from random import Random

import attrs
import pytest

from eventproc import App, AppTx, Context, Event, Eventproc, KeyState, RetryPolicy
from eventproc.testing import CrashDirectory
from tests.processors.support import GROUP, OUT, STREAM, events, grow

pytestmark = pytest.mark.subprocess

KEYS = 40
POINTS = (
    *(("processor.progress.begun", 2), ("processor.progress.commit", 1), ("processor.progress.committed", 2)),
    ("group.refresh.committed", 1),
)


CHANGES = "s/changes"


@attrs.define
class Seen:
    """The numbers of a key's events, in the order in which they were handled."""

    numbers: list[int] = attrs.field(factory=list)


SEEN = KeyState(Seen, cache_bytes=2_000, changes=CHANGES)


def app_of() -> App:
    """Return a processor that notes each event in the state, and so in its changes, in a table, and in a stream."""
    app = App()

    @app.setup
    def make_table(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_seen (key TEXT, number INTEGER)")

    @app.processor(STREAM, group=GROUP, state=SEEN, retry=RetryPolicy(wait_ms=1))
    async def note(event: Event, seen: Seen, context: Context) -> None:
        number = int(event.payload)
        seen.numbers.append(number)
        if number % 11 == 5 and context.attempt == 1:
            raise ValueError("now and then")
        context.emit(OUT, event.payload, key=event.key)
        key = event.key
        context.change_tables(lambda tx: tx.execute("INSERT INTO app_seen VALUES (?, ?)", (key, number)))

    return app


async def make(ep: Eventproc, count: int) -> None:
    await ep.create_scope("s")
    for name in (STREAM, OUT, CHANGES):
        await ep.create_stream(name)
    await append(ep, range(count))


async def append(ep: Eventproc, numbers: range) -> None:
    async with (await ep.stream(STREAM)).writer() as writer:
        for number in numbers:
            await writer.post(b"%d" % number, key=f"k{number * number % KEYS}")


async def process(ep: Eventproc, is_endless: bool) -> None:
    async with ep.run(app_of()) as running:
        await (running.wait() if is_endless else running.wait_idle())


async def verify(ep: Eventproc, count: int) -> None:
    expected: defaultdict[str | None, list[int]] = defaultdict(list)
    for number in range(count):
        expected[f"k{number * number % KEYS}"].append(number)
    kept = await ep.state(GROUP, Seen).list(limit=KEYS)
    assert {each.key: each.value.numbers for each in kept} == expected
    told: defaultdict[str | None, list[int]] = defaultdict(list)
    for event in await events(ep):
        told[event.key].append(int(event.payload))
    assert told == expected
    changed: defaultdict[str | None, list[list[int]]] = defaultdict(list)
    for event in await events(ep, CHANGES):
        changed[event.key].append(json.loads(event.payload)["numbers"])
    assert changed == {
        key: [numbers[: count + 1] for count in range(len(numbers))] for key, numbers in expected.items()
    }
    rows = await ep.query("SELECT number FROM app_seen ORDER BY number")
    assert [number for (number,) in rows] == list(range(count))


def test_a_kill_at_any_point_of_a_commit_counts_each_event_once(eventproc_crash: CrashDirectory) -> None:
    crash = eventproc_crash
    crash.run(make, 300)
    for point, nth in POINTS:
        with crash.start(process, False, at=point, nth=nth) as process_to_kill:
            process_to_kill.wait_killed()
    crash.run(process, False)
    crash.run(verify, 300)
    crash.check()


@pytest.mark.hunt(seeds=1)
def test_two_processes_share_states_while_streams_scale_and_one_is_killed(
    eventproc_crash: CrashDirectory, seed: int
) -> None:
    random, crash = Random(seed), eventproc_crash
    crash.run(make, 0)
    living = crash.start(process, True)
    for turn in range(4):
        other = crash.start(process, True)
        crash.run(grow, append, range(400 * turn, 400 * turn + 400))
        dead, living = (other, living) if random.random() < 0.5 else (living, other)
        dead.kill()
    living.kill()
    crash.run(process, False)
    crash.run(verify, 1_600)
    crash.check()
