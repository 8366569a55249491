"""The worker of a running app in this process."""

from __future__ import annotations

from functools import partial

from eventproc.base.tasks import run_uninterrupted
from eventproc.jobs.engine import WorkerEngine
from eventproc.processors.engine.handling import LOG
from eventproc.processors.run import ProcessorRun
from eventproc.store.database import Tx
from eventproc.store.faults import Step
from eventproc.store.groups import delete_member, get_group, insert_member
from eventproc.store.model.errors import EventprocError


class WorkerRun(ProcessorRun):
    """One worker of a running app, in this process. Its row among the members is for people: it owns nothing."""

    async def _join(self) -> None:
        if self._stopping:
            return
        await self._db.write(self._come, step=Step.GROUP_JOIN)
        try:
            engine = WorkerEngine(self._db, self.options, self._processor.make, self._reader, self._limits)
            await self._run_engine(engine)
        finally:
            await run_uninterrupted(self._leave)

    def _come(self, tx: Tx) -> None:
        group, instance = get_group(tx, self.options.group, share=True).name, self._db.instance_id
        delete_member(tx, group, self._reader)  # the server was away, and this process is still there
        insert_member(tx, group, self._reader, instance=instance, epoch=0, joined_ms=tx.now_ms)

    async def _leave(self) -> None:
        leave = partial(delete_member, group=self.options.group, reader=self._reader)
        try:
            await self._db.write(leave, step=Step.GROUP_LEAVE)
        except EventprocError as why:  # the host removes the row once this process has ended
            LOG.warning("%s failed to leave its group: %s", self.options.label, why)
