"""Shared objects by name: which log a synchronizer's "scope/name" stands for."""

from __future__ import annotations

from typing import Final, TypeVar

import attrs

from eventproc.store.catalog import get_scope, record_names, verify_active
from eventproc.store.database import Tx
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.records import RecordKind, create, delete, find, get
from eventproc.store.replicated.change import initialize
from eventproc.store.replicated.kinds import ReplicatedType
from eventproc.store.replicated.log import LogId, create_log, delete_log

S = TypeVar("S")
U = TypeVar("U")


@attrs.frozen(kw_only=True)
class SynchronizerRecord:
    """A shared object. name: "scope/name". type: name of its `ReplicatedType`. log: holds its updates."""

    name: str
    type: str
    log: LogId
    created_ms: int


SYNCHRONIZER: Final = RecordKind(name="synchronizer", value=SynchronizerRecord)


def create_named(tx: Tx, name: str, kind: ReplicatedType[S, U], initial: S) -> LogId:
    """Return the log of the object `name`, which is created with the state `initial` if it does not exist.

    Raises NotFound (the scope), IllegalTransition (the scope is being deleted), AlreadyExists (with another type),
    InvalidArgument (the state is too large).
    """
    if (log := find_named(tx, name, kind)) is not None:
        return log
    verify_active(get_scope(tx, name.partition("/")[0]).value, "create a synchronizer")
    log = create_log(tx)
    create(
        tx, SYNCHRONIZER, name, SynchronizerRecord(name=name, type=kind.name, log=log, created_ms=tx.now_ms)
    )
    initialize(tx, log, kind, initial)
    return log


def find_named(tx: Tx, name: str, kind: ReplicatedType[S, U]) -> LogId | None:
    """Return the log of the object `name`, or None if there is none. Raises AlreadyExists (with another type)."""
    if (found := find(tx, SYNCHRONIZER, name)) is None:
        return None
    if found.value.type != kind.name:
        raise AlreadyExists(kind="synchronizer", name=name, differing=("type",))
    return found.value.log


def named_objects(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[str]:
    """Return the names of the objects of a scope, or of all scopes, sorted by scope and name. Raises NotFound."""
    return record_names(tx, SYNCHRONIZER, scope, page)


def delete_named(tx: Tx, name: str) -> None:
    """Remove the object `name`; its members get NotFound. Raises NotFound."""
    found = get(tx, SYNCHRONIZER, name)
    delete(tx, SYNCHRONIZER, found)
    delete_log(tx, found.value.log)
