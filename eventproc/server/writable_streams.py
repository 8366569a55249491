"""Which streams clients may write: the controller and the segment store ask the same question."""

from __future__ import annotations

from eventproc.store.catalog import StreamRecord
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.names import StreamName


def verify_writable(stream: StreamRecord) -> None:
    """Raise InvalidArgument for a stream of the system, and for a topic.

    The partitions of a topic are not ranges of keys, so that clients would misroute. A sealed stream passes: clients
    learn that it is sealed when they append.
    """
    StreamName.parse(stream.name)
    if stream.config.is_topic:
        reason = "it is a topic, which only eventproc's own writers can write"
        raise invalid_argument("stream", stream.name, reason)
