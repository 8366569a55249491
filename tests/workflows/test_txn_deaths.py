"""Every workflow of transactions killed before and after each of its commits, and run again: the same end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import pytest

from eventproc.store.model.errors import NotFound
from eventproc.store.model.transactions import TxnState
from eventproc.store.requests import RequestStatus
from eventproc.store.transactions import TXN_STEP_LIMITS, find_txn
from eventproc.workflows.requests import SealStream
from tests.transactions.support import (
    HIGH,
    LOW,
    NAME,
    ONE,
    ZERO,
    by_key,
    events_of,
    find_txn_stream,
    make_txn_stream,
    part,
    serve,
    split,
    write,
)
from tests.workflows.support import Act, Life, die_everywhere, open_life, summary

KEYS: Final = (LOW, HIGH, "customer-42", "k1", "k2")
STAGINGS: Final = 6
"""More than one step of packing, or of dropping, takes, with the limits of `_prepare`."""
FIRST, SECOND, THIRD = (f"01900000-0000-7000-8000-00000000000{number}" for number in (1, 2, 3))


async def _prepare(life: Life) -> None:
    """Stage: two to be committed, the first touched by a scale and in need of packing, and one to be aborted."""
    limits = life.db.shared[TXN_STEP_LIMITS]  # small steps, so that there are several to die between
    limits.round_rows, limits.preparation_rows, limits.abort_blobs = 4, 5, 4
    txn_stream = await make_txn_stream(life)
    for txn_id in (FIRST, SECOND, THIRD):
        await txn_stream.begin(txn_id=txn_id)
    for number in range(STAGINGS):
        await write(
            txn_stream, FIRST, [(b"%d" % number + b"." * 900, key) for key in KEYS], identity=number + 1
        )
    await write(txn_stream, SECOND, [(b"second", key) for key in KEYS])
    for _ in range(STAGINGS):
        await txn_stream.stage(THIRD, part(ZERO, [(b"x" * 3000, LOW)]), part(ONE, [(b"y", HIGH)]))
    await split(life, ONE, 0.75)
    await write(txn_stream, FIRST, [(b"last", key) for key in KEYS], identity=STAGINGS + 1)
    await life.check()


async def _client(life: Life) -> None:
    """Repeat all calls of a client that does not know which ones arrived: nothing is done twice."""
    txn_stream = await find_txn_stream(life)
    for txn_id in (FIRST, SECOND, THIRD):
        await txn_stream.begin(txn_id=txn_id)
    if (await txn_stream.get(FIRST)).state is TxnState.OPEN:
        await write(txn_stream, FIRST, [(b"last", key) for key in KEYS], identity=STAGINGS + 1)


async def _commit(life: Life) -> None:
    await _client(life)
    txn_stream = await find_txn_stream(life)
    for txn_id in (SECOND, FIRST):
        await txn_stream.commit(txn_id)
    done = await serve(life, txn_stream, [FIRST, SECOND])
    assert [txn.state for txn in done] == [TxnState.COMMITTED] * 2
    found = by_key(await events_of(txn_stream))
    wanted = [b"second", *(b"%d" % number + b"." * 900 for number in range(STAGINGS)), b"last"]
    assert found == dict.fromkeys(KEYS, wanted)


async def _abort(life: Life) -> None:
    await _client(life)
    txn_stream = await find_txn_stream(life)
    await txn_stream.abort(THIRD)
    (done,) = await serve(life, txn_stream, [THIRD])
    assert done.state is TxnState.ABORTED
    assert await txn_stream.rows("SELECT * FROM staged WHERE txn = ?", THIRD) == []


async def _seal(life: Life) -> None:
    txn_stream = await find_txn_stream(life)
    try:
        for txn_id in (FIRST, SECOND):
            await txn_stream.commit(txn_id)
    except NotFound:
        raise AssertionError("what is decided is remembered") from None
    ended = await life.perform(SealStream(NAME, txn_stream.stream.stream_id), request_id=_request_of(life))
    assert ended.status is RequestStatus.DONE, ended.error
    done = await serve(life, txn_stream, [FIRST, SECOND, THIRD])
    assert [txn.state.value for txn in done] == ["committed", "committed", "aborted"]


_REQUESTS: dict[int, str] = {}


def _request_of(life: Life) -> str:
    return _REQUESTS.setdefault(id(life.db), life.new_id())


WORKFLOWS: Final[Mapping[str, tuple[Act, int]]] = MappingProxyType(
    {"commit": (_commit, 10), "abort": (_abort, 4), "seal": (_seal, 12)}
)
"""{what: (clients and host, fewest commits that they make)}"""


async def _make_room(life: Life) -> None:
    await make_txn_stream(life)


async def _begin(life: Life) -> None:
    """Begin a transaction and stage its first events, as a client does that repeats both after a failure."""
    txn_stream = await find_txn_stream(life)
    await txn_stream.begin(txn_id=FIRST)
    await write(txn_stream, FIRST, [(b"1", key) for key in KEYS], identity=1)


@pytest.mark.acceptance(
    "C8",
    differs="beginning is one transaction of the database, which is either stored completely or not at all",
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_beginning_that_dies_leaves_nothing_behind(when: str) -> None:
    left: list[tuple[str | None, object]] = []

    async def give_up(life: Life) -> None:
        """The client is dead: abort its transaction, if it was stored, and find nothing."""
        txn_stream = await find_txn_stream(life)
        txn = await life.db.read(lambda tx: find_txn(tx, txn_stream.stream.stream_id, FIRST))
        ((staged,),) = await txn_stream.rows("SELECT coalesce(sum(count), 0) FROM staged")
        left.append((None if txn is None else txn.state.value, staged))
        if txn is not None:
            await txn_stream.abort(FIRST)
            await serve(life, txn_stream, [FIRST])
        assert await txn_stream.rows("SELECT * FROM staged") == []
        assert (
            await txn_stream.rows("SELECT * FROM blob WHERE stream_id = ?", txn_stream.stream.stream_id) == []
        )
        assert all(events == [] for events in (await events_of(txn_stream)).values())
        await life.check()

    commits = await die_everywhere(when, _begin, prepare=_make_room, rerun=False, verify=give_up)
    nothing, begun, staged = (None, 0), ("open", 0), ("open", len(KEYS))
    # One run for each commit in which the client dies, and the last one undisturbed.
    assert (commits, left) == (
        2,
        {"before": [nothing, begun, staged], "after": [begun, staged, staged]}[when],
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", WORKFLOWS)
async def test_a_transactions_workflow_ends_the_same_after_a_death_at_any_commit(
    what: str, when: str
) -> None:
    main, commits_min = WORKFLOWS[what]
    async with open_life() as life:
        await _prepare(life)
        await main(life)
        expected = await life.db.read(summary)

    async def verify(life: Life) -> None:
        found = await life.db.read(summary)
        assert _without_preparations(found) == _without_preparations(expected)

    assert await die_everywhere(when, main, prepare=_prepare, verify=verify) >= commits_min


def _without_preparations(found: dict[str, object]) -> dict[str, object]:
    """A preparation that is repeated after a death is counted again, which raises the version, too."""
    rows = found["txn"]
    assert isinstance(rows, list)
    kept = [row[:3] + row[4:8] + row[9:] for row in rows]
    return {**found, "txn": kept, "request": sorted(map(str, found["request"]))}  # type: ignore[call-overload]
