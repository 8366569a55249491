"""`eventproc demo --topics`: the rows through a topic, whose consumers are processes that die, come and are joined.

Four consumers, each a process of its own, take the rows of a topic of eight partitions and copy them into a stream. A
batch and its progress are one transaction, so that a row is copied once, whatever dies. Two consumers are killed
(SIGKILL) and one joins while the rows are written, and the topic gets four more partitions. This process reads the
copies, and counts: a row comes once, and after the earlier rows of its key and partition.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_process
from anyio.abc import TaskGroup

from eventproc import ScalingPolicy
from eventproc.cli.demo.report import DemoReport, DemoRun, DemoTask
from eventproc.cli.options import Settings
from eventproc.cli.server_log import ServerLog
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.streams import Stream
from eventproc.topics import Topic

PARTITIONS: Final = 8
"""Partitions at the beginning: two for each consumer."""

PARTITIONS_ADDED: Final = 4
"""Partitions that the topic gets while it is written."""

CONSUMERS: Final = 4
"""Consumers at the beginning."""

BATCH_ROWS: Final = 1_000
"""Rows of a consumer's poll, and so of its transaction. Higher: fewer commits, and a death repeats more."""

STEP_ROWS: Final = 50_000
"""Rows that are copied between two disturbances: a death, more partitions, another death and a new consumer."""


def consume(directory: Path, group: str, name: str, output: str) -> None:
    """Copy the rows of the assigned partitions until the topic is sealed and processed. Runs in an own process.

    group: whose partitions it takes. name: of the consumer. output: the stream that gets the copies.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    ServerLog(Settings(), "warning").install()
    anyio.run(_consume, directory, group, name, output)


async def _consume(directory: Path, group_name: str, name: str, output_name: str) -> None:
    async with open_directory(directory) as system:
        output = await system.stream(output_name)
        group = await system.group(group_name)
        async with group.consumer(name, auto_commit=False) as consumer:
            while events := await consumer.poll(BATCH_ROWS):
                async with system.transaction(consumer=consumer) as txn:
                    await txn.write_many(
                        output, [(b"[%d,%b]" % (each.partition, each.payload), each.key) for each in events]
                    )


class TopicsRun(DemoRun):
    """One run through a topic."""

    rest = "read copies"

    def __init__(
        self, task: DemoTask, system: Eventproc, scope: str, show: Callable[[int, str], None]
    ) -> None:
        super().__init__(task, system, scope, show)
        self._output_name, self._group_name = f"{scope}/copies", f"{scope}/consumers"
        self._consumers: dict[str, anyio.CancelScope] = {}
        # The default limiter has a place per core: consumers would wait for each other, and for the producer.
        self._places = anyio.CapacityLimiter(CONSUMERS + 1)
        self._steps = {step: anyio.Event() for step in (1, 2, 3)}
        self._killed = 0
        self._joined = 0

    async def run(self) -> DemoReport:
        """Write, consume and count all rows."""
        topic = await self._system.create_topic(f"{self._scope}/rows", partitions=PARTITIONS)
        output = await self._system.create_stream(self._output_name, scaling=ScalingPolicy.fixed(2))
        group = await self._system.create_group(self._group_name, [topic.name])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._count_copies, output)
            async with anyio.create_task_group() as consumers:
                for _ in range(CONSUMERS):
                    self._start_consumer(consumers)
                async with anyio.create_task_group() as disturbing:
                    disturbing.start_soon(self._disturb, topic, consumers)
                    self._produced = await self._task.produce_into(topic.name)
                    self._reach(3 * STEP_ROWS)
                await topic.seal()
            await output.seal()
        await group.delete()
        partitions = PARTITIONS + PARTITIONS_ADDED
        return self._report(
            {"partitions": partitions, "consumers_killed": self._killed, "consumers_joined": self._joined}
        )

    def _start_consumer(self, consumers: TaskGroup) -> None:
        name = f"consumer-{len(self._consumers) + 1}"
        self._consumers[name] = anyio.CancelScope()
        consumers.start_soon(self._run_consumer, name)

    async def _run_consumer(self, name: str) -> None:
        given = (self._task.directory, self._group_name, name, self._output_name)
        with self._consumers[name]:
            await anyio.to_process.run_sync(consume, *given, cancellable=True, limiter=self._places)

    async def _disturb(self, topic: Topic, consumers: TaskGroup) -> None:
        """Kill two consumers, add partitions, and let a consumer join, each some rows later or after the last one."""
        await self._steps[1].wait()
        self._kill("consumer-1")
        await self._steps[2].wait()
        await topic.add_partitions(PARTITIONS_ADDED)
        await self._steps[3].wait()
        self._kill("consumer-2")
        self._start_consumer(consumers)
        self._joined += 1

    def _kill(self, name: str) -> None:
        self._consumers[name].cancel()  # the worker process gets SIGKILL
        self._killed += 1

    def _reach(self, count: int) -> None:
        """Let the disturbances begin that wait for `count` copies or fewer."""
        for step, reached in self._steps.items():
            if count >= step * STEP_ROWS:
                reached.set()

    async def _count_copies(self, output: Stream) -> None:
        """Count the copies until the stream ends."""
        async with output.reader() as reader:
            async for batch in reader.batches():
                for event in batch:
                    partition, row = json.loads(event.payload)
                    number, columns = row
                    self._ledger.count(number, event.key, columns, lane=partition)
                self._reach(self._ledger.processed)
                self._show(self._ledger.processed, f"{self._ledger.processed:,} rows consumed")
