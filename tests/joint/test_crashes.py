"""Processes that consume, transform and produce are killed at each step and at random; outputs stay exactly once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import eventproc
from eventproc import ScalingPolicy
from eventproc.runtime import Eventproc
from eventproc.store.faults import Moment, Step, point_of
from eventproc.testing import check
from tests.joint.support import read_outputs
from tests.joint.worker import TARGETS
from tests.support.child_process import ChildProcess

pytestmark = pytest.mark.subprocess

WORKER = Path(__file__).parent / "worker.py"
EVENTS = 60
KEYS = 4
STEPS = (
    *(Step.TRANSACTION_STAGE, Step.TRANSACTION_END, Step.HOST_PROGRESS),
    *(Step.GROUP_JOIN, Step.GROUP_REFRESH, Step.GROUP_PROGRESS, Step.GROUP_LEAVE),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def make(directory: Path) -> None:
    """Make the streams, the group, and all inputs; the source is sealed, so that the readers end."""
    async with eventproc.open(directory) as ep:
        await ep.create_scope("s")
        for name in TARGETS:
            await ep.create_stream(name, scaling=ScalingPolicy.fixed(2))
        source = await ep.create_stream("s/in", scaling=ScalingPolicy.fixed(2))
        async with source.writer() as writer:
            await writer.write_many((b"%d" % number, str(number % KEYS)) for number in range(EVENTS))
        await source.seal()
        await ep.create_group("g", ["s/in"])


async def verify(ep: Eventproc) -> None:
    """Check that each input is in its streams exactly once, in the order of its key."""
    await check(ep.db)
    for name in TARGETS:
        await read_outputs(ep, name, events=EVENTS, keys=KEYS)


async def finish(directory: Path) -> None:
    """Let one more process end the work, and check the result after all that was decided is visible."""
    with ChildProcess.script(WORKER, directory) as last:
        while (heard := last.hear()) != "ended":
            assert heard in ("online", "processed")
    async with eventproc.open(directory) as ep:
        for name in TARGETS:
            await (await ep.stream(name)).seal()  # waits for the decided transactions
        await verify(ep)


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_each_named_step_repeats_and_loses_nothing(tmp_path: Path, step: Step) -> None:
    directory = tmp_path / "store"
    await make(directory)
    for count, moment in enumerate(Moment, start=1):
        with ChildProcess.script(WORKER, directory, point_of(step, moment), count) as worker:
            while worker.hear():
                pass  # until it is dead, or has ended without reaching the point
    await finish(directory)


@pytest.mark.hunt(seeds=2)
@pytest.mark.acceptance("K12")
async def test_kills_at_random_moments_repeat_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    directory, random = tmp_path / "store", Random(seed)
    await make(directory)
    for _ in range(4):
        point = random.choice(["write.begun", "write.commit", "write.committed"])
        with (
            ChildProcess.script(WORKER, directory, point, random.randint(5, 40)) as first,
            ChildProcess.script(WORKER, directory) as second,
        ):
            first.hear()
            for _ in range(random.randint(1, 6)):
                second.hear()
            second.kill()
            while first.hear():
                pass
    await finish(directory)
