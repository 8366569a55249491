"""Keyed processing: items of one key one after the other, keys in parallel, by long-lived workers.

N workers, a deque per key that has items waiting, and a queue of keys that are ready. A key is in the
queue, or with a worker, or has no items: never two of these, so no two workers ever hold one key. There
is no task, lock or stream per item (pitfalls.md item 32); what a handler that never waits costs is one
call. Invariant, asserted on leaving: nothing waits and nothing runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Generic, TypeVar

import anyio

from eventproc.store.background import Background

E = TypeVar("E")

ITEMS_A_TURN: Final = 64
"""Items that a worker runs between two scheduling points, and of one key before others get their turn."""

WAITING_MAX: Final = 10_000
"""Items that may wait before `put` does. They are events that were read and not yet handled: more is
memory, less makes workers idle when one key dominates a batch."""


class KeyedWorkers(Generic[E]):
    """Runs `handler` for each item put; used in `async with`, whose end waits until all are handled.

    handler: awaited once per item. What it raises ends the block with that error, as soon as the other
    running handlers are cancelled; items that wait are then dropped.
    """

    def __init__(
        self, handler: Callable[[E], Awaitable[None]], *, workers: int, waiting_max: int = WAITING_MAX
    ) -> None:
        self._handler = handler
        self._workers = workers
        self._waiting_max = waiting_max
        self._by_key: dict[object, deque[E]] = {}  # {key that is ready or running: its items}
        self._ready: deque[object] = deque()
        self._idle: deque[anyio.Event] = deque()
        self._unfinished = 0
        self._waking = False
        self._space = anyio.Event()
        self._done = anyio.Event()
        self._failure: BaseException | None = None

    @property
    def unfinished(self) -> int:
        """Items that were put and are not handled yet."""
        return self._unfinished

    async def __aenter__(self) -> KeyedWorkers[E]:
        self._tasks = Background()
        await self._tasks.__aenter__()
        for _ in range(self._workers):
            self._tasks.start_soon(self._work)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        ended = why is None
        try:
            if why is None:
                await self.drain()
        finally:
            # True when the block was cancelled because a handler failed, and for no other reason.
            ended = await self._tasks.__aexit__(kind, why, trace) or ended
        if ended and self._failure is not None:
            raise self._failure
        assert why is not None or not self._unfinished, f"{self._unfinished} items were left unhandled"
        return None

    async def put(self, items: Iterable[tuple[object, E]]) -> None:
        """Add (key, item) pairs, in order; waits while too many wait. A None key is a key of its own.

        Raises what a handler raised.
        """
        for key, item in items:
            waiting = self._by_key.get(key) if key is not None else None
            if waiting is None:
                own = key if key is not None else object()
                self._by_key[own] = deque((item,))
                self._ready.append(own)
            else:
                waiting.append(item)
            self._unfinished += 1
            if not self._waking:
                self._maybe_wake()
            while self._unfinished >= self._waiting_max and self._failure is None:
                if self._space.is_set():
                    self._space = anyio.Event()
                await self._space.wait()
        await anyio.lowlevel.checkpoint()
        self._raise_failure()

    async def drain(self) -> None:
        """Return when every item put so far is handled. Raises what a handler raised."""
        while self._unfinished and self._failure is None:
            if self._done.is_set():
                self._done = anyio.Event()
            await self._done.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _work(self) -> None:
        handler, by_key, ready = self._handler, self._by_key, self._ready
        turn = 0
        try:
            while True:
                while not ready:
                    wake = anyio.Event()
                    self._idle.append(wake)
                    await wake.wait()
                    self._waking = False
                key = ready.popleft()
                self._maybe_wake()
                waiting = by_key[key]
                count = min(len(waiting), ITEMS_A_TURN)
                for _ in range(count):
                    await handler(waiting[0])
                    waiting.popleft()
                    self._finished()
                if waiting:
                    ready.append(key)
                else:
                    del by_key[key]
                turn += count
                if turn >= ITEMS_A_TURN:
                    turn = 0
                    await anyio.lowlevel.checkpoint()
        except Exception as error:
            if self._failure is None:
                self._failure = error
            self._space.set()
            self._done.set()
            self._tasks.cancel()

    def _maybe_wake(self) -> None:
        """Wake one idle worker if a key is ready; it wakes the next, each only if one is needed:

        handlers that never wait are run by few workers, those that do by all of them.
        """
        if self._ready and self._idle and not self._waking:
            self._waking = True
            self._idle.popleft().set()

    def _finished(self) -> None:
        self._unfinished -= 1
        if self._unfinished == self._waiting_max - 1:
            self._space.set()
        if not self._unfinished:
            self._done.set()
