"""The worker of a running app in this process."""

from __future__ import annotations

from eventproc.jobs.engine import WorkerEngine
from eventproc.processors.run import ProcessorRun


class WorkerRun(ProcessorRun):
    """One worker of a running app, in this process. It joins nothing: its locks alone say that it exists."""

    async def _join(self) -> None:
        if not self._stopping:
            engine = WorkerEngine(self._db, self.options, self._processor.make, self._limits)
            await self._run_engine(engine)
