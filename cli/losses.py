"""What a request would destroy: counted in one read transaction, after the check of its workflow."""

from __future__ import annotations

from eventproc.cli.output.tables import Row
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_stream, head_offsets, readable_size, size_between, stream_names
from eventproc.store.database import Tx
from eventproc.store.groups import group_names
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.names import check_scope_name
from eventproc.store.replicated import named_objects
from eventproc.store.transactions import TxnState, list_open
from eventproc.workflows.request_runner import check
from eventproc.workflows.requests import (
    AnyRequest,
    DeleteScope,
    DeleteStream,
    Operation,
    SealStream,
    TruncateStream,
)


async def operation_losses(ep: Eventproc, asked: Operation) -> tuple[AnyRequest, Row]:
    """Plan and check an operation as submitting it would; return its request, and what that would destroy.

    Raises the same refusals.
    """

    def look(tx: Tx) -> tuple[AnyRequest, Row]:
        check_scope_name(asked.target.partition("/")[0])
        request = asked.plan(tx)
        done = check(tx, request)
        return request, {
            "dry_run": True,
            "would": request.kind,
            "target": request.target,
            "already_done": done,
        } | dict(_losses(tx, request))

    return await ep.db.read(look)


def _losses(tx: Tx, request: AnyRequest) -> Row:
    if isinstance(request, TruncateStream):
        return _truncated(tx, request)
    if isinstance(request, SealStream):  # it aborts the open transactions, and keeps the events
        aborted = [txn for txn in list_open(tx, request.stream_id, limit=None) if txn.state is TxnState.OPEN]
        return {
            "transactions": len(aborted),
            "events": sum(txn.events for txn in aborted),
            "bytes": sum(txn.size_bytes for txn in aborted),
        }
    if isinstance(request, DeleteStream):
        size = readable_size(tx, get_stream(tx, request.stream).value)
        return {"stream_count": 1, "events": size.events, "bytes": size.bytes}
    if isinstance(request, DeleteScope):
        names = stream_names(tx, request.scope)
        sizes = [readable_size(tx, get_stream(tx, name).value) for name in names]
        groups = group_names(tx, request.scope)
        return {
            "stream_count": len(names),
            "group_count": len(groups),
            "synchronizer_count": len(named_objects(tx, request.scope)),
            "events": sum(each.events for each in sizes),
            "bytes": sum(each.bytes for each in sizes),
            "streams": names,
            "groups": groups,
        }
    return {}


def _truncated(tx: Tx, request: TruncateStream) -> Row:
    stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
    head = StreamCut(stream.name, stream.stream_id, head_offsets(tx, stream))
    cut = StreamCut(stream.name, stream.stream_id, request.offsets)
    freed = size_between(tx, stream, head, cut)
    return {"head": str(head), "cut": str(cut), "events": freed.events, "bytes": freed.bytes}
