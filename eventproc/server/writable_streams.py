"""Which streams clients can write: the controller, REST and the segment store ask the same questions."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import StreamRecord
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import ScalingPolicy

WRITER_SEGMENTS_MAX: Final = 64
"""Segments that the writers of clients can serve: with more, that of the Rust client fails for some keys. Higher: a
rate may split a stream until such a writer fails; lower: less parallelism."""


def verify_writable(stream: StreamRecord) -> None:
    """Raise InvalidArgument for a stream of the system, and for a topic.

    The partitions of a topic are not ranges of keys, so that clients would misroute. A sealed stream passes: clients
    learn that it is sealed when they append.
    """
    StreamName.parse(stream.name)
    if stream.config.is_topic:
        reason = "it is a topic, which only eventproc's own writers can write"
        raise invalid_argument("stream", stream.name, reason)


def writable_policy(asked: ScalingPolicy) -> ScalingPolicy:
    """Return a scaling policy as a client gets it: a rate splits a stream into WRITER_SEGMENTS_MAX segments at most.

    A fixed number of segments is what its caller chose, and stays. Raises InvalidArgument for a rate with more.
    """
    if not asked.goes_by_rate:
        return asked
    if asked.segments_min > WRITER_SEGMENTS_MAX:
        reason = (
            f"a policy by rate has at most {WRITER_SEGMENTS_MAX} segments, which the writers of clients can serve; "
            "ask for fewer, or for a fixed number"
        )
        raise invalid_argument("smallest number of segments", asked.segments_min, reason)
    return attrs.evolve(asked, segments_max=WRITER_SEGMENTS_MAX)
