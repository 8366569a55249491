"""Partitioners: a user's own choice of the partition of each event of a topic."""

from __future__ import annotations

from typing import Protocol, TypeVar, cast, runtime_checkable

from eventproc.store.model.errors import InvalidArgument
from eventproc.streams.new_events import as_key

P_contra = TypeVar("P_contra", contravariant=True)
P = TypeVar("P")


@runtime_checkable
class Partitioner(Protocol[P_contra]):
    """Chooses the partition of each event that a producer writes without one.

    It must be fast and free of side effects: it runs on the event loop for every event. Events of a key keep their
    order only if the partitioner chooses the same partition for the key each time.
    """

    def partition(self, key: str | None, payload: P_contra, partitions: int) -> int:
        """Return the number of the partition, 0 to `partitions` - 1.

        Args:
            key: text of the event's routing key; None for an event without one.
            payload: the event's payload, as the caller wrote it.
            partitions: how many partitions the topic has. It grows when partitions are added.
        """
        ...


def choose_partition(
    partitioner: Partitioner[P], key: str | bytes | None, payload: P, partitions: int
) -> int:
    """Return the partition that `partitioner` chooses. Raises InvalidArgument if there is no such partition."""
    chosen = partitioner.partition(as_key(key), payload, partitions)
    if type(cast("object", chosen)) is not int or not 0 <= chosen < partitions:
        reason = f"{type(partitioner).__name__}.partition must return an int of 0 to {partitions - 1}"
        raise InvalidArgument(what="partition", value=repr(chosen), reason=reason)
    return chosen
