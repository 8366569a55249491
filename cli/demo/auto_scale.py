"""The demo of scaling by rate: a burst of rows scales the stream up, quiet scales it down, and no row is lost.

The policy's windows are those of a demo: a second instead of two minutes. Everything else is as in production. The
first rows of the file are written at a rate of six times the target, and the last ones far below it. Meanwhile a
handler is called for the rows, those of each key in order.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import anyio

from eventproc import ScalingPolicy
from eventproc.cli.demo.producer import Produced
from eventproc.cli.demo.report import DemoReport, DemoRun
from eventproc.cli.input.csv_reader import CsvReader
from eventproc.cli.input.lines import InputLines, open_input
from eventproc.streams import EventWriter, Stream

ROWS_MAX: Final = 40_000
"""Rows of the file that are written. More: a burst that one process cannot follow."""

QUIET_ROWS_MAX: Final = 100
"""Of these, the last ones, which are written slowly."""

WINDOW_MS: Final = 1_000
"""The shortest window of the policy. The demo takes about 35 of them."""

BURST_WINDOWS: Final = 12
"""Length of the burst. A segment is left alone for 5 windows, so the stream scales about twice."""

LIMIT_WINDOWS: Final = 120
"""How long the demo waits until the stream is scaled down."""

TARGETS: Final = 6
"""The rate of the burst, in targets of the policy: above 5, it is noticed in the shortest window."""

SEGMENTS_MAX: Final = 8
FACTOR: Final = 4
STEPS_A_WINDOW: Final = 10
QUIET_PAUSE_MS: Final = 500
"""Shortest pause between two rows while it is quiet."""


class AutoScaleRun(DemoRun):
    """One run through a stream that a policy scales."""

    _segments_max = 1
    _count = 1

    async def run(self) -> DemoReport:
        """Write the rows in a burst and then slowly; return when all are processed and the stream is deleted."""
        rows = self._rows()
        self._produced = Produced(len(rows), len(rows), {})
        quiet = min(QUIET_ROWS_MAX, len(rows) // 10)
        burst, slow = rows[: len(rows) - quiet], rows[len(rows) - quiet :]
        a_step = max(len(burst) // (BURST_WINDOWS * STEPS_A_WINDOW), 1)
        target = max(a_step * STEPS_A_WINDOW * 1000 // WINDOW_MS // TARGETS, 1)
        policy = ScalingPolicy.by_event_rate(
            target, factor=FACTOR, segments_max=SEGMENTS_MAX, window_ms=WINDOW_MS
        )
        stream = await self._system.create_stream(f"{self._scope}/rows", scaling=policy)
        group = f"{stream.name}-processed"
        app = self._ledger.app(stream.name, group)
        clock, epochs, down_ms = self._system.db.clock, 1, 0
        async with self._system.run(app) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)  # cancels the other tasks when the handler fails
            tasks.start_soon(self._watch, stream)
            async with stream.writer() as writer:
                for first in range(0, len(burst), a_step):
                    await self._write(writer, burst[first : first + a_step])
                    await anyio.sleep(WINDOW_MS / STEPS_A_WINDOW / 1000)
                quiet_ms = clock.monotonic_ms()
                await self._write_slowly(writer, slow, max(QUIET_PAUSE_MS, 4000 // target))
                down_ms = clock.monotonic_ms() - quiet_ms
            epochs = (await stream.describe()).epoch + 1
            await stream.seal()
            await running.wait_idle()
            tasks.cancel_scope.cancel()
        await (await self._system.group(group)).delete()
        await stream.delete()
        facts = {
            "epochs": epochs,
            "target_per_second": target,
            "segments_max": self._segments_max,
            "segments_at_the_end": self._count,
            "ms_until_scaled_down": down_ms,
        }
        missed = "the stream was not scaled up" if self._segments_max == 1 else ""
        if self._count > 1:
            missed = "the stream was not scaled down"
        return self._report(facts, missed)

    def _rows(self) -> list[tuple[bytes, str]]:
        """Return the first rows of the file, as payloads and keys."""
        with open_input(str(self._task.file)) as source:
            table = CsvReader(InputLines(source))
            key_at = table.index(self._task.key)
            return [
                (b"[%d,%b]" % (number, table.payload(row)), row[key_at])
                for number, row in enumerate(islice(table, ROWS_MAX))
            ]

    async def _write(self, writer: EventWriter[bytes], rows: list[tuple[bytes, str]]) -> None:
        for payload, key in rows:
            await writer.post(payload, key=key)
        await writer.flush()

    async def _write_slowly(
        self, writer: EventWriter[bytes], rows: list[tuple[bytes, str]], pause_ms: int
    ) -> None:
        """Write row after row until the stream is scaled down, or the limit is reached; then the remaining rows."""
        left = list(reversed(rows))
        for _ in range(LIMIT_WINDOWS * WINDOW_MS // pause_ms):
            if self._count == 1 and self._segments_max > 1:
                break
            if left:
                await self._write(writer, [left.pop()])
            await anyio.sleep(pause_ms / 1000)
        await self._write(writer, left[::-1])

    async def _watch(self, stream: Stream) -> None:
        """Follow the number of segments."""
        while True:
            self._count = len(await stream.segments())
            self._segments_max = max(self._segments_max, self._count)
            processed = self._ledger.processed
            self._show(processed, f"{processed:,} rows processed, segments: {self._count}")
            await anyio.sleep(WINDOW_MS / STEPS_A_WINDOW / 1000)
