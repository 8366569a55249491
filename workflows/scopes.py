"""Scopes: made and removed in one transaction when empty; emptied group by group and stream by stream when asked to.

A recursive delete is the one workflow of several transactions here: the first refuses new streams and groups by the
scope's state, each further one deletes a group, or seals and deletes a stream, the last removes the scope with the
outcome. Groups go first, so that nobody reads on from streams that are going.
A run that dies between two leaves a scope in DELETING, from which any second run goes on.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import SCOPE, Scope, get_scope, get_stream, stream_names, verify_active
from eventproc.store.database import Tx
from eventproc.store.groups import delete_group, group_names
from eventproc.store.model.errors import ScopeNotEmpty
from eventproc.store.model.names import check_scope_name
from eventproc.store.model.states import ScopeEvent, ScopeState, advance_scope
from eventproc.store.records import create, delete, find, replace
from eventproc.store.replicated import delete_named, named_objects
from eventproc.workflows import delete as delete_workflow
from eventproc.workflows import seal
from eventproc.workflows.requests import DeleteScope, DeleteStream, SealStream


def create_scope(tx: Tx, name: str) -> Scope:
    """Make a scope; one that is there is fine.

    Raises InvalidArgument, and IllegalTransition while one of that name is being deleted.
    """
    check_scope_name(name)
    if (found := find(tx, SCOPE, name)) is not None:
        verify_active(found.value, "create")
        return found.value
    return create(tx, SCOPE, name, Scope(name=name, created_ms=tx.now_ms)).value


def delete_empty_scope(tx: Tx, name: str) -> None:
    """Remove a scope without streams and groups.

    Raises InvalidArgument, NotFound, ScopeNotEmpty, and IllegalTransition while a request deletes it.
    """
    check_scope_name(name)
    found = get_scope(tx, name)
    verify_active(found.value, "delete")
    verify_empty(tx, name)
    delete(tx, SCOPE, found)


def verify_empty(tx: Tx, name: str) -> None:
    """Raise ScopeNotEmpty when the scope has streams, groups or synchronizers."""
    streams, groups, objects = stream_names(tx, name), group_names(tx, name), named_objects(tx, name)
    if streams or groups or objects:
        raise ScopeNotEmpty(scope=name, streams=len(streams), groups=len(groups), synchronizers=len(objects))


def check(tx: Tx, request: DeleteScope) -> bool:
    """Return False. Raises InvalidArgument, NotFound."""
    check_scope_name(request.scope)
    get_scope(tx, request.scope)
    return False


def apply(tx: Tx, request: DeleteScope, request_id: str) -> bool:
    """Run one step; return whether it was the last. Raises CommitsPending, as the seal of a stream does."""
    scope = get_scope(tx, request.scope)
    deleting = advance_scope(scope.value.state, ScopeEvent.DELETE, name=request.scope)
    if scope.value.state is not ScopeState.DELETING:
        replace(tx, SCOPE, scope, attrs.evolve(scope.value, state=deleting))
        return False
    if groups := group_names(tx, request.scope):
        delete_group(tx, groups[0])
        return False
    if objects := named_objects(tx, request.scope):
        delete_named(tx, objects[0])
        return False
    if not (names := stream_names(tx, request.scope)):
        delete(tx, SCOPE, scope)
        return True
    stream = get_stream(tx, names[0]).value
    if not seal.apply(tx, SealStream(stream.name, stream.stream_id), request_id):
        return False
    delete_workflow.apply(tx, DeleteStream(stream.name, stream.stream_id), request_id)
    return False
