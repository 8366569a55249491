"""What a request would do and destroy: counted in one read transaction, after the check of its workflow."""

from __future__ import annotations

from functools import partial

import attrs

from eventproc.store.catalog import get_stream, head_offsets, readable_size, size_between, stream_names
from eventproc.store.database import Tx
from eventproc.store.delayed_events import count_delayed
from eventproc.store.groups import group_names
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.names import check_scope_name
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records.plain import JsonObject, to_dict
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


@attrs.frozen
class RequestPreview:
    """What a request would destroy. A field is None if requests of this kind do not destroy such things.

    request: the request, as it would be recorded. already_done: whether there is nothing to do.
    head, cut: where the stream begins before and after a truncation. transactions: open ones, which are aborted.
    stream_count, group_count, synchronizer_count: what is deleted. table_count: key-value tables among it.
    events, bytes: what can be read of it now.
    delayed: events that were not appended yet, and never will be.
    streams, groups: the names of what is deleted with a scope.
    """

    __repr__ = short_repr_of_fields

    request: AnyRequest
    already_done: bool
    head: StreamCut | None = None
    cut: StreamCut | None = None
    transactions: int | None = None
    stream_count: int | None = None
    group_count: int | None = None
    synchronizer_count: int | None = None
    table_count: int | None = None
    events: int | None = None
    bytes: int | None = None
    delayed: int | None = None
    streams: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None

    def losses(self) -> JsonObject:
        """Return what the shell and REST show of a dry run: what the request would do, and the fields with a value."""
        shown = {name: each for name, each in to_dict(self).items() if each is not None and name != "request"}
        return {"dry_run": True, "would": self.request.kind, "target": self.request.target, **shown}


def preview(tx: Tx, operation: Operation) -> RequestPreview:
    """Plan and check an operation as submitting it would. Raises the same refusals."""
    check_scope_name(operation.target.partition("/")[0])
    request = operation.plan(tx)
    found = partial(RequestPreview, request, check(tx, request))
    match request:
        case TruncateStream():
            stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
            head = StreamCut(stream.name, stream.stream_id, head_offsets(tx, stream))
            cut = StreamCut(stream.name, stream.stream_id, request.offsets)
            freed = size_between(tx, stream, head, cut)
            return found(head=head, cut=cut, events=freed.events, bytes=freed.bytes)
        case SealStream():  # it aborts the open transactions, and keeps the events
            aborted = [
                txn for txn in list_open(tx, request.stream_id, limit=None) if txn.state is TxnState.OPEN
            ]
            return found(
                transactions=len(aborted),
                events=sum(txn.events for txn in aborted),
                bytes=sum(txn.size_bytes for txn in aborted),
                delayed=count_delayed(tx, request.stream_id),
            )
        case DeleteStream():
            stream = get_stream(tx, request.stream).value
            size, delayed = readable_size(tx, stream), count_delayed(tx, stream.stream_id)
            return found(stream_count=1, events=size.events, bytes=size.bytes, delayed=delayed)
        case DeleteScope():
            from eventproc.store.key_value_tables import key_value_tables  # few programs delete a scope

            names, groups = stream_names(tx, request.scope), group_names(tx, request.scope)
            streams = [get_stream(tx, name).value for name in names]
            sizes = [readable_size(tx, each) for each in streams]
            return found(
                stream_count=len(names),
                group_count=len(groups),
                synchronizer_count=len(named_objects(tx, request.scope)),
                table_count=len(key_value_tables(tx, request.scope)),
                events=sum(each.events for each in sizes),
                bytes=sum(each.bytes for each in sizes),
                delayed=sum(count_delayed(tx, each.stream_id) for each in streams),
                streams=tuple(names),
                groups=tuple(groups),
            )
        case _:
            return found()
