"""docs/states.md: the transition tables of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeVar

from eventproc.store.model import states, transactions

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

HEAD = """\
# States

`make docs` writes this page from the tables in `store/model/states.py` and `transactions.py`; edit those. An event
that a state does not list is refused and changes nothing. An event that leads from a state to itself is a repeated run:
a workflow that continues after a crash, or a client that repeats a call whose answer it did not receive.
"""


def render() -> str:
    """Return the whole document."""
    sections = [
        HEAD,
        *_section("A stream", states.NEXT, first=states.StreamState.CREATING),
        *_section("A scope", states.SCOPE_NEXT, first=states.ScopeState.ACTIVE),
        *_section("A transaction", transactions.TXN_NEXT, first=transactions.TxnState.OPEN),
    ]
    return "\n".join(sections)


def _section(title: str, table: Mapping[S, Mapping[E, S]], *, first: S) -> Iterator[str]:
    yield f"## {title}\n\nIt begins as *{first.value}*.\n"
    yield "| state | event → next state |\n| --- | --- |"
    for state, row in table.items():
        yield f"| {state.value} | {', '.join(f'{event.value} → {target.value}' for event, target in row.items())} |"
    yield ""
