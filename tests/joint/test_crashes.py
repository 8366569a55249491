"""Processes that consume, transform and produce are killed at each step and at random; outputs stay exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from eventproc import ScalingPolicy
from eventproc.runtime import Eventproc
from eventproc.store.faults import Moment, Step, point_of
from eventproc.testing import CrashDirectory
from tests.joint.support import TARGETS, outputs, read_outputs

pytestmark = pytest.mark.subprocess

EVENTS = 60
KEYS = 4
STEPS = (
    *(Step.TRANSACTION_STAGE, Step.TRANSACTION_END, Step.HOST_PROGRESS),
    *(Step.GROUP_JOIN, Step.GROUP_REFRESH, Step.GROUP_PROGRESS, Step.GROUP_LEAVE),
)


async def make(ep: Eventproc) -> None:
    """Make the streams, the group, and all inputs; the source is sealed, so that the readers end."""
    await ep.create_scope("s")
    for name in (*TARGETS, "s/d"):
        await ep.create_stream(name, scaling=ScalingPolicy.fixed(2))
    source = await ep.create_stream("s/in", scaling=ScalingPolicy.fixed(2))
    async with source.writer() as writer:
        await writer.write_many((b"%d" % number, str(number % KEYS)) for number in range(EVENTS))
    await source.seal()
    await ep.create_group("g", ["s/in"])
    await ep.create_share_group("work", ["s/in"], deliveries_max=100)


async def consume(ep: Eventproc) -> None:
    """Process all inputs; say "online", and "processed" for each. Every third transaction is staged, for the host."""
    group = await ep.group("s/g")
    async with group.reader(f"r{os.getpid()}") as reader:
        os.write(1, b"online\n")
        async for event in reader:
            number = int(event.payload)
            async with ep.transaction(consumer=reader) as txn:
                for target in outputs(number):
                    await txn.write(target, event.payload, key=event.key)
                if number % 3 == 0:
                    await txn.flush()
            os.write(1, b"processed\n")


async def consume_share(ep: Eventproc) -> None:
    """As `consume`, with a consumer of the share group, which accepts a few inputs in each transaction."""
    group = await ep.share_group("s/work")
    async with group.consumer() as consumer:
        os.write(1, b"online\n")
        while found := await consumer.poll(5):
            async with ep.transaction(consumer=consumer) as txn:
                for each in sorted(found, key=lambda each: int(each.event.payload)):
                    await txn.write("s/d", each.event.payload, key=each.event.key)
                await consumer.accept(found)
                if int(found[0].event.payload) % 3 == 0:
                    await txn.flush()
            os.write(1, b"processed\n")


async def verify_share(ep: Eventproc) -> None:
    """Check that each input is in the stream exactly once, and finished."""
    stream = await ep.stream("s/d")
    await stream.seal()
    async with stream.reader() as reader:
        found = [int(event.payload) async for event in reader]
    assert sorted(found) == list(range(EVENTS))
    assert (await (await ep.share_group("s/work")).describe()).events == 0


async def verify(ep: Eventproc) -> None:
    """Check that each input is in its streams exactly once, in the order of its key."""
    for name in TARGETS:
        await (await ep.stream(name)).seal()  # waits for the decided transactions
        await read_outputs(ep, name, events=EVENTS, keys=KEYS)


@pytest.fixture
def crash(tmp_path: Path) -> Iterator[CrashDirectory]:
    """A directory with all inputs. After the test one more process ends the work, and the result is checked."""
    with CrashDirectory(tmp_path / "store") as crash:
        crash.run(make)
        yield crash
        assert crash.start(consume).finish() == 0
        crash.check()
        crash.run(verify)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_each_named_step_repeats_and_loses_nothing(crash: CrashDirectory, step: Step) -> None:
    for count, moment in enumerate(Moment, start=1):
        process = crash.start(consume, at=point_of(step, moment), nth=count)
        while process.hear():
            pass  # until it is dead, or has ended without reaching the point


def test_a_kill_between_an_accept_and_its_commit_repeats_and_loses_nothing(tmp_path: Path) -> None:
    with CrashDirectory(tmp_path / "store") as crash:
        crash.run(make)
        for count, moment in enumerate(Moment, start=1):
            process = crash.start(consume_share, at=point_of(Step.TRANSACTION_END, moment), nth=count)
            while process.hear():
                pass
        assert crash.start(consume_share).finish() == 0
        crash.check()
        crash.run(verify_share)


@pytest.mark.hunt(seeds=2)
@pytest.mark.acceptance("K12")
def test_kills_at_random_moments_repeat_and_lose_nothing(crash: CrashDirectory, seed: int) -> None:
    random = Random(seed)
    for _ in range(4):
        point = random.choice(["write.begun", "write.commit", "write.committed"])
        first = crash.start(consume, at=point, nth=random.randint(5, 40))
        second = crash.start(consume)
        first.hear()
        for _ in range(random.randint(1, 6)):
            second.hear()
        second.kill()
        while first.hear():
            pass
