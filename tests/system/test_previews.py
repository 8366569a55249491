"""A preview says what a request, an abort or a backup would do, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc import (
    PRESENT,
    DeleteScope,
    DeleteStream,
    Eventproc,
    SealStream,
    SplitSegment,
    TruncateTo,
    restore_backup,
)
from eventproc.describe import TxnState
from eventproc.errors import InvalidArgument, NotSupported, StreamNotSealed, TransactionDecided
from tests.support.memory import ep as ep


async def test_preview_of_a_request_counts_what_it_would_destroy(ep: Eventproc) -> None:
    await ep.create_scope("shop")
    orders = await ep.create_stream("shop/orders")
    await ep.create_group("shop/billing", ["shop/orders"])
    async with orders.writer() as writer:
        await writer.write(b"2 apples")
    async with orders.transaction() as txn:
        await txn.write(b"a pear")
        await txn.flush()
        sealing = await ep.requests.preview(SealStream("shop/orders", PRESENT))
        assert (sealing.transactions, sealing.events, sealing.bytes) == (1, 1, 14)
    cutting = await ep.requests.preview(TruncateTo("shop/orders", PRESENT, "tail"))
    assert (cutting.head, cutting.cut) == (await orders.head(), await orders.tail())
    assert (cutting.events, cutting.bytes, cutting.already_done) == (2, 30, False)
    scope = await ep.requests.preview(DeleteScope("shop"))
    assert (scope.streams, scope.groups) == (("shop/orders",), ("shop/billing",))
    assert (scope.stream_count, scope.group_count, scope.synchronizer_count, scope.events) == (1, 1, 0, 2)
    split = await ep.requests.preview(SplitSegment("shop/orders", PRESENT, "0.0"))
    assert (split.request.kind, split.events) == ("scale", None)
    with pytest.raises(StreamNotSealed):
        await ep.requests.preview(DeleteStream("shop/orders", PRESENT))
    await orders.seal()
    assert (await ep.requests.preview(SealStream("shop/orders", PRESENT))).already_done
    assert (await ep.requests.preview(DeleteStream("shop/orders", PRESENT))).events == 2
    assert len(await ep.streams("shop")) == 1
    with pytest.raises(InvalidArgument):
        await ep.requests.preview("seal")  # type: ignore[arg-type]


async def test_preview_of_an_abort_has_its_refusal(ep: Eventproc) -> None:
    await ep.create_scope("shop")
    orders = await ep.create_stream("shop/orders")
    async with orders.transaction() as txn:
        await txn.write(b"2 apples")
        assert (await txn.preview_abort()).events == 1
        assert (await txn.status()).state is TxnState.OPEN
    with pytest.raises(TransactionDecided):
        await txn.preview_abort(force=True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_backup_that_was_previewed_is_made_and_restored(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "data") as directory:
        await directory.create_scope("shop")
        planned = await directory.preview_backup(tmp_path / "backup")
        assert not planned.path.exists()
        steps: list[tuple[int, int]] = []
        made = await directory.backup(tmp_path / "backup", advance=lambda *step: steps.append(step))
        assert (made.path, made.files) == (planned.path, planned.files)
        assert steps[-1][0] == steps[-1][1]
    restored = restore_backup(str(tmp_path / "backup"), str(tmp_path / "again"))
    async with eventproc.open(restored.path, create=False) as again:
        assert [each.name for each in await again.scopes()] == ["shop"]
        assert await again.free_bytes() >= 0


async def test_memory_has_no_free_bytes_to_return(ep: Eventproc) -> None:
    with pytest.raises(NotSupported):
        await ep.free_bytes()
