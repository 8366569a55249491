"""The state tables, which docs/states.md shows: what they have no row for is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import pytest

from eventproc.store.model.errors import IllegalTransition
from eventproc.store.model.states import NEXT, ScopeEvent, ScopeState, StreamEvent, advance, advance_scope
from eventproc.store.model.transactions import TXN_NEXT, TxnEvent, TxnState, advance_txn


@pytest.mark.parametrize(
    "advance, table, events", [(advance, NEXT, StreamEvent), (advance_txn, TXN_NEXT, TxnEvent)]
)
def test_an_event_without_a_row_for_its_state_is_refused_by_name(
    advance: Callable[..., Any], table: Mapping[Any, Mapping[Any, Any]], events: Iterable[Any]
) -> None:
    for state, event in product(table, events):
        if event in table[state]:
            assert advance(state, event) is table[state][event]
            continue
        with pytest.raises(IllegalTransition) as refusal:
            advance(state, event, name="shop/orders")
        assert (refusal.value.state, refusal.value.event) == (state.value, event.value)
        assert str(refusal.value) == f"shop/orders: {event.value} is not possible in state {state.value}"


def test_every_state_of_a_transaction_has_its_row_and_final_ones_lead_nowhere_else() -> None:
    assert set(TXN_NEXT) == set(TxnState)
    for state in TxnState:
        assert state.is_final == (set(TXN_NEXT[state].values()) == {state})


@pytest.mark.parametrize("state", ScopeState)
def test_a_scope_is_deleted_and_stays_so(state: ScopeState) -> None:
    assert advance_scope(state, ScopeEvent.DELETE) is ScopeState.DELETING
