"""An endpoint for Kafka's clients in the process of a test: a system in memory, served by a thread of its own."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final, Self

from eventproc.blocking.loop import Loop
from eventproc.blocking.system import BlockingEventproc, open_on
from eventproc.blocking.topic import BlockingTopic
from eventproc.runtime import Eventproc, open_memory
from eventproc.store.model.errors import NotSupported
from eventproc.store.segments import Event

SCOPE: Final = "kafka"
"""Whose topics clients see: the default of `eventproc serve`."""


class KafkaEndpoint:
    """Serves Kafka's clients on a free port of 127.0.0.1 until the end of its `with`. Usable from any thread.

    The first one of a process takes 1 to 2 s, for imports; the next ones some 20 ms. Close the clients before
    the end: some of them look for a server that has gone, and print that, until they are closed.

    bootstrap_servers: the address for clients, "127.0.0.1:PORT".
    ep: the open system without `await`, in which the topics that clients see have the scope `kafka`.
    """

    bootstrap_servers: str
    ep: BlockingEventproc

    def __init__(self) -> None:
        self._closing = ExitStack()

    def __repr__(self) -> str:
        return f"KafkaEndpoint({getattr(self, 'bootstrap_servers', 'not open')!r})"

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            loop = Loop.begin()
            opening.callback(loop.end, interrupted=False)
            twin = open_on(loop, open_memory())
            self.ep = opening.enter_context(BlockingEventproc(loop, twin))
            self.ep.create_scope(SCOPE)
            host, port = opening.enter_context(loop.entering(_serving(twin)))
            self.bootstrap_servers = f"{host}:{port}"
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def create_topic(self, name: str, *, partitions: int = 1) -> BlockingTopic:
        """Create a topic, and return its handle. `ep.create_topic` has more options.

        Args:
            name: as clients know it, without a scope.
            partitions: how many it has. Default: 1.

        Raises:
            InvalidArgument: an option is not valid.
            AlreadyExists: there is one with another configuration.
        """
        topic: BlockingTopic = self.ep.create_topic(f"{SCOPE}/{name}", partitions=partitions)
        return topic

    def events(self, topic: str) -> list[Event[bytes]]:
        """Return all events of a topic, those of a partition in order.

        Args:
            topic: its name, without a scope.

        Raises:
            NotFound: it does not exist.
        """
        handle = self.ep.topic(f"{SCOPE}/{topic}")
        with handle.reader() as reader:
            return list(reader.until(handle.tail()))


@asynccontextmanager
async def _serving(ep: Eventproc) -> AsyncIterator[tuple[str, int]]:
    """Serve while the block runs; yield the address. Raises NotSupported if a package is missing."""
    try:
        with warnings.catch_warnings():
            # kafka-python reads its messages in a way that 3.11 and 3.12 deprecate; tests make errors of warnings.
            warnings.simplefilter("ignore", DeprecationWarning)
            from eventproc.server.access.authority import Authority
            from eventproc.server.kafka.listener import serving_kafka
    except ImportError as why:
        what = f"an endpoint for Kafka's clients without {(why.name or '').partition('.')[0]}"
        raise NotSupported(what=what, remedy='pip install "eventproc[server,kafka]"') from None
    host = "127.0.0.1"
    async with serving_kafka(ep.db, Authority(ep.db), SCOPE, (host, 0), host) as bound:
        yield bound
