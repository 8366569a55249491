"""Create a stream: its record, its first epoch and its segments, in one transaction.

Semantics: pravega.md 3.1. If a stream with an equal configuration exists, the request is done; if its configuration
differs, the request is refused, and the error names the fields. The state CREATING is never stored, so a creation
cannot be half finished.
"""

from __future__ import annotations

from eventproc.store.catalog import SCOPE, find_stream, insert_stream, verify_active
from eventproc.store.database import Tx
from eventproc.store.model.errors import AlreadyExists, NotFound
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import differing
from eventproc.store.records import find
from eventproc.store.requests import note_result
from eventproc.workflows.requests import CreateStream


def check(tx: Tx, request: CreateStream) -> bool:
    """Return whether the stream exists with an equal configuration. Raises InvalidArgument, NotFound, AlreadyExists."""
    scope_name = StreamName.parse(request.stream).scope
    if (scope := find(tx, SCOPE, scope_name)) is None:
        raise NotFound(kind="scope", name=scope_name)
    verify_active(scope.value, "create a stream")
    if (found := find_stream(tx, request.stream)) is None:
        return False
    ours, theirs = found.value.config, request.config
    if fields := differing(ours, theirs):
        change = f"`eventproc stream update {request.stream} --segments {theirs.scaling.segments_min}`"
        remedy = f"the existing stream has {ours.scaling.segments_min}: open it as it is, or change it with {change}"
        raise AlreadyExists(kind="stream", name=request.stream, differing=fields, remedy=remedy)
    return True


def apply(tx: Tx, request: CreateStream, request_id: str) -> bool:
    """Create the stream unless it exists. One step."""
    if not check(tx, request):
        made = insert_stream(tx, request.stream, request.config)
        note_result(tx, request_id, made.stream_id)
    return True
