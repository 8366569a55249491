"""Scopes: create one, delete an empty one, or delete one with its groups, streams, tables and named states.

The recursive deletion is the only workflow here with several transactions. The first sets the scope to DELETING, which
refuses new streams and groups. Each further one deletes a group, state or table, or seals and deletes a stream. The
last one removes the scope, with the outcome. Groups are deleted first, so that no reader reads streams that are being
deleted. If a process dies in between, the scope stays in DELETING, and a second run continues from there.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import (
    SCOPE,
    SCOPES,
    STREAM,
    Scope,
    get_scope,
    get_stream,
    stream_names,
    verify_active,
)
from eventproc.store.database import Tx
from eventproc.store.groups import GROUP, delete_group, group_names
from eventproc.store.jobs import delete_jobs_in
from eventproc.store.model.errors import ScopeNotEmpty
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.names import check_scope_name
from eventproc.store.model.states import ScopeEvent, ScopeState, advance_scope
from eventproc.store.records import Versioned, count_keys, create, delete, find, replace
from eventproc.store.replicated import SYNCHRONIZER, delete_named, named_objects
from eventproc.store.tables import delete_tables_in
from eventproc.workflows import delete_stream, seal_stream
from eventproc.workflows.requests import DeleteScope, DeleteStream, SealStream

TABLES_A_STEP: Final = 1_000
"""Tables deleted in one step of deleting a scope: some milliseconds under the write lock."""


def create_scope(tx: Tx, name: str) -> Scope:
    """Create a scope. Returns the existing one of that name, if any.

    Raises InvalidArgument, and IllegalTransition while one of that name is being deleted.
    """
    check_scope_name(name)
    if (found := find(tx, SCOPE, name)) is not None:
        verify_active(found.value, "create")
        return found.value
    tx.wake(SCOPES)
    return create(tx, SCOPE, name, Scope(name=name, created_ms=tx.now_ms)).value


def delete_empty_scope(tx: Tx, name: str) -> None:
    """Remove a scope without streams, groups and what else has a name in it.

    Raises InvalidArgument, NotFound, ScopeNotEmpty, and IllegalTransition while a request deletes it.
    """
    from eventproc.store.key_value_tables import KEY_VALUE_TABLE  # few programs delete a scope
    from eventproc.store.schedules import SCHEDULE

    check_scope_name(name)
    found = get_scope(tx, name)
    verify_active(found.value, "delete")
    prefix = f"{name}/"
    streams = count_keys(tx, STREAM, prefix=prefix)
    groups = count_keys(tx, GROUP, prefix=prefix)
    objects = count_keys(tx, SYNCHRONIZER, prefix=prefix)
    schedules = count_keys(tx, SCHEDULE, prefix=prefix)
    tables = count_keys(tx, KEY_VALUE_TABLE, prefix=prefix)
    if streams or groups or objects or schedules or tables:
        raise ScopeNotEmpty(
            scope=name,
            streams=streams,
            groups=groups,
            synchronizers=objects,
            schedules=schedules,
            tables=tables,
        )
    delete_tables_in(tx, name)
    _remove(tx, found)


def check(tx: Tx, request: DeleteScope) -> bool:
    """Return False. Raises InvalidArgument, NotFound."""
    check_scope_name(request.scope)
    get_scope(tx, request.scope)
    return False


def apply(tx: Tx, request: DeleteScope, request_id: str) -> bool:
    """Run one step; return whether it was the last. Raises CommitsPending, as the seal of a stream does."""
    from eventproc.store.key_value_tables import delete_key_value_table, key_value_tables
    from eventproc.store.schedules import delete_schedule, schedule_names

    scope = get_scope(tx, request.scope)
    deleting = advance_scope(scope.value.state, ScopeEvent.DELETE, name=request.scope)
    if scope.value.state is not ScopeState.DELETING:
        replace(tx, SCOPE, scope, attrs.evolve(scope.value, state=deleting))
        return False
    if groups := group_names(tx, request.scope, limit=1):
        delete_group(tx, groups[0])
        return False
    if objects := named_objects(tx, request.scope, ListPage(limit=1)):
        delete_named(tx, objects[0])
        return False
    if schedules := schedule_names(tx, request.scope, ListPage(limit=1)):
        delete_schedule(tx, schedules[0])
        return False
    if tables := key_value_tables(tx, request.scope, ListPage(limit=1)):
        delete_key_value_table(tx, tables[0])
        return False
    if delete_tables_in(tx, request.scope, limit=TABLES_A_STEP):
        return False
    if not (names := stream_names(tx, request.scope, limit=1)):
        _remove(tx, scope)
        return True
    stream = get_stream(tx, names[0]).value
    if not seal_stream.apply(tx, SealStream(stream.name, stream.stream_id), request_id):
        return False
    delete_stream.apply(tx, DeleteStream(stream.name, stream.stream_id), request_id)
    return False


def _remove(tx: Tx, scope: Versioned[Scope]) -> None:
    delete_jobs_in(tx, scope.key)
    delete(tx, SCOPE, scope)
    tx.wake(SCOPES)
