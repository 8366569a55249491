"""A runtime for tests: apps run in memory and in virtual time, on asyncio or on trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, TypeAlias, TypeVar, TypeVarTuple, overload

import anyio

from eventproc.groups.time_limit import within
from eventproc.processors import App, Running
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.runtime import Eventproc, open_memory
from eventproc.store.delayed_events import first_once_due_ms
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.argument_checks import check_choice
from eventproc.store.model.names import StreamName
from eventproc.store.segments import Event
from eventproc.testing.clock import VirtualClock
from eventproc.testing.seeds import run_seeded
from eventproc.testing.virtual_loop import VirtualTimeLoop

T = TypeVar("T")
P = TypeVar("P")
Args = TypeVarTuple("Args")

Backend: TypeAlias = Literal["asyncio", "trio"]
"""An event loop."""

BACKENDS: Final = ("asyncio", "trio")

SETTLE_MS_MAX: Final = 24 * 60 * 60 * 1000
"""Virtual time after which `settled` gives up: longer than any sensible pause. Higher: a test that can never settle
fails later, at some seconds of real time for each day."""

TXN_LOOK_MS: Final = 1_000
"""Virtual time between two looks at open transactions."""


LONGER: Final = (
    "it may be due later in virtual time: give settled() a longer timeout_ms, or let the test sleep for as long as it"
    " needs"
)
"""What a test may do if work is left."""


class SystemInTest:
    """An open system with what tests do to it: base of `RunningApp` and `World`.

    ep: the open system.
    clock: its clock, which follows virtual time and can be moved.
    """

    ep: Eventproc
    clock: VirtualClock

    async def write(
        self,
        stream: str,
        payload: object,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Append one event, durably. The stream is created if it does not exist.

        Args:
            stream: name, "scope/stream".
            payload: bytes, or a value whose type has a codec.
            key: routing key. None (default): any segment.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.

        Raises:
            InvalidArgument: the event is not valid, or the type of the payload has no codec.
            StreamSealed: the stream is sealed.
        """
        await create_streams(self.ep, [stream])
        handle = await self.ep.stream(stream)
        async with handle.writer(payload=type(payload)) as writer:
            await writer.write(payload, key=key, event_time=event_time, headers=headers)

    async def lag(self, group: str | None = None) -> int:
        """Return how many events are left to process, durably.

        Args:
            group: name of the group of a processor, "scope/group". None (default): all processors.
        """
        found = await self.ep.processors() if group is None else [await self.ep.processor(group)]
        return sum(each.group.events for each in found)

    @overload
    async def events(self, stream: str) -> list[Event[bytes]]: ...
    @overload
    async def events(self, stream: str, *, payload: type[P]) -> list[Event[P]]: ...
    async def events(self, stream: str, *, payload: type[Any] = bytes) -> list[Event[Any]]:
        """Return all events of a stream; none if it does not exist.

        Args:
            stream: name, "scope/stream".
            payload: type of the payloads. Default: bytes.
        """
        await create_streams(self.ep, [stream])
        handle = await self.ep.stream(stream)
        async with handle.reader(payload=payload) as reader:
            return [event async for event in reader.until(await handle.tail())]

    async def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the pending dead letters of a processor.

        Args:
            group: name of its group, "scope/group".
        """
        return await self.ep.dead_letters(group).list()

    async def delayed_ms(self) -> int | None:
        """Return how long it is until the next delayed event is due, in ms; None if none waits but for schedules."""
        due_ms, now_ms = await self.ep.db.read(lambda tx: (first_once_due_ms(tx), tx.now_ms))
        return None if due_ms is None else max(due_ms - now_ms, 0)

    async def has_open_transactions(self) -> bool:
        """Return whether a transaction of any stream is open."""
        for info in await self.ep.streams():
            if await (await self.ep.stream(info.name)).transactions():
                return True
        return False


class RunningApp(SystemInTest):
    """Apps that run in memory, with what a test does to them. Made by `VirtualRuntime.running`.

    ep: the open system.
    clock: its clock, which follows virtual time and can be moved.
    """

    def __init__(self, ep: Eventproc, clock: VirtualClock, running: Iterable[Running]) -> None:
        self.ep = ep
        self.clock = clock
        self._running = list(running)

    async def settled(self, *, timeout_ms: int = SETTLE_MS_MAX) -> None:
        """Return when nothing is left to do: retries, delayed events, lingering batches, leases of transactions.

        Virtual time passes as far as that needs.

        Args:
            timeout_ms: how much virtual time may pass, in ms. Default: a day.

        Raises:
            TimeoutError: the time is over.
            ProcessorFailed: a processor failed.
        """
        pause_ms = 1
        with within(timeout_ms, "work is left", LONGER):
            while True:
                for running in self._running:
                    await running.wait_idle()
                if await self.has_open_transactions():
                    await anyio.sleep(TXN_LOOK_MS / 1000)
                elif (left_ms := await self.delayed_ms()) is not None:
                    await anyio.sleep((left_ms + 1) / 1000)
                elif await self.lag():  # of these apps, again soon; or of a processor that runs no more
                    await anyio.sleep(pause_ms / 1000)
                    pause_ms *= 2
                else:
                    return


class VirtualRuntime:
    """Runs async functions in virtual time, and apps in memory. The fixture `eventproc_runtime` is one.

    Args:
        seed: seed of ids and of the jitter of retries; on trio, of the schedule too.
        backend: "asyncio" or "trio".

    Raises:
        InvalidArgument: the backend is another one.
    """

    def __init__(self, *, seed: int = 0, backend: Backend = "asyncio") -> None:
        check_choice("backend", backend, BACKENDS)
        self.seed = seed
        self.backend = backend

    def run(self, main: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run an async function in virtual time, and return what it returns.

        Args:
            main: the async function.
            args: its arguments.
        """
        if self.backend == "trio":
            return run_seeded(main, *args, seed=self.seed)
        options: dict[str, Any] = {"loop_factory": VirtualTimeLoop}
        return anyio.run(main, *args, backend="asyncio", backend_options=options)

    @asynccontextmanager
    async def running(
        self, *apps: App, streams: Iterable[str] = (), faults: Faults = NO_FAULTS
    ) -> AsyncIterator[RunningApp]:
        """Run apps on a new system in memory, until the end of the block.

        The streams that their processors read are created, with one segment.

        Args:
            apps: the apps.
            streams: names of further streams to create, such as those that handlers emit to. Default: none.
            faults: points at which a test lets the process die. Default: none.
        """
        clock = VirtualClock(self.seed)
        read = [name for app in apps for processor in app.processors for name in processor.options.streams]
        async with open_memory(clock=clock, faults=faults) as ep, AsyncExitStack() as stack:
            await create_streams(ep, [*read, *streams])
            running = [await stack.enter_async_context(ep.run(app)) for app in apps]
            yield RunningApp(ep, clock, running)


async def create_streams(ep: Eventproc, names: Iterable[str]) -> None:
    """Create the streams that do not exist, and their scopes."""
    existing = {info.name for info in await ep.streams()}
    for name in dict.fromkeys(names):
        if name not in existing:
            await ep.create_scope(StreamName.parse(name).scope)
            await ep.create_stream(name)
