"""`--dry-run`: run the check of a workflow in a read transaction, and print what the command would destroy."""

from __future__ import annotations

from collections.abc import Callable

from eventproc.cli import session
from eventproc.cli.options import Settings
from eventproc.cli.output.tables import Row, show_one
from eventproc.runtime import Eventproc
from eventproc.store.catalog import StoredHistory, get_stream, head_offsets, stream_names
from eventproc.store.database import Tx
from eventproc.store.groups import group_names
from eventproc.store.model.cuts import StreamCut, size_between
from eventproc.store.model.names import check_scope_name
from eventproc.store.segments import readable_size, sealed_lengths
from eventproc.workflows.requests import (
    AnyRequest,
    DeleteScope,
    DeleteStream,
    SealStream,
    TruncateStream,
)
from eventproc.workflows.workflow_table import WORKFLOWS


def show_dry_run(settings: Settings, make: Callable[[Tx], AnyRequest], output: str) -> None:
    """Check a request as submitting it would, and print what it would destroy. Raises the same refusals."""

    def look(tx: Tx) -> Row:
        request = make(tx)
        check_scope_name(request.target.partition("/")[0])
        done = WORKFLOWS[request.kind].check(tx, request)
        return {
            "dry_run": True,
            "would": request.kind,
            "target": request.target,
            "already_done": done,
        } | dict(_losses(tx, request))

    async def act(ep: Eventproc) -> Row:
        return await ep.db.read(look)

    show_one(session.run(settings, act), output)


def _losses(tx: Tx, request: AnyRequest) -> Row:
    if isinstance(request, TruncateStream):
        return _truncated(tx, request)
    if isinstance(request, (SealStream, DeleteStream)):
        events, size_bytes = readable_size(tx, request.stream_id)
        return {"events": events, "bytes": size_bytes}
    if isinstance(request, DeleteScope):
        names = stream_names(tx, request.scope)
        sizes = [readable_size(tx, get_stream(tx, name).value.stream_id) for name in names]
        return {
            "stream_count": len(names),
            "events": sum(events for events, _ in sizes),
            "bytes": sum(size_bytes for _, size_bytes in sizes),
            "streams": names,
            "groups": group_names(tx, request.scope),
        }
    return {}


def _truncated(tx: Tx, request: TruncateStream) -> Row:
    stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
    head = StreamCut(stream.name, stream.stream_id, head_offsets(tx, stream))
    cut = StreamCut(stream.name, stream.stream_id, request.offsets)
    lengths = sealed_lengths(tx, stream.stream_id)
    freed = size_between(head, cut, StoredHistory(tx, stream), lengths)
    return {"head": str(head), "cut": str(cut), "bytes": freed}
