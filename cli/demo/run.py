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
from eventproc.cli.demo.report import DemoReport, DemoRun, DemoTask
from eventproc.cli.demo.topics import TopicsRun
from eventproc.cli.signals import SignalScope
from eventproc.errors import EventprocError
from eventproc.runtime import Eventproc, open as open_directory

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
            kind = TopicsRun if topics else AutoScaleRun if auto_scale else StreamRun
            return await signal_scope.run(kind(task, system, scope, show).run())
        finally:
            with anyio.CancelScope(shield=True):
                await _clear(system, scope)


async def _clear(system: Eventproc, scope: str) -> None:
    try:
        await system.delete_scope(scope, recursive=True)
    except EventprocError:
        pass  # a full disk or a stopped database: the error of the run explains more


class StreamRun(DemoRun):
    """One run through a stream that the producer scales."""

    async def run(self) -> DemoReport:
        """Write and process all rows, and delete the stream."""
        stream = await self._system.create_stream(f"{self._scope}/rows", scaling=ScalingPolicy.fixed(2))
        name, epochs = f"{stream.name}-processed", 1
        app = self._ledger.app(stream.name, name)
        async with self._system.run(app) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)  # cancels the other tasks when the handler fails
            tasks.start_soon(self._show_progress)
            self._produced = await self._task.produce_into(stream.name)
            epochs = (await stream.describe()).epoch + 1
            group = await self._system.group(name)
            await stream.truncate((await group.cuts())[stream.name])
            await stream.seal()
            await running.wait_idle()
            tasks.cancel_scope.cancel()
        await (await self._system.group(name)).delete()
        await stream.delete()
        return self._report({"epochs": epochs})

    async def _show_progress(self) -> None:
        while True:
            await anyio.sleep(SHOW_MS / 1000)
            processed = self._ledger.processed
            self._show(processed, f"{processed:,} rows processed")
