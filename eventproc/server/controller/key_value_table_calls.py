"""The controller's calls on key-value tables of the Java client: create, list, show, delete."""

from __future__ import annotations

from functools import partial

from eventproc.server.access.authority import Caller
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.catalog_calls import PAGE_LENGTH
from eventproc.server.controller.conversions import segment_ranges
from eventproc.store.database import Database
from eventproc.store.key_value_tables import (
    KeyValueTable,
    create_key_value_table,
    delete_key_value_table,
    get_key_value_table,
    key_value_tables,
)
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.epochs import Segment
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import segment_id
from eventproc.store.model.names import StreamName
from eventproc.store.model.ranges import initial_ranges


class KeyValueTableCalls:
    """Answers calls on key-value tables. db: the open database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def create(self, request: pb.KeyValueTableConfig) -> pb.CreateKeyValueTableStatus:
        """Create a table; EXISTS is decided in the transaction that would create it. A size of rollover has no meaning.

        Raises InvalidArgument for numbers that are not possible, and AlreadyExists if a reader group has the name of a
        partition.
        """
        status, name = pb.CreateKeyValueTableStatus, f"{request.scope}/{request.kvtName}"
        StreamName.parse(name)
        check_int("size of a rollover", request.rolloverSizeBytes, least=0, unit="bytes")
        asked = KeyValueTable(
            name=name,
            partitions=request.partitionCount,
            primary_key_length=request.primaryKeyLength,
            secondary_key_length=request.secondaryKeyLength,
        )
        is_new = await self.db.write(partial(create_key_value_table, asked=asked))
        return status(status=status.SUCCESS if is_new else status.TABLE_EXISTS)

    async def segments(self, request: pb.KeyValueTableInfo) -> pb.SegmentRanges:
        """Return the partitions, each with its range of hashes of primary keys. Raises NotFound."""
        found = await self.db.read(partial(get_key_value_table, name=name_of_table(request)))
        ranges = enumerate(initial_ranges(found.partitions))
        return segment_ranges(found.name, [Segment(segment_id(number, 0), each) for number, each in ranges])

    async def list(self, request: pb.KVTablesInScopeRequest, caller: Caller) -> pb.KVTablesInScopeResponse:
        """Return a page of a scope's tables that the caller may read. The client asks until a page is empty."""
        reply, scope, after = pb.KVTablesInScopeResponse, request.scope.scope, request.continuationToken.token
        look = partial(key_value_tables, scope=scope, page=caller.page(after, PAGE_LENGTH))
        try:
            names = await self.db.read(look)
        except NotFound:
            return reply(status=reply.SCOPE_NOT_FOUND, continuationToken=pb.ContinuationToken())
        found = [pb.KeyValueTableInfo(scope=scope, kvtName=each.partition("/")[2]) for each in names]
        token = pb.ContinuationToken(token=names[-1] if names else after)
        return reply(kvtables=found, continuationToken=token)

    async def configuration(self, request: pb.KeyValueTableInfo) -> pb.KeyValueTableConfigResponse:
        """Return what a table was created with."""
        found = await self.db.read(partial(get_key_value_table, name=name_of_table(request)))
        return pb.KeyValueTableConfigResponse(
            config=pb.KeyValueTableConfig(
                scope=request.scope,
                kvtName=request.kvtName,
                partitionCount=found.partitions,
                primaryKeyLength=found.primary_key_length,
                secondaryKeyLength=found.secondary_key_length,
            )
        )

    async def delete(self, request: pb.KeyValueTableInfo) -> pb.DeleteKVTableStatus:
        """Delete a table with its entries."""
        await self.db.write(partial(delete_key_value_table, name=name_of_table(request)))
        return pb.DeleteKVTableStatus()


def name_of_table(info: pb.KeyValueTableInfo) -> str:
    """Return "scope/table"."""
    return f"{info.scope}/{info.kvtName}"
