"""Calls that name their request: a repeated call finds the first one, whatever became of the stream since.

Most changes start from what the stream is, such as the range of the segment to split. A repeated call must not look at
that again: after a split the segment is no longer active. So it submits what the first call recorded, if that is what
it asks for too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import TypeVar

from eventproc.store.clock import part_id
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import from_json
from eventproc.store.requests import find_repeated
from eventproc.workflows.requests import AnyRequest, ScaleStream, TruncateStream, UpdateStream

R = TypeVar("R", bound=AnyRequest)


def repeated_request(
    tx: Tx, request_id: str | None, kind: type[R], target: str, is_equal: Callable[[R], bool]
) -> R | None:
    """Return what an earlier call recorded under the id; None without an id, or if this is the first call.

    is_equal: whether that is what the present call asks for.
    Raises InvalidArgument if the id belongs to a different request or is no UUID of version 7, Expired if it is unknown
    and older than a day.
    """
    if request_id is None:
        return None
    found = find_repeated(tx, check_str("request id", request_id), target)
    if found is None:
        return None
    if (found.kind, found.target) == (kind.kind, target) and is_equal(
        recorded := from_json(found.body, kind)
    ):
        return recorded
    raise InvalidArgument(
        what="request id",
        value=request_id,
        reason=f"the id belongs to a different request: {found.kind} of {found.target}",
    )


async def derived_request(
    db: Database,
    request_id: str | None,
    kind: type[R],
    target: str,
    is_equal: Callable[[R], bool],
    derive: Callable[[Tx], R],
) -> R:
    """Return what the first call with the id recorded, else what `derive` makes of the present state. One read.

    Raises as `repeated_request`, and what `derive` raises.
    """

    def read(tx: Tx) -> R:
        recorded = repeated_request(tx, request_id, kind, target, is_equal)
        return derive(tx) if recorded is None else recorded

    return await db.read(read)


def is_scale(
    stream_id: int, seal: Collection[SegmentId] | None, opens: int, if_version: int | None
) -> Callable[[ScaleStream], bool]:
    """Return a function that says whether a scale seals exactly these segments, None for any, and opens so many."""

    def is_equal(found: ScaleStream) -> bool:
        if seal is not None and set(found.seal) != set(seal):
            return False
        return (found.stream_id, len(found.ranges), found.if_version) == (stream_id, opens, if_version)

    return is_equal


def is_update(
    stream_id: int, changes: Mapping[str, object], keep_segments: bool, if_version: int | None
) -> Callable[[UpdateStream], bool]:
    """Return a function that says whether an update changes exactly these fields to these values."""

    def is_equal(found: UpdateStream) -> bool:
        if (found.stream_id, found.keep_segments, found.if_version) != (stream_id, keep_segments, if_version):
            return False
        return {each: attrgetter(each)(found.config) for each in found.fields or ()} == changes

    return is_equal


def is_update_like(asked: UpdateStream) -> Callable[[UpdateStream], bool]:
    """Return a function that says whether an update changes the same fields to the same values as `asked`."""
    changes = {each: attrgetter(each)(asked.config) for each in asked.fields or ()}
    return is_update(asked.stream_id, changes, asked.keep_segments, asked.if_version)


def is_truncation(stream_id: int, if_version: int | None) -> Callable[[TruncateStream], bool]:
    """Return a function that says whether a truncation is of this stream.

    Up to where is not compared: "tail" or a time stands for the cut that the first call found there.
    """
    return lambda found: (found.stream_id, found.if_version) == (stream_id, if_version)


def request_part_id(request_id: str, part: str) -> str:
    """Return the id of one of the requests that a call makes under one id. Raises InvalidArgument."""
    try:
        return part_id(check_str("request id", request_id), part)
    except ValueError as error:
        raise invalid_argument(
            "request id", request_id, "it is not a UUID of version 7 in lower case"
        ) from error
