"""An app that runs, without `await`: its processors work on the loop's thread while the block goes on beside them."""

from __future__ import annotations

from contextlib import suppress

from eventproc.blocking._generated import RunningCalls
from eventproc.blocking.loop import Loop, Opened, reason_given_up
from eventproc.processors import ProcessorFailed, Running
from eventproc.store.openable import Opening


class BlockingRunning(RunningCalls, Opened):
    """An app that runs; made by `BlockingEventproc.run`. `close`, or leaving its `with`, drains it. See `Running`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @property
    def in_flight(self) -> int:
        """Calls of handlers that run now."""
        return self._twin.in_flight

    def cancel_now(self) -> None:
        """Do not wait for running calls at the end of the block: cancel them. See `Running.cancel_now`."""

        async def cancel_now() -> None:
            self._twin.cancel_now()

        self._loop.call(cancel_now)

    def raise_failure(self) -> None:
        """Raise ProcessorFailed if a processor failed."""
        self._twin.raise_failure()

    def _leave(self, why: BaseException | None) -> None:
        """Drain; an interrupt meanwhile cancels the running calls."""
        reason = reason_given_up(why)
        left = self._loop.start(self._twin.__aexit__, None if reason is None else type(reason), reason, None)
        try:
            left.result()
        except KeyboardInterrupt:
            self.cancel_now()
            with suppress(ProcessorFailed):
                left.result()
            raise
        except ProcessorFailed:
            if why is None:
                raise  # else the block's own error is raised; this failure was logged


def running_app(loop: Loop, opening: Opening[Running]) -> BlockingRunning:
    """Run the app on the loop until the result is closed."""

    async def start() -> Running:
        return await opening

    return BlockingRunning(loop, loop.open(start, Running.close))._opened()
