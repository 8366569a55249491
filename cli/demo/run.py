"""The demo's run: the complete life of one stream, which scales while one process writes and another processes it.

The producer is a process of its own (`producer.py`). This process calls the handler for batches of rows, each key's
rows in order. When all rows are written, the stream is truncated at the processor's position, sealed, processed to its
end, and deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from eventproc import ScalingPolicy
from eventproc.cli.demo.auto_scale import AutoScaleRun
from eventproc.cli.demo.cpu_times import CpuTimes
from eventproc.cli.demo.ledger import DemoLedger
from eventproc.cli.demo.producer import Produced
from eventproc.cli.demo.report import DemoReport, DemoTask
from eventproc.cli.demo.topics import TopicsRun
from eventproc.cli.signals import SignalScope
from eventproc.errors import EventprocError
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.streams import Stream

SHOW_MS: Final = 100
"""Interval between two updates of the progress bar."""


async def run(
    task: DemoTask,
    *,
    topics: bool,
    auto_scale: bool = False,
    show: Callable[[int, str], None],
    signal_scope: SignalScope,
) -> DemoReport:
    """Run the demo in a new scope that is deleted at the end in every case.

    topics: whether the rows go through a topic and its consumers.
    auto_scale: whether a policy scales the stream.
    show: called every SHOW_MS with the number of processed rows, and a text.
    signal_scope: cancels the run.
    Raises Signalled, and what opening, writing and processing raise, in exception groups.
    """
    async with open_directory(task.directory, durability=task.durability) as system:
        scope = f"demo-{system.requests.new_id()}"
        await system.create_scope(scope)
        try:
            if topics:
                return await signal_scope.run(TopicsRun(task, system, scope, show).run())
            if auto_scale:
                return await signal_scope.run(AutoScaleRun(task, system, scope, show).run())
            stream = await system.create_stream(f"{scope}/rows", scaling=ScalingPolicy.fixed(2))
            return await signal_scope.run(_DemoRun(task, system, stream, show).run())
        finally:
            with anyio.CancelScope(shield=True):
                await _clear(system, scope)


async def _clear(system: Eventproc, scope: str) -> None:
    try:
        await system.delete_scope(scope, recursive=True)
    except EventprocError:
        pass  # a full disk or a stopped database: the error of the run explains more


class _DemoRun:
    """One run."""

    def __init__(
        self, task: DemoTask, system: Eventproc, stream: Stream, show: Callable[[int, str], None]
    ) -> None:
        self._task = task
        self._system = system
        self._stream = stream
        self._group = f"{stream.name}-processed"
        self._show = show
        self._cpu = CpuTimes(rest="process")
        self._ledger = DemoLedger(self._cpu, key=task.key, mean_of=task.mean_of)
        self._produced = Produced(rows=0, written=0, cpu_seconds={})
        self._epochs = 1

    async def run(self) -> DemoReport:
        app = self._ledger.app(self._stream.name, self._group)
        async with self._system.run(app) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)  # cancels the other tasks when the handler fails
            tasks.start_soon(self._show_progress)
            self._produced = await self._task.produce_into(self._stream.name, self._system.durability)
            self._epochs = (await self._stream.describe()).epoch + 1
            group = await self._system.group(self._group)
            await self._stream.truncate((await group.cuts())[self._stream.name])
            await self._stream.seal()
            await running.wait_idle()
            tasks.cancel_scope.cancel()
        await (await self._system.group(self._group)).delete()
        await self._stream.delete()
        cpu_seconds = {**self._produced.cpu_seconds, **self._cpu.seconds()}
        return DemoReport(self._produced, self._ledger, {"epochs": self._epochs}, cpu_seconds)

    async def _show_progress(self) -> None:
        while True:
            await anyio.sleep(SHOW_MS / 1000)
            processed = self._ledger.processed
            self._show(processed, f"{processed:,} rows processed")
