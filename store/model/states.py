"""States of streams and scopes: a complete transition table for each, and one function that looks up the next state.

The self-loops let a workflow that died run again. A workflow of one transaction passes through its state inside that
transaction, by the same table. Source: reference pravega.md 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from eventproc.store.model.errors import IllegalTransition


class StreamState(StrEnum):
    """What may happen to a stream now."""

    CREATING = "creating"
    ACTIVE = "active"
    UPDATING = "updating"
    SCALING = "scaling"
    TRUNCATING = "truncating"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"


class StreamEvent(StrEnum):
    """What happens to a stream: the verb begins a workflow, the participle ends it."""

    CREATED = "created"
    UPDATE = "update"
    UPDATED = "updated"
    SCALE = "scale"
    SCALED = "scaled"
    TRUNCATE = "truncate"
    TRUNCATED = "truncated"
    SEAL = "seal"
    SEALED = "sealed"
    DELETE = "delete"


class ScopeState(StrEnum):
    """What may happen to a scope now."""

    ACTIVE = "active"
    DELETING = "deleting"


class ScopeEvent(StrEnum):
    """What happens to a scope. Its last deletion step removes the record, so no event ends that state."""

    DELETE = "delete"


NEXT: Final[Mapping[StreamState, Mapping[StreamEvent, StreamState]]] = MappingProxyType(
    {
        StreamState.CREATING: MappingProxyType({StreamEvent.CREATED: StreamState.ACTIVE}),
        StreamState.ACTIVE: MappingProxyType(
            {
                StreamEvent.UPDATE: StreamState.UPDATING,
                StreamEvent.SCALE: StreamState.SCALING,
                StreamEvent.TRUNCATE: StreamState.TRUNCATING,
                StreamEvent.SEAL: StreamState.SEALING,
            }
        ),
        StreamState.UPDATING: MappingProxyType(
            {StreamEvent.UPDATE: StreamState.UPDATING, StreamEvent.UPDATED: StreamState.ACTIVE}
        ),
        StreamState.SCALING: MappingProxyType(
            {StreamEvent.SCALE: StreamState.SCALING, StreamEvent.SCALED: StreamState.ACTIVE}
        ),
        StreamState.TRUNCATING: MappingProxyType(
            {StreamEvent.TRUNCATE: StreamState.TRUNCATING, StreamEvent.TRUNCATED: StreamState.ACTIVE}
        ),
        StreamState.SEALING: MappingProxyType(
            {StreamEvent.SEAL: StreamState.SEALING, StreamEvent.SEALED: StreamState.SEALED}
        ),
        StreamState.SEALED: MappingProxyType(
            {
                StreamEvent.UPDATE: StreamState.SEALED,
                StreamEvent.UPDATED: StreamState.SEALED,
                StreamEvent.SEAL: StreamState.SEALED,
                StreamEvent.DELETE: StreamState.DELETING,
            }
        ),
        StreamState.DELETING: MappingProxyType({StreamEvent.DELETE: StreamState.DELETING}),
    }
)
"""All legal transitions of a stream; all others are refused."""

SCOPE_NEXT: Final[Mapping[ScopeState, Mapping[ScopeEvent, ScopeState]]] = MappingProxyType(
    {
        ScopeState.ACTIVE: MappingProxyType({ScopeEvent.DELETE: ScopeState.DELETING}),
        ScopeState.DELETING: MappingProxyType({ScopeEvent.DELETE: ScopeState.DELETING}),
    }
)
"""All legal transitions of a scope."""


def advance(state: StreamState, event: StreamEvent, *, name: str = "") -> StreamState:
    """Return the state of a stream after `event`; `name` is for the error's text. Raises IllegalTransition."""
    try:
        return NEXT[state][event]
    except KeyError:
        raise IllegalTransition(state=state.value, event=event.value, name=name) from None


def advance_scope(state: ScopeState, event: ScopeEvent, *, name: str = "") -> ScopeState:
    """Return the state of a scope after `event`. Raises IllegalTransition."""
    try:
        return SCOPE_NEXT[state][event]
    except KeyError:
        raise IllegalTransition(state=state.value, event=event.value, name=name) from None
