"""The state tables: every pair is either a transition or a refusal."""

from __future__ import annotations

import pytest

from eventproc.store.model.errors import IllegalTransition
from eventproc.store.model.states import (
    ScopeEvent,
    ScopeState,
    StreamEvent,
    StreamState,
    advance,
    advance_scope,
)

E, S = StreamEvent, StreamState
LEGAL = {
    (S.CREATING, E.CREATED): S.ACTIVE,
    (S.ACTIVE, E.UPDATE): S.UPDATING,
    (S.UPDATING, E.UPDATE): S.UPDATING,
    (S.UPDATING, E.UPDATED): S.ACTIVE,
    (S.ACTIVE, E.SCALE): S.SCALING,
    (S.SCALING, E.SCALE): S.SCALING,
    (S.SCALING, E.SCALED): S.ACTIVE,
    (S.ACTIVE, E.TRUNCATE): S.TRUNCATING,
    (S.TRUNCATING, E.TRUNCATE): S.TRUNCATING,
    (S.TRUNCATING, E.TRUNCATED): S.ACTIVE,
    (S.ACTIVE, E.SEAL): S.SEALING,
    (S.SEALING, E.SEAL): S.SEALING,
    (S.SEALING, E.SEALED): S.SEALED,
    (S.SEALED, E.SEAL): S.SEALED,
    (S.SEALED, E.DELETE): S.DELETING,
    (S.DELETING, E.DELETE): S.DELETING,
}


@pytest.mark.parametrize("state", StreamState)
@pytest.mark.parametrize("event", StreamEvent)
def test_each_event_in_each_state_is_legal_or_refused(state: StreamState, event: StreamEvent) -> None:
    if (state, event) in LEGAL:
        assert advance(state, event) is LEGAL[state, event]
        return
    with pytest.raises(IllegalTransition) as refusal:
        advance(state, event, name="shop/orders")
    assert (refusal.value.state, refusal.value.event) == (state.value, event.value)
    assert str(refusal.value) == f"shop/orders: {event.value} is not possible in state {state.value}"


@pytest.mark.parametrize("state", ScopeState)
def test_a_scope_is_deleted_and_stays_so(state: ScopeState) -> None:
    assert advance_scope(state, ScopeEvent.DELETE) is ScopeState.DELETING
